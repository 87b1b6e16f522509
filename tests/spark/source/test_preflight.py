"""Preflight checks: brokers can filter, and the group has no other members."""

from typing import Any

import pytest
from tests.spark.conftest import CannedCluster

from roquet.model.errors import CallRefused, ConfigError
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import SourceOptions
from roquet.spark.source import preflight
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.bodies import CheckClientBody, ClientConnection, ConsumerConnection
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps, loads


def check(canned: CannedCluster, answer: object, **settings: Any) -> list[Any]:
    """The questions that brokers were asked, beside what they hold."""
    checks = list[Any]()

    def answering(_broker: str, call: Call[Any]) -> Any:
        checks.append(call)
        if isinstance(answer, Exception):
            raise answer
        return Reply(body=dumps(answer))

    canned.reply_with(GetConnections | CheckSubscription, answering)
    settings = {"namesrv": (canned.namesrv,), "topics": ("orders",), **settings}
    cluster = ClusterClient(SourceOptions(**settings))
    cluster.bounds()
    preflight.check_read(cluster)
    return checks


MEMBERS = ConsumerConnection(
    connection_set=[ClientConnection(client_id="b@1", client_addr="b:1"),
                    ClientConnection(client_id="a@1", client_addr="a:1")]
)  # fmt: skip


def test_a_plain_read_asks_for_nothing(canned: CannedCluster) -> None:
    assert check(canned, MEMBERS) == []


def test_a_group_that_has_members_is_refused(canned: CannedCluster) -> None:
    with pytest.raises(ConfigError, match="group 'billing' is used by consumers \\(a@1, b@1\\)"):
        check(canned, MEMBERS, group="billing")


def test_unless_it_is_shared(canned: CannedCluster) -> None:
    assert check(canned, MEMBERS, group="billing", share_group=True) == []


@pytest.mark.parametrize(
    "answer",
    [
        CallRefused(ResponseCode.CONSUMER_NOT_ONLINE, "not online"),
        CallRefused(ResponseCode.SYSTEM_ERROR, "the consumer group not exist"),
        ConsumerConnection(),
    ],
)
def test_a_group_without_members_is_accepted(canned: CannedCluster, answer: object) -> None:
    assert [call.consumer_group for call in check(canned, answer, group="g")] == ["g", "g"]


def test_another_refusal_is_raised(canned: CannedCluster) -> None:
    with pytest.raises(CallRefused, match="not you"):
        check(canned, CallRefused(ResponseCode.NO_PERMISSION, "not you"), group="g")


def test_a_broker_that_does_not_filter_is_named_with_its_reason(canned: CannedCluster) -> None:
    refused = CallRefused(ResponseCode.SYSTEM_ERROR, "does not support SQL92")
    text = "broker 'broker-a' does not filter by this expression: does not support SQL92; .*enableP"
    with pytest.raises(ConfigError, match=text):
        check(canned, refused, sql92="a > 1")


def test_every_broker_is_asked_whether_it_filters(canned: CannedCluster) -> None:
    checks = check(canned, {}, sql92="a > 1")
    bodies = [loads(call.body, CheckClientBody).subscription_data for call in checks]
    subscriptions = [(body.topic, body.sub_string, body.expression_type) for body in bodies if body]
    assert subscriptions == [("orders", "a > 1", "SQL92")] * 2
