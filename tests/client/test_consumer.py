"""What all consumers share: fetch, next, messages, run."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.received import ReceivedMessage
from roquet.model.errors import UsageError
from roquet.testing.clock import in_virtual_time, this_loop

Fakes = Callable[..., Any]


def consumer_of(virtual: Fakes, cluster: Any, **settings: Any) -> PushConsumer:
    config = virtual(ConsumerConfig, consume_from=ConsumeFrom.FIRST, **settings)
    return PushConsumer(cluster.address, group="g", topic="t", config=config)


def filled(cluster: Any, count: int) -> None:
    cluster.brokers["a"].put("t", 0, *[b"%d" % n for n in range(count)])


@in_virtual_time
async def test_next_is_one_or_none_in_time(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        assert await consumer.next(timeout_ms=3_000) is None
        assert this_loop().clock.monotonic_ms() == 3_000
        filled(cluster, 1)
        message = await consumer.next()
        assert message is not None
        assert message.body == b"0"


@in_virtual_time
async def test_fetch_ends_with_enough_or_with_the_time(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        filled(cluster, 5)
        assert [m.body for m in await consumer.fetch(3)] == [b"0", b"1", b"2"]
        before_ms = this_loop().clock.monotonic_ms()
        assert [m.body for m in await consumer.fetch(3, timeout_ms=2_000)] == [b"3", b"4"]
        assert this_loop().clock.monotonic_ms() - before_ms == 2_000


@in_virtual_time
async def test_messages_go_on_until_the_consumer_is_closed(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        filled(cluster, 3)
        seen = []
        async for message in consumer.messages():
            seen.append(message.body)
            await message.ack()
            if len(seen) == 3:
                asyncio.get_running_loop().call_later(60, asyncio.ensure_future, consumer.close())
        assert seen == [b"0", b"1", b"2"]
        assert cluster.brokers["a"].committed["g", "t", 0] == 3


async def attempt(consumer: PushConsumer, error: Exception | None) -> int:
    """How often the next message was tried before; fails on it when told to."""
    message = await consumer.next()
    assert message is not None
    async with message:
        if error is not None:
            raise error
    return message.tries


@in_virtual_time
async def test_a_block_that_fails_has_its_message_again(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        filled(cluster, 1)
        for _ in range(2):
            with pytest.raises(ValueError, match="not yet"):
                await attempt(consumer, ValueError("not yet"))
        assert await attempt(consumer, None) == 2
        assert await consumer.next(60_000) is None


@in_virtual_time
async def test_run_hands_over_everything_and_acknowledges_it(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster:
        async with consumer_of(virtual, cluster) as consumer:
            filled(cluster, 100)
            seen = []

            async def handler(message: ReceivedMessage) -> None:
                seen.append(int(message.body))

            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(10)
        await running
        assert sorted(seen) == list(range(100))
        assert cluster.brokers["a"].committed["g", "t", 0] == 100


@in_virtual_time
async def test_a_handler_that_raises_gets_its_message_again(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        filled(cluster, 3)
        seen = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append((int(message.body), this_loop().clock.monotonic_ms()))
            if message.body == b"1" and message.tries < 2:
                raise ValueError("not yet")

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(0.5)
        assert consumer._readers[consumer.assignment()[0]].window.committable == 1
        await asyncio.sleep(10)
        assert seen == [(0, 0), (1, 0), (2, 0), (1, 1_000), (1, 3_000)]
        await consumer.close()
        await running
        assert cluster.brokers["a"].committed["g", "t", 0] == 3


@in_virtual_time
async def test_a_close_lets_handlers_end_and_saves_what_they_did(
    fakes: Fakes, virtual: Fakes
) -> None:
    async with fakes(t={"a": 1}) as cluster:
        ended = []

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(5)
            ended.append(message.body)

        async with consumer_of(virtual, cluster, concurrency=2) as consumer:
            filled(cluster, 10)
            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(1)
        await running
        assert sorted(ended) == [b"0", b"1"]
        assert cluster.brokers["a"].committed["g", "t", 0] == 2
        assert this_loop().clock.monotonic_ms() == 5_000


@in_virtual_time
async def test_a_handler_that_hangs_does_not_hold_a_close_up_for_ever(
    fakes: Fakes, virtual: Fakes, caplog: pytest.LogCaptureFixture
) -> None:
    async with fakes(t={"a": 1}) as cluster:

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(1e6)

        async with consumer_of(virtual, cluster, close_timeout_ms=7_000) as consumer:
            filled(cluster, 1)
            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(1)
        assert this_loop().clock.monotonic_ms() == 8_000
        assert "handlers still at work after 7000 ms" in caplog.text
        assert cluster.brokers["a"].committed["g", "t", 0] == 0
        await asyncio.wait([running])


@in_virtual_time
async def test_cancelling_run_keeps_the_consumer(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster, consumer_of(virtual, cluster) as consumer:
        filled(cluster, 1)

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(1e6)

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        message = await consumer.next(1_000)
        assert message is not None
        assert message.body == b"0"


@in_virtual_time
async def test_progress_is_saved_each_5_s_and_only_when_it_changed(
    fakes: Fakes, virtual: Fakes
) -> None:
    async with (
        fakes(t={"a": 1}) as cluster,
        consumer_of(virtual, cluster, suspend_ms=1_000_000, pull_timeout_ms=2_000_000) as consumer,
    ):
        broker = cluster.brokers["a"]
        filled(cluster, 1)
        message = await consumer.next()
        assert message is not None
        await asyncio.sleep(6)
        await message.ack()
        assert [call.commit_offset for call in broker.commits] == [0]
        await asyncio.sleep(60)
        assert [call.commit_offset for call in broker.commits] == [0, 1]


async def test_sigterm_ends_run_in_good_order() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an earlier test's Spark session has its own
    async with PushConsumer("127.0.0.1:1", group="g", topic="t") as consumer:

        async def handler(message: ReceivedMessage) -> None:
            """Handles anything."""

        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await consumer.run(handler)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@in_virtual_time
async def test_reading_needs_an_open_consumer(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster:
        consumer = consumer_of(virtual, cluster)
        with pytest.raises(UsageError, match="not started"):
            await consumer.next()
        with pytest.raises(UsageError, match="not started"):
            await consumer.run(print)


def test_the_systems_groups_are_not_for_users() -> None:
    with pytest.raises(UsageError, match="the system's own"):
        PushConsumer("127.0.0.1:1", group="CID_RMQ_SYS_TRANS")
    with pytest.raises(UsageError, match="group name"):
        PushConsumer("127.0.0.1:1", group="")


@in_virtual_time
async def test_a_handler_may_stop_it(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster:
        seen = []
        async with consumer_of(virtual, cluster) as consumer:
            filled(cluster, 10)

            async def handler(message: ReceivedMessage) -> None:
                seen.append(message.body)
                if len(seen) == 3:
                    consumer.stop()

            await consumer.run(handler)
            assert await consumer.next() is None
        assert len(seen) == 3
        assert cluster.brokers["a"].committed["g", "t", 0] == 3
