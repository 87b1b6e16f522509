"""What operators learn of groups, and how they reset them."""

import asyncio
from typing import Any

from tests.proxy.admin.conftest import Operator, resource
from tests.proxy.conftest import User, consumer_settings

from roquet.client import ConsumerConfig, PushConsumer
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster


def settings(group: str, expression: str, kind: Any = pb.TAG) -> pb.Settings:
    made: pb.Settings = consumer_settings(group)
    made.subscription.subscriptions[0].expression.expression = expression
    made.subscription.subscriptions[0].expression.type = kind
    return made


async def test_subscriptions_are_listed_by_filter_and_described_by_client(
    proxy: Proxy, operator: Operator
) -> None:
    async with (
        User(proxy, "a").telemetry(settings("g", "red")),
        User(proxy, "b").telemetry(settings("g", "red")),
        User(proxy, "c").telemetry(settings("g", "blue")),
    ):
        await asyncio.sleep(2)
        request = admin.ListSubscriptionRequest(group=resource("g"))
        listed = (await operator.ok("ListSubscription", request)).subscription_info
        described = await operator.ok(
            "DescribeSubscription", admin.DescribeSubscriptionRequest(group=resource("g"))
        )
    assert sorted(one.expression.expression for one in listed) == ["blue", "red"]
    assert {one.subscription_consistency for one in listed} == {False}
    assert {(one.group.name, one.topic.name, one.online) for one in listed} == {("g", "NORM", True)}
    clients = [one.client_info for one in described.client_subscription_info]
    assert [one.client_id for one in clients] == ["a", "b", "c"]
    assert (clients[0].language, clients[0].version) == ("PYTHON", "5.1.2")
    assert clients[0].egress_ip == "10.0.0.7"


async def test_groups_of_a_topic_are_found_with_the_members_of_every_kind(
    running: Cluster, proxy: Proxy, operator: Operator
) -> None:
    config = ConsumerConfig(clock=this_loop().clock)
    async with (
        PushConsumer(running.namesrv_addr, group="g", topic="NORM", config=config),
        User(proxy).telemetry(settings("g", "a > 1", pb.SQL)),
    ):
        await User(proxy).receive("g", "NORM", timeout_s=10)
        await asyncio.sleep(2)
        request = admin.ListSubscriptionRequest(topic=resource("NORM"))
        (one, other) = (await operator.ok("ListSubscription", request)).subscription_info
        call = admin.ListConsumerConnectionRequest(group=resource("g"), topic=resource("NORM"))
        connected = (await operator.ok("ListConsumerConnection", call)).client_info
        call.topic.name = "FIFOT"
        assert not (await operator.ok("ListConsumerConnection", call)).client_info
    assert {one.expression.expression, other.expression.expression} == {"*", "a > 1"}
    assert len(connected) == 2


async def test_a_request_that_names_neither_group_nor_topic_is_refused(operator: Operator) -> None:
    answer = await operator("ListSubscription", admin.ListSubscriptionRequest())
    assert answer.status.code == pb.BAD_REQUEST
    assert answer.status.message == "name a group, a topic, or both"
    request = admin.ListSubscriptionRequest(topic=resource("nowhere"))
    assert (await operator("ListSubscription", request)).status.code == pb.NOT_FOUND


async def test_accumulation_and_times_are_told_by_topic(proxy: Proxy, operator: Operator) -> None:
    user = User(proxy)
    for number in range(3):
        await user.send("NORM", b"%d" % number)
    async with user.telemetry(consumer_settings()):
        (first,) = await user.receive(count=1)
        await user.ack(first)
        while not await user.receive(count=1):
            pass
        request = admin.DescribeGroupAccumulationRequest(group=resource("g"))
        answer = await operator.ok("DescribeGroupAccumulation", request)
        request.topics.add().name = "FIFOT"
        none = await operator.ok("DescribeGroupAccumulation", request)
        spans = await operator.ok(
            "QueryTimeSpan",
            admin.QueryTimeSpanRequest(group=resource("g"), topics=[resource("NORM")]),
        )
    assert set(answer.topic_accumulation) == {"NORM"}
    found = answer.accumulation
    assert found.accumulation == found.inflight_messages + found.ready_messages
    assert found.accumulation in (1, 2)
    assert none.accumulation.accumulation == 0
    assert len(spans.queue_time_span_list) == 4
    assert max(one.max_timestamp for one in spans.queue_time_span_list) > 0


async def test_a_group_goes_on_at_a_time_while_members_are_connected(
    proxy: Proxy, operator: Operator
) -> None:
    user = User(proxy)
    begun_ms = this_loop().clock.now_ms()
    await user.send("NORM", b"again")
    async with user.telemetry(consumer_settings()):
        (first,) = await user.receive()
        await user.ack(first)
        request = admin.ResetGroupOffsetRequest(group=resource("g"), topic=resource("NORM"))
        assert (await operator("ResetGroupOffset", request)).status.code == pb.BAD_REQUEST
        request.reset_timestamp.FromMilliseconds(begun_ms)
        await operator.ok("ResetGroupOffset", request)
        assert [message.body for message in await user.receive()] == [b"again"]


async def test_a_subscription_is_not_deleted_since_none_is_stored(operator: Operator) -> None:
    request = admin.DeleteSubscriptionRequest(group=resource("g"), topic=resource("NORM"))
    answer = await operator("DeleteSubscription", request)
    assert answer.status.code == pb.NOT_FOUND
    assert "`roquet group delete g`" in answer.status.message
