"""A member's answers to brokers that ask on behalf of operators."""

import asyncio
from typing import Any

import pytest
from tests.client.conftest import FakeCluster, FakeClusters, VirtualConfig

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.operator.broker_requests import decode_reset_offsets
from roquet.client.push import PushConsumer
from roquet.model.errors import CallRefused, FieldError
from roquet.model.queue import MessageQueue
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.admin.client_forwarding import ConsumeDirectly, GetRunningInfo, RunningInfo
from roquet.wire.calls.admin.offset_reset import GetClientStatus, ResetClientOffset
from roquet.wire.calls.bodies import ClientStatus, OffsetOfQueue, ResetOffsetBody, ResetOffsetList
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

QUEUE = MessageQueue("t", "a", 0)


def consumer_of(virtual: VirtualConfig, cluster: FakeCluster, **settings: Any) -> PushConsumer:
    config = virtual(ConsumerConfig, consume_from=ConsumeFrom.FIRST, **settings)
    return PushConsumer(cluster.address, group="g", topic="t", config=config)


def peer_of(cluster: FakeCluster, consumer: PushConsumer) -> Any:
    return cluster.brokers["a"].members["g"][consumer.client_id]


def test_offsets_come_in_either_form() -> None:
    body = codec.dumps(ResetOffsetBody(offset_table={QUEUE: 5}))
    line = OffsetOfQueue(topic="t", broker_name="a", queue_id=0, offset=5)
    listed = codec.dumps(ResetOffsetList(offset_table=[line]))
    assert decode_reset_offsets(body) == decode_reset_offsets(listed) == {QUEUE: 5}
    assert decode_reset_offsets(b"{}") == {}
    with pytest.raises(FieldError):
        decode_reset_offsets(b"[1")


@in_virtual_time
async def test_the_status_names_the_queues_of_one_topic(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    async with fakes(t={"a": 2}) as cluster, consumer_of(virtual, cluster) as consumer:
        cluster.brokers["a"].put("t", 0, b"1", b"2")
        for _ in range(2):
            message = await consumer.next()
            assert message is not None
            await message.ack()
        peer = peer_of(cluster, consumer)

        async def asked(topic: str, group: str) -> object:
            reply = await peer.call(GetClientStatus(topic=topic, group=group))
            return codec.loads(reply.body, ClientStatus).message_queue_table

        assert await asked("t", "g") == {QUEUE: 2, MessageQueue("t", "a", 1): 0}
        assert await asked("u", "g") == {}
        assert await asked("t", "h") == {}


@in_virtual_time
async def test_a_group_that_is_not_ours_is_refused(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        await asyncio.sleep(1)
        peer = peer_of(cluster, consumer)
        for call in (
            GetRunningInfo(consumer_group="h", client_id=consumer.client_id),
            ConsumeDirectly(consumer_group="h"),
        ):
            with pytest.raises(CallRefused) as refusal:
                await peer.call(call)
            assert refusal.value.code == ResponseCode.SYSTEM_ERROR
            assert refusal.value.remark == "The Consumer Group <h> not exist in this consumer"


@in_virtual_time
async def test_running_info_has_stacks_only_on_request(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        await asyncio.sleep(1)
        peer = peer_of(cluster, consumer)
        for asked in (True, False):
            call = GetRunningInfo(
                consumer_group="g", client_id=consumer.client_id, jstack_enable=asked
            )
            info = codec.loads((await peer.call(call)).body, RunningInfo)
            assert list(info.mq_table) == [QUEUE]
            assert bool(info.jstack) is asked


@in_virtual_time
async def test_resets_that_come_together_are_done_one_after_the_other(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        cluster.brokers["a"].put("t", 0, b"0", b"1", b"2")
        for _ in range(3):
            message = await consumer.next()
            assert message is not None
            await message.ack()
        for offset in (0, 2, 1):
            body = codec.dumps(ResetOffsetBody(offset_table={QUEUE: offset}))
            peer_of(cluster, consumer).oneway(
                ResetClientOffset(topic="t", group="g", timestamp=0, body=body)
            )
        await asyncio.sleep(1)
        assert [m.body for m in await consumer.fetch(5, 1_000)] == [b"1", b"2"]
        assert cluster.brokers["a"].committed[("g", "t", 0)] == 1
