"""Members continue at the offsets that an operator sets."""

import asyncio
from typing import Any

import pytest
from tests.client.conftest import FakeCluster, FakeClusters, VirtualConfig

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.testing.clock import in_virtual_time, this_loop

QUEUE = MessageQueue("t", "a", 0)


def consumer_of(virtual: VirtualConfig, cluster: FakeCluster, **settings: Any) -> PushConsumer:
    config = virtual(ConsumerConfig, consume_from=ConsumeFrom.FIRST, **settings)
    return PushConsumer(cluster.address, group="g", topic="t", config=config)


@in_virtual_time
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_handler_at_work_ends_before_its_message_comes_again(
    fakes: FakeClusters, virtual: VirtualConfig, ordered: bool
) -> None:
    at_work: list[bytes] = []
    most: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        at_work.append(message.body)
        most.append(len(at_work))
        await asyncio.sleep(5)
        at_work.remove(message.body)

    async with (
        fakes(t={"a": 1}) as cluster,
        consumer_of(virtual, cluster, ordered=ordered) as consumer,
    ):
        cluster.brokers["a"].put("t", 0, b"x")
        work = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(2)
        began = this_loop().time()
        await consumer._rebalancer.reset({QUEUE: 0})
        assert 2 < this_loop().time() - began < 4
        await asyncio.sleep(8)
        assert most == [1, 1]
        consumer.stop()
        await work


@in_virtual_time
async def test_a_handler_that_hangs_is_not_waited_for_longer_than_java_does(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(40)

    for ordered in (False, True):
        async with (
            fakes(t={"a": 1}) as cluster,
            consumer_of(virtual, cluster, ordered=ordered, close_timeout_ms=1) as consumer,
        ):
            cluster.brokers["a"].put("t", 0, b"x")
            work = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(2)
            began = this_loop().time()
            await consumer._rebalancer.reset({QUEUE: 0})
            assert 9 < this_loop().time() - began < 11
            consumer.stop()
            work.cancel()
            await asyncio.wait([work])


@in_virtual_time
async def test_a_paused_queue_stays_paused(fakes: FakeClusters, virtual: VirtualConfig) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        cluster.brokers["a"].put("t", 0, b"x", b"y")
        await asyncio.sleep(1)
        consumer.pause()
        await consumer._rebalancer.reset({QUEUE: 1})
        assert consumer.paused() == [QUEUE]
        assert await consumer.next(1_000) is None
        consumer.resume()
        message = await consumer.next(1_000)
        assert message is not None
        assert message.body == b"y"


@in_virtual_time
async def test_who_cannot_save_goes_on_all_the_same(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        cluster.brokers["a"].put("t", 0, b"x")
        assert await consumer.next() is not None

        async def refuse(queue: MessageQueue, offset: int) -> None:
            raise CallRefused(1, "no")

        consumer._offsets.commit = refuse  # type: ignore[method-assign]
        await consumer._rebalancer.reset({QUEUE: 0, MessageQueue("t", "z", 9): 0})
        again = await consumer.next(1_000)
        assert again is not None
        assert again.body == b"x"


@in_virtual_time
async def test_a_topic_that_was_left_meanwhile_is_not_taken_again(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        await asyncio.sleep(1)
        resetting = asyncio.create_task(consumer._rebalancer.reset({QUEUE: 0}))
        consumer.unsubscribe("t")
        await resetting
        await asyncio.sleep(1)
        assert consumer.assignment() == []
