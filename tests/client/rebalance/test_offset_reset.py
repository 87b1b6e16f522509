"""Members continue at the offsets that an operator sets."""

import asyncio
from typing import Any

import pytest
from tests.client.conftest import Created, FakeCluster, FakeClusters, VirtualConfig

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.client.rebalance.rebalancer import Rebalancer
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.net.router import Peer
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.offset import UpdateOffset

QUEUE = MessageQueue("t", "a", 0)


def consumer_of(virtual: VirtualConfig, cluster: FakeCluster, **settings: Any) -> PushConsumer:
    config = virtual(ConsumerConfig, consume_from=ConsumeFrom.FIRST, **settings)
    return PushConsumer(cluster.address, group="g", topic="t", config=config)


@in_virtual_time
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_running_handler_ends_before_its_message_comes_again(
    fakes: FakeClusters, virtual: VirtualConfig, created: Created, ordered: bool
) -> None:
    rebalancers = created(Rebalancer)
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
        await rebalancers[-1].reset({QUEUE: 0})
        assert 2 < this_loop().time() - began < 4
        await asyncio.sleep(8)
        assert most == [1, 1]
        consumer.stop()
        await work


@in_virtual_time
async def test_a_reset_waits_10_s_for_a_hanging_handler_as_in_java(
    fakes: FakeClusters, virtual: VirtualConfig, created: Created
) -> None:
    rebalancers = created(Rebalancer)

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
            await rebalancers[-1].reset({QUEUE: 0})
            assert 9 < this_loop().time() - began < 11
            consumer.stop()
            work.cancel()
            await asyncio.wait([work])


@in_virtual_time
async def test_a_paused_queue_stays_paused(
    fakes: FakeClusters, virtual: VirtualConfig, created: Created
) -> None:
    rebalancers = created(Rebalancer)
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        cluster.brokers["a"].put("t", 0, b"x", b"y")
        await asyncio.sleep(1)
        consumer.pause()
        await rebalancers[-1].reset({QUEUE: 1})
        assert consumer.paused() == [QUEUE]
        assert await consumer.next(1_000) is None
        consumer.resume()
        message = await consumer.next(1_000)
        assert message is not None
        assert message.body == b"y"


@in_virtual_time
async def test_a_reset_goes_on_when_its_commit_fails(
    fakes: FakeClusters, virtual: VirtualConfig, created: Created
) -> None:
    rebalancers = created(Rebalancer)
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        cluster.brokers["a"].put("t", 0, b"x")
        assert await consumer.next() is not None

        def refuse(call: UpdateOffset, peer: Peer) -> None:
            raise CallRefused(1, "no")

        cluster.brokers["a"].handlers[UpdateOffset] = refuse
        await rebalancers[-1].reset({QUEUE: 0, MessageQueue("t", "z", 9): 0})
        again = await consumer.next(1_000)
        assert again is not None
        assert again.body == b"x"


@in_virtual_time
async def test_a_topic_unsubscribed_during_a_reset_is_not_assigned_again(
    fakes: FakeClusters, virtual: VirtualConfig, created: Created
) -> None:
    rebalancers = created(Rebalancer)
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        await asyncio.sleep(1)
        resetting = asyncio.create_task(rebalancers[-1].reset({QUEUE: 0}))
        consumer.unsubscribe("t")
        await resetting
        await asyncio.sleep(1)
        assert consumer.assignment() == []
