import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from tests.admin.conftest import ClusterWithAdmin, cluster_with_admin

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.dashboard.facts.messages import MessageFilter
from roquet.dashboard.facts.tail import MessageTail, TailUpdate
from roquet.model.errors import RoquetError, UsageError
from roquet.model.message import Message
from roquet.testing.clock import in_virtual_time


@asynccontextmanager
async def orders() -> AsyncIterator[tuple[ClusterWithAdmin, PullConsumer, Producer]]:
    """A topic with a queue on each of two brokers, and one message that is there already."""
    async with cluster_with_admin() as it:
        await topics.create(it.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
        await it.settle()
        config = ConsumerConfig(clock=it.clock)
        async with (
            PullConsumer(it.namesrv, group="tails", config=config) as reader,
            Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer,
        ):
            await producer.send("orders", b"old")
            yield it, reader, producer


async def until(updates: AsyncIterator[TailUpdate], shown: int) -> list[TailUpdate]:
    """Updates until so many messages were shown."""
    seen = []
    async for update in updates:
        seen.append(update)
        if update.shown >= shown:
            break
    return seen


@in_virtual_time
async def test_a_tail_shows_what_comes_after_it_began() -> None:
    async with orders() as (it, reader, producer):
        tail = MessageTail(reader, "orders", MessageFilter(), (), clock=it.clock)
        async with aclosing(tail.updates()) as updates:
            first = await anext(updates)
            assert (first.messages, first.seen) == ([], 0)
            await asyncio.sleep(0.1)
            for number in range(4):
                await producer.send("orders", b"%d" % number)
            seen = await until(updates, 4)
            bodies = [message.body for update in seen for message in update.messages]
            assert sorted(bodies) == [b"0", b"1", b"2", b"3"]
            assert seen[-1].jumped == 0


@in_virtual_time
async def test_a_tail_shows_so_many_a_second_and_counts_the_others() -> None:
    async with orders() as (it, reader, producer):
        tail = MessageTail(reader, "orders", MessageFilter(), (), rate=20, clock=it.clock)
        async with aclosing(tail.updates()) as updates:
            await anext(updates)
            await asyncio.sleep(0.1)
            await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(100)))
            begin_ms = it.clock.monotonic_ms()
            shown = 0
            async for update in updates:
                assert len(update.messages) <= 5  # in a quarter of a second
                shown += len(update.messages)
                if update.matched == 100:
                    break
            seconds = (it.clock.monotonic_ms() - begin_ms) / 1000
            assert shown <= 20 * (seconds + 0.25)
            assert update.matched - update.shown >= 80


@pytest.mark.parametrize("wanted", [MessageFilter(tags="new"), MessageFilter(key="k")])
@in_virtual_time
async def test_a_tail_leaves_out_what_does_not_match(wanted: MessageFilter) -> None:
    async with orders() as (it, reader, producer):
        tail = MessageTail(reader, "orders", wanted, (), clock=it.clock)
        async with aclosing(tail.updates()) as updates:
            await anext(updates)
            await asyncio.sleep(0.1)
            await producer.send("orders", b"other", tag="paid")
            await producer.send("orders", b"wanted", tag="new", keys=("k",))
            seen = await until(updates, 1)
            assert [m.body for update in seen for m in update.messages] == [b"wanted"]


@in_virtual_time
async def test_a_tail_far_behind_jumps_to_the_end() -> None:
    async with orders() as (it, reader, producer):
        tail = MessageTail(reader, "orders", MessageFilter(), (), clock=it.clock)
        async with aclosing(tail.updates()) as updates:
            await anext(updates)
            await asyncio.sleep(0.1)
            for _ in range(4):
                await producer.send_batch([Message("orders", b"x")] * 2_000)
            async for update in updates:
                if update.jumped:
                    break
            assert update.seen + update.jumped <= 8_000
            assert update.shown <= 40


@pytest.mark.parametrize(
    ("topic", "wanted", "error"),
    [
        ("order", MessageFilter(), "no broker has a topic"),
        ("orders", MessageFilter(sql="amount >"), "amount"),
        ("orders", MessageFilter(sql="a > 1", tags="x"), "not by both"),
    ],
)
@in_virtual_time
async def test_a_tail_that_cannot_begin_says_why(
    topic: str, wanted: MessageFilter, error: str
) -> None:
    async with orders() as (it, reader, _):
        with pytest.raises(RoquetError, match=error):
            await anext(MessageTail(reader, topic, wanted, (), clock=it.clock).updates())
    with pytest.raises(UsageError, match="may hold only"):
        MessageTail(reader, "<script>", wanted, ())


@in_virtual_time
async def test_a_tail_outlives_a_broker_that_goes_away() -> None:
    async with orders() as (it, reader, producer):
        tail = MessageTail(reader, "orders", MessageFilter(), (), clock=it.clock)
        async with aclosing(tail.updates()) as updates:
            await anext(updates)
            await it.running.stop_broker(0)
            problems = []
            async for update in updates:
                problems += [update.problem] if update.problem else []
                if problems:
                    break
            assert problems[0].startswith("orders@broker-a:0: ")
            await it.clock.sleep(5_000)
            for _ in range(5):
                await producer.send("orders", b"from the other broker")
            assert await until(updates, 1)
