"""Sending, from a producer's settings to what a real broker has stored."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from tests.conversation.conftest import config_of, producer_of, put_topic, virtual_cluster

from roquet.client import Message, Producer, PullConsumer
from roquet.client.config import ConsumerConfig
from roquet.client.sending.selectors import KeyHash, MachineRoom
from roquet.model.errors import CallError, UsageError
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import Cluster
from roquet.wire.records.compression import Compression


@asynccontextmanager
async def started(brokers: int = 1, **settings: Any) -> AsyncIterator[tuple[Cluster, Producer]]:
    """A cluster with topic t, four queues on each broker, and a producer."""
    async with virtual_cluster(brokers=brokers) as running:
        await put_topic(running, *[4] * len(running.brokers))
        async with producer_of(running, **settings) as producer:
            yield running, producer


async def stored(running: Cluster, topic: str = "t") -> dict[MessageQueue, list[Any]]:
    """All messages of a topic by queue."""
    config = config_of(ConsumerConfig, rng=Random(4), pull_count=10_000)
    found: dict[MessageQueue, list[Any]] = defaultdict(list)
    async with PullConsumer(running.namesrv_addr, group="audit", config=config) as consumer:
        for queue in await consumer.queues(topic):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset)
                found[queue] += result.messages
                offset = result.next_offset
    return found


async def test_ten_sends_over_four_queues_take_them_in_turn() -> None:
    async with started() as (_, producer):
        queues = [(await producer.send("t", b"x")).queue.queue_id for _ in range(10)]
        assert queues == [(queues[0] + n) % 4 for n in range(10)]


async def test_orders_go_to_the_queues_that_java_chooses() -> None:
    async with started() as (_, producer):
        orders = ("XXX001", "XXX002", "XXX003")
        keyed = [await producer.send("t", b"x", order_key=order) for order in orders]
        by_tag = KeyHash(lambda message: message.tag)
        chosen = [await producer.send("t", b"x", tag=order, selector=by_tag) for order in orders]
        for receipts in (keyed, chosen):
            assert [receipt.queue.queue_id for receipt in receipts] == [3, 2, 1]


async def test_keys_are_stored_in_the_order_of_their_sends() -> None:
    async with started(brokers=2) as (running, producer):
        sends = (producer.send("t", b"%d" % n, order_key=f"k{n % 9}") for n in range(300))
        await asyncio.gather(*sends)
        homes = defaultdict(set)
        for queue, messages in (await stored(running)).items():
            last: dict[int, int] = {}
            for message in messages:
                number = int(message.body)
                assert last.get(number % 9, -1) < number
                last[number % 9] = number
                homes[number % 9].add(queue)
        assert all(len(queues) == 1 for queues in homes.values())


async def test_a_queue_that_went_away_is_no_reason_to_fail() -> None:
    async with started(brokers=2) as (running, producer):
        await producer.send("t", b"x")
        await put_topic(running, *[1] * len(running.brokers))
        places = [(await producer.send("t", b"x")).queue for _ in range(6)]
        assert {queue.queue_id for queue in places} == {0}
        await put_topic(running, *[4] * len(running.brokers))
        await asyncio.sleep(60)
        assert len(await producer.send_many([Message("t", b"y")] * 100)) == 100
        await put_topic(running, *[2] * len(running.brokers))
        assert len(await producer.send_many([Message("t", b"y")] * 100)) == 100


async def test_batched_sends_are_stored_once_each_with_their_properties() -> None:
    async with started(brokers=2, linger_ms=2) as (running, producer):
        sends = (
            producer.send("t", b"%d" % n, tag=f"t{n % 3}", keys=f"k{n}", properties={"n": str(n)})
            for n in range(1_000)
        )
        receipts = await asyncio.gather(*sends)
        found = await stored(running)
        for number, receipt in enumerate(receipts):
            message = found[receipt.queue][receipt.queue_offset]
            assert message.body == b"%d" % number
            assert message.message_id == receipt.message_id
            assert message.offset_message_id == receipt.offset_message_id
            assert (message.tag, message.key) == (f"t{number % 3}", f"k{number}")
            assert message.properties["n"] == str(number)
        assert sum(map(len, found.values())) == 1_000


@pytest.mark.parametrize("kind", Compression)
async def test_a_compressed_body_is_read_unchanged(kind: Compression) -> None:
    async with started(compression=kind) as (running, producer):
        receipt = await producer.send("t", b"long " * 2_000)
        (message,) = (await stored(running))[receipt.queue]
        assert message.body == b"long " * 2_000
        assert message.size < 1_000


async def test_a_machine_room_uses_its_own_broker_until_that_stops() -> None:
    rooms = {"broker-a": "west", "broker-b": "east"}
    selector = MachineRoom("west", rooms.get, Random(1))
    async with started(brokers=2, selector=selector) as (running, producer):
        near = [(await producer.send("t", b"x")).queue for _ in range(8)]
        assert {queue.broker_name for queue in near} == {"broker-a"}
        assert len(set(near)) == 4
        await running.stop_broker(0)
        far = await producer.send("t", b"x")
        assert far.queue.broker_name == "broker-b"


async def test_a_send_by_order_key_goes_to_no_other_queue_while_its_broker_is_down() -> None:
    async with started(brokers=2, send_timeout_ms=1_000) as (running, producer):
        queue = (await producer.send("t", b"1", order_key="k")).queue
        index = ("broker-a", "broker-b").index(queue.broker_name)
        await running.stop_broker(index)
        with pytest.raises(CallError) as caught:
            await producer.send("t", b"2", order_key="k")
        assert f"queue {queue}" in caught.value.__notes__[0]
        assert "no other queue" in caught.value.__notes__[0]


async def test_a_delay_level_reaches_the_broker() -> None:
    async with started() as (running, producer):
        receipt = await producer.send("t", b"later", delay_level=1)
        assert receipt.ok
        assert not (await stored(running))[receipt.queue]
        await asyncio.sleep(3)
        (message,) = [m for held in (await stored(running)).values() for m in held]
        assert message.body == b"later"


async def test_delayed_messages_are_no_part_of_a_batch() -> None:
    async with started(linger_ms=1) as (running, producer):
        with pytest.raises(UsageError, match="cannot be in a batch"):
            await producer.send_batch([Message("t", b"1"), Message("t", b"2", delay_level=1)])
        messages = [Message("t", b"%d" % n, delay_level=n % 2) for n in range(6)]
        await producer.send_many(messages)
        await asyncio.gather(*(producer.send(message) for message in messages))
        await asyncio.sleep(3)
        bodies = [m.body for held in (await stored(running)).values() for m in held]
        assert sorted(bodies) == sorted([m.body for m in messages] * 2)


async def shares(producer: Producer, count: int) -> Counter[str]:
    """How many of so many sends each broker got."""
    receipts = [await producer.send("t", b"x") for _ in range(count)]
    return Counter(receipt.queue.broker_name for receipt in receipts)


async def test_a_broker_with_four_queues_gets_twice_the_sends_of_one_with_two() -> None:
    async with virtual_cluster(brokers=2) as running:
        await put_topic(running, 4, 2)
        async with producer_of(running) as producer:
            assert await shares(producer, 60) == {"broker-a": 40, "broker-b": 20}


async def test_a_second_broker_serves_after_the_first_has_stopped() -> None:
    async with virtual_cluster(brokers=2) as running:
        await put_topic(running, 4, 2)
        async with producer_of(running) as producer:
            await producer.send("t", b"x")
            await running.stop_broker(0)
            assert await shares(producer, 60) == {"broker-b": 60}


async def test_a_third_that_joins_gets_its_share_within_a_route_refresh() -> None:
    async with virtual_cluster(brokers=2) as running:
        await put_topic(running, 4, 2)
        async with producer_of(running) as producer:
            await producer.send("t", b"x")
            await running.add_broker()
            await put_topic(running, 4)
            await asyncio.sleep(31)
            assert await shares(producer, 100) == {"broker-a": 40, "broker-b": 20, "broker-c": 40}


async def test_a_new_topic_gets_queues_on_every_broker() -> None:
    async with virtual_cluster(brokers=2) as running, producer_of(running) as producer:
        assert await shares(producer, 80) == {"broker-a": 40, "broker-b": 40}
