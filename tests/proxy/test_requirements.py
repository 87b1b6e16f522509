"""Needs of requests, by Apache's table."""

from typing import Any

import pytest
from tests.proxy.conftest import consumer_settings, producer_settings

from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.protos.pool import POOL
from roquet.proxy.requirements import NEEDS

T, G = pb.Resource(name="t"), pb.Resource(name="g")
QUEUE = pb.MessageQueue(topic=T)


def needs(method: str, request: Any) -> list[str]:
    return [f"{need.resource} {'|'.join(need.actions)}" for need in NEEDS[method](request)]


@pytest.mark.parametrize(
    ("method", "request_", "needed"),
    [
        ("QueryRoute", service.QueryRouteRequest(topic=T), ["Topic:t Pub|Sub|Get"]),
        (
            "SendMessage",
            service.SendMessageRequest(messages=[{"topic": {"name": n}} for n in "tut"]),
            ["Topic:t Pub", "Topic:u Pub"],
        ),
        ("RecallMessage", service.RecallMessageRequest(topic=T), ["Topic:t Pub"]),
        ("EndTransaction", service.EndTransactionRequest(topic=T), ["Topic:t Pub"]),
        (
            "ReceiveMessage",
            service.ReceiveMessageRequest(group=G, message_queue=QUEUE),
            ["Topic:t Sub", "Group:g Sub"],
        ),
        (
            "AckMessage",
            service.AckMessageRequest(group=G, topic=T),
            ["Topic:t Sub", "Group:g Sub"],
        ),
        (
            "UpdateOffset",
            service.UpdateOffsetRequest(group=G, message_queue=QUEUE),
            ["Topic:t Sub|Update", "Group:g Sub|Update"],
        ),
        ("QueryOffset", service.QueryOffsetRequest(message_queue=QUEUE), ["Topic:t Sub|Get"]),
        ("Heartbeat", service.HeartbeatRequest(group=G), ["Group:g Sub"]),
        ("Heartbeat", service.HeartbeatRequest(), []),
        (
            "Telemetry",
            service.TelemetryCommand(settings=producer_settings("t", "u")),
            ["Topic:t Pub", "Topic:u Pub"],
        ),
        (
            "Telemetry",
            service.TelemetryCommand(settings=consumer_settings("g", "t")),
            ["Group:g Sub", "Topic:t Sub"],
        ),
        (
            "QueryRoute",
            service.QueryRouteRequest(topic=pb.Resource(name="%RETRY%g+t")),
            ["Group:g Sub|Get", "Topic:t Sub|Get"],
        ),
    ],
)
def test_a_request_needs_the_topics_and_groups_that_it_names(
    method: str, request_: Any, needed: list[str]
) -> None:
    assert needs(method, request_) == needed


def test_every_method_that_is_served_has_needs() -> None:
    known = POOL.FindServiceByName("apache.rocketmq.v2.MessagingService").methods_by_name
    assert NEEDS.keys() == set(known) - {"SyncLiteSubscription"}
