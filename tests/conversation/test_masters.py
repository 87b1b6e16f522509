"""Several masters: sends are shared by queues, one may die, another may join."""

import asyncio
from collections import Counter

from tests.conversation.conftest import producer_of, virtual_cluster

from roquet.client import Producer
from roquet.model.topic import READ_WRITE
from roquet.net.pool import ChannelPool
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.calls.admin.topic import CreateTopic


async def create(running: Cluster, topic: str, *queues: int) -> None:
    """A topic with so many queues on each broker."""
    pool = ChannelPool(clock=this_loop().clock)
    for broker, count in zip(running.brokers[-len(queues) :], queues, strict=True):
        call = CreateTopic(
            topic=topic, read_queue_nums=count, write_queue_nums=count, perm=READ_WRITE
        )
        await pool.call(broker.address, call)
    await pool.close()
    await asyncio.sleep(1)  # the name server is told of it beside


async def shares(producer: Producer, count: int) -> Counter[str]:
    """How many of so many sends each broker got."""
    receipts = [await producer.send("t", b"x") for _ in range(count)]
    return Counter(receipt.queue.broker_name for receipt in receipts)


async def test_a_broker_with_four_queues_gets_twice_the_sends_of_one_with_two() -> None:
    async with virtual_cluster(brokers=2) as running:
        await create(running, "t", 4, 2)
        async with producer_of(running) as producer:
            assert await shares(producer, 60) == {"broker-a": 40, "broker-b": 20}


async def test_a_second_broker_serves_after_the_first_has_stopped() -> None:
    async with virtual_cluster(brokers=2) as running:
        await create(running, "t", 4, 2)
        async with producer_of(running) as producer:
            await producer.send("t", b"x")
            await running.stop_broker(0)
            assert await shares(producer, 60) == {"broker-b": 60}


async def test_a_third_that_joins_gets_its_share_within_a_route_refresh() -> None:
    async with virtual_cluster(brokers=2) as running:
        await create(running, "t", 4, 2)
        async with producer_of(running) as producer:
            await producer.send("t", b"x")
            await running.add_broker()
            await create(running, "t", 4)
            await asyncio.sleep(31)
            assert await shares(producer, 100) == {"broker-a": 40, "broker-b": 20, "broker-c": 40}


async def test_a_new_topic_gets_queues_on_every_broker() -> None:
    async with virtual_cluster(brokers=2) as running, producer_of(running) as producer:
        assert await shares(producer, 80) == {"broker-a": 40, "broker-b": 40}
