"""Methods of all consumers: fetch, next, messages, run."""

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tests.client.conftest import (
    Created,
    config_of,
    consumer_of,
    consuming,
    fake_cluster,
    filled,
    next_of,
)

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.pop import PopConsumer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import ReceivedMessage
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.model.errors import CallRefused, ConfigError, UsageError
from roquet.model.queue import MessageQueue
from roquet.testing.clock import VirtualLoop, this_loop


async def test_next_is_one_or_none_in_time() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        assert await consumer.next(timeout_ms=3_000) is None
        assert this_loop().clock.monotonic_ms() == 3_000
        filled(cluster, 1)
        message = await next_of(consumer)
        assert message.body == b"0"


async def test_fetch_ends_with_enough_or_with_the_time() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 5)
        assert [m.body for m in await consumer.fetch(3)] == [b"0", b"1", b"2"]
        before_ms = this_loop().clock.monotonic_ms()
        assert [m.body for m in await consumer.fetch(3, timeout_ms=2_000)] == [b"3", b"4"]
        assert this_loop().clock.monotonic_ms() - before_ms == 2_000


async def test_a_fetch_that_is_cancelled_loses_nothing() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 3)
        fetching = asyncio.create_task(consumer.fetch(5, timeout_ms=60_000))
        await asyncio.sleep(1)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert [m.body for m in await consumer.fetch(3)] == [b"0", b"1", b"2"]


async def test_a_cancelled_fetch_drops_messages_of_revoked_queues(created: Created) -> None:
    assigned = created(AssignedQueues)
    inboxes = created(Inbox)
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 3)
        fetching = asyncio.create_task(consumer.fetch(5, timeout_ms=60_000))
        await asyncio.sleep(1)
        reader = assigned[0].reader(consumer.assignment()[0])
        reader.release()
        handing_back = asyncio.create_task(reader.wait_for_handlers(30_000))
        await asyncio.sleep(1)
        fetching.cancel()
        await asyncio.wait([fetching, handing_back])
        assert this_loop().clock.monotonic_ms() == 2_000
        assert inboxes[0].pop() is None


async def test_a_consumer_is_iterated_itself() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 3)
        seen = []
        async for message in consumer:
            await message.ack()
            seen.append(message.body)
            if len(seen) == 3:
                consumer.stop()
        assert seen == [b"0", b"1", b"2"]


async def test_batches_are_handled_until_a_stop() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 5)
        seen = []

        async def handler(messages: Sequence[ReceivedMessage]) -> None:
            seen.append([message.body for message in messages])
            if len(seen) == 2:
                consumer.stop()

        await consumer.run_batch(handler, size=3, wait_ms=1_000)
        assert seen == [[b"0", b"1", b"2"], [b"3", b"4"]]
    assert cluster.a.committed["g", "t", 0] == 5


async def test_what_is_handler_contexts_gets_what_they_get() -> None:
    seen: list[object] = []

    @contextmanager
    def counted(taken: ReceivedMessage | Sequence[ReceivedMessage]) -> Iterator[None]:
        seen.append(taken.body if isinstance(taken, ReceivedMessage) else len(taken))
        yield

    async with consuming({"a": 1}, around=[counted]) as (cluster, consumer):
        filled(cluster, 1)

        async def handler(_message: ReceivedMessage) -> None:
            consumer.stop()

        await consumer.run(handler)
    async with consuming({"a": 1}, around=[counted]) as (cluster, consumer):
        filled(cluster, 2)

        async def batch_handler(_messages: Sequence[ReceivedMessage]) -> None:
            consumer.stop()

        await consumer.run_batch(batch_handler)
    assert seen == [b"0", 2]


@pytest.mark.parametrize("around", ["text", [3], len, None, iter([len])])
def test_only_functions_are_handler_contexts(around: Any) -> None:
    with pytest.raises(ConfigError, match="around: several functions, as"):
        ConsumerConfig(around=around)


@pytest.mark.parametrize(
    ("settings", "values", "match"),
    [
        ({}, {"size": 0}, "size: 0 is less than 1"),
        ({}, {"wait_ms": -1}, "wait_ms: -1 is less than 0"),
        ({"ordered": True}, {}, "one message at a time: use `run`"),
    ],
)
async def test_a_batch_of_nothing_or_of_ordered_messages_is_refused(
    settings: dict[str, Any], values: dict[str, int], match: str
) -> None:
    async with consuming({"a": 1}, **settings) as (_cluster, consumer):
        with pytest.raises(UsageError, match=match):
            await consumer.run_batch(lambda _messages: None, **values)


async def test_messages_go_on_until_the_consumer_is_closed() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 3)
        seen = []
        async for message in consumer.messages():
            seen.append(message.body)
            await message.ack()
            if len(seen) == 3:
                asyncio.get_running_loop().call_later(60, asyncio.ensure_future, consumer.close())
        assert seen == [b"0", b"1", b"2"]
        assert cluster.a.committed["g", "t", 0] == 3


async def attempt(consumer: PushConsumer, error: Exception | None) -> int:
    """The number of earlier tries of the next message; then fail it if asked to."""
    message = await next_of(consumer)
    async with message:
        if error is not None:
            raise error
    return message.tries


async def test_a_block_that_fails_sends_its_message_back() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 2)
        with pytest.raises(ValueError, match="not yet"):
            await attempt(consumer, ValueError("not yet"))
        assert await attempt(consumer, None) == 0
        assert await consumer.next(60_000) is None
        assert [call.offset for call in cluster.a.sent_back] == [0]


async def test_run_hands_over_everything_and_acknowledges_it() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        async with consumer_of(cluster) as consumer:
            filled(cluster, 100)
            seen = []

            async def handler(message: ReceivedMessage) -> None:
                seen.append(int(message.body))

            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(10)
        await running
        assert sorted(seen) == list(range(100))
        assert cluster.a.committed["g", "t", 0] == 100


async def test_a_failed_message_goes_back_to_its_broker() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 3)
        seen = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append(int(message.body))
            if message.body == b"1":
                raise ValueError("not yet")

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(10)
        assert seen == [0, 1, 2]
        (back,) = cluster.a.sent_back
        assert (back.group, back.delay_level, back.origin_topic) == ("g", 0, "t")
        assert (back.offset, back.broker_name) == (100, "a")
        await consumer.close()
        await running
        assert cluster.a.committed["g", "t", 0] == 3


async def test_a_message_that_is_not_sent_back_is_retried_and_holds_progress(
    created: Created,
) -> None:
    assigned = created(AssignedQueues)
    async with consuming({"a": 1}) as (cluster, consumer):
        cluster.a.back_faults = [CallRefused(1, "no")] * 2
        filled(cluster, 3)
        seen = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append((int(message.body), this_loop().clock.monotonic_ms()))
            if message.body == b"1":
                raise ValueError("not yet")

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(7)
        reader = assigned[0].reader(consumer.assignment()[0])
        assert reader.window.committable == 1
        await asyncio.sleep(60)
        times = [ms for body, ms in seen if body == 1]
        assert [b - a for a, b in itertools.pairwise(times)] == [8_000, 8_000]  # 3 s of tries
        assert reader.window.committable == 3
        await consumer.close()
        await running


async def test_a_close_waits_for_failed_messages_to_leave() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 3)

        async def handler(message: ReceivedMessage) -> None:
            if message.body == b"2":
                consumer.stop()
            raise ValueError("never")

        await consumer.run(handler)
        await consumer.close()
        assert len(cluster.a.sent_back) == 3
        assert cluster.a.committed["g", "t", 0] == 3


async def test_a_nack_in_a_handler_that_returns_is_a_nack() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 2)

        async def handler(message: ReceivedMessage) -> None:
            await (message.nack(60_000) if message.body == b"0" else message.dead_letter())

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(1)
        levels = [call.delay_level for call in cluster.a.sent_back]
        assert levels == [5, -1]
        await consumer.close()
        await running


async def test_a_close_lets_handlers_end_and_saves_what_they_did() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        ended = []

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(5)
            ended.append(message.body)

        async with consumer_of(cluster, concurrency=2) as consumer:
            filled(cluster, 10)
            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(1)
        await running
        assert sorted(ended) == [b"0", b"1"]
        assert cluster.a.committed["g", "t", 0] == 2
        assert this_loop().clock.monotonic_ms() == 5_000


async def test_a_hanging_handler_delays_a_close_up_to_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fake_cluster(t={"a": 1}) as cluster:

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(1e6)

        async with consumer_of(cluster, close_timeout_ms=7_000) as consumer:
            filled(cluster, 1)
            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(1)
        assert this_loop().clock.monotonic_ms() == 8_000
        assert "handlers still at work after 7000 ms" in caplog.text
        assert cluster.a.committed["g", "t", 0] == 0
        await asyncio.wait([running])


async def test_cancelling_run_keeps_the_consumer() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 1)

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(1e6)

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        message = await next_of(consumer, 1_000)
        assert message.body == b"0"


async def test_progress_is_saved_each_5_s_and_only_when_it_changed() -> None:
    async with consuming({"a": 1}, suspend_ms=1_000_000, pull_timeout_ms=2_000_000) as (
        cluster,
        consumer,
    ):
        filled(cluster, 1)
        message = await next_of(consumer)
        await asyncio.sleep(6)
        await message.ack()
        assert [call.commit_offset for call in cluster.a.commits] == [0]
        await asyncio.sleep(60)
        assert [call.commit_offset for call in cluster.a.commits] == [0, 1]


@pytest.mark.virtual_time(False)
async def test_sigterm_ends_run_in_good_order() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an earlier test's Spark session has its own
    async with PushConsumer("127.0.0.1:1", group="g", topic="t") as consumer:

        async def handler(message: ReceivedMessage) -> None:
            """Handles anything."""

        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await consumer.run(handler)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.virtual_time(False)
async def test_sigterm_ends_all_consumers_of_a_loop() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    async def handler(message: ReceivedMessage) -> None:
        """Handles anything."""

    async with (
        PushConsumer("127.0.0.1:1", group="g", topic="t") as first,
        PushConsumer("127.0.0.1:1", group="h", topic="t") as second,
        PushConsumer("127.0.0.1:1", group="i", topic="t") as third,
        asyncio.timeout(10),
    ):
        running = [asyncio.create_task(one.run(handler)) for one in (first, second, third)]
        await asyncio.sleep(0.05)
        first.stop()
        await running[0]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.gather(*running)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.virtual_time(False)
async def test_the_programs_own_sigterm_handler_stays() -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(True))
    try:
        async with PushConsumer("127.0.0.1:1", group="g", topic="t") as consumer:
            running = asyncio.create_task(consumer.run(print))
            await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
            assert heard == [True]
            assert not running.done()
        await running
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_reading_needs_an_open_consumer() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        consumer = consumer_of(cluster)
        with pytest.raises(UsageError, match="not started"):
            await consumer.next()
        with pytest.raises(UsageError, match="not started"):
            await consumer.run(print)


def test_system_groups_cannot_be_joined() -> None:
    with pytest.raises(UsageError, match="the system's own"):
        PushConsumer("127.0.0.1:1", group="CID_RMQ_SYS_TRANS")
    with pytest.raises(UsageError, match="group name"):
        PushConsumer("127.0.0.1:1", group="")
    for group in ("DEFAULT_CONSUMER", "%RETRY%g", "%DLQ%g", "roquet-dlq", "CLIENT_INNER_PRODUCER"):
        for kind in (PushConsumer, PullConsumer, PopConsumer):
            with pytest.raises(UsageError, match=f"group {group} is the system's own"):
                kind("127.0.0.1:1", group=group)


async def test_two_members_of_one_name_in_one_process_are_an_error() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        async with consumer_of(cluster, instance="one") as first:
            with pytest.raises(UsageError, match="an `instance` of its own"):
                await consumer_of(cluster, instance="one").start()
            async with consumer_of(cluster, instance="two") as second:
                await asyncio.sleep(1)
                assert len(first.assignment()) == len(second.assignment()) == 1
        async with consumer_of(cluster, instance="one"):
            """The name is free again."""


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed() -> None:
    async with consuming({"a": 2}) as (cluster, consumer):
        filled(cluster, 3)
        await asyncio.sleep(1)
        queue, other = consumer.assignment()
        consumer.pause(queue)
        consumer.pause(queue)
        assert consumer.paused() == [queue]
        cluster.a.put("t", 0, b"later")
        cluster.a.put("t", 1, b"other")
        assert [m.body for m in await consumer.fetch(5, 200_000)] == [b"other"]
        consumer.resume()
        assert [m.body for m in await consumer.fetch(4, 1_000)] == [b"0", b"1", b"2", b"later"]
        assert consumer.assignment() == [queue, other]
        with pytest.raises(UsageError, match="not assigned"):
            consumer.pause(MessageQueue("t", "zz", 0))


async def test_a_seek_goes_anywhere() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 9)
        await asyncio.sleep(1)
        (queue,) = consumer.assignment()
        for seek, expected in (
            (consumer.seek_to_begin(queue), b"0"),
            (consumer.seek_to_time(queue, 1_004), b"4"),
        ):
            await seek
            (message,) = await consumer.fetch(1)
            assert message.body == expected
        await consumer.seek_to_end(queue)
        assert await consumer.next(20_000) is None
        cluster.a.put("t", 0, b"new")
        assert [m.body for m in await consumer.fetch(1)] == [b"new"]
        with pytest.raises(UsageError, match="offset: -1 is less than 0"):
            consumer.seek(queue, -1)
        consumer.unsubscribe("t")
        with pytest.raises(UsageError, match="topic t is not subscribed any more"):
            consumer.seek(queue, 0)
        with pytest.raises(UsageError, match=r"not subscribed any more|not assigned"):
            await consumer.seek_to_begin(queue)
        await asyncio.sleep(1)
        with pytest.raises(UsageError, match="not assigned"):
            consumer.seek(queue, 0)


async def test_the_lag_counts_unhandled_messages() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 9)
        first, _ = await consumer.fetch(2)
        await first.ack()
        (queue,) = consumer.assignment()
        assert await consumer.lag() == {queue: 8}


async def test_a_handler_may_stop_it() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        seen = []
        async with consumer_of(cluster) as consumer:
            filled(cluster, 10)

            async def handler(message: ReceivedMessage) -> None:
                seen.append(message.body)
                if len(seen) == 3:
                    consumer.stop()

            await consumer.run(handler)
            assert await consumer.next() is None
        assert len(seen) == 3
        assert cluster.a.committed["g", "t", 0] == 3


async def test_a_consumer_says_that_others_cancelled_it(caplog: pytest.LogCaptureFixture) -> None:
    async with consuming({"a": 1}) as (_cluster, consumer):
        await asyncio.sleep(1)
        ours = {task for task in asyncio.all_tasks() if "g" in task.get_name().split()}
        waiting = asyncio.create_task(consumer.next())
        await asyncio.sleep(1)
        for task in ours:
            task.cancel()
        with pytest.raises(UsageError, match=r"of g\) was cancelled by other code"):
            await waiting
        with pytest.raises(UsageError, match="make a new one"):
            await consumer.fetch(1)
        await asyncio.sleep(0)
        assert not consumer.is_open
    assert caplog.text.count("was cancelled by other code") == 1


def test_a_consumer_that_nobody_closed_says_how_to(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> PushConsumer:
        async with fake_cluster(t={"a": 1}) as cluster:
            consumer = consumer_of(cluster)
            await consumer.start()
            await asyncio.sleep(1)
            return consumer

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        consumer, loop = runner.run(main()), runner.get_loop()
        for task in (left := asyncio.all_tasks(loop)):  # as asyncio.run does at its end
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        runner.run(consumer.close())
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert line == "group g: asyncio.run ended before close(): use `async with`"


async def test_a_close_is_no_cancellation_by_others(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster):
        await asyncio.sleep(1)
    assert "cancelled" not in caplog.text


async def test_reads_without_a_subscription_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        filled(cluster, 1)
        config = config_of(ConsumerConfig, consume_from=ConsumeFrom.FIRST)
        async with PushConsumer(cluster.address, group="g", config=config) as consumer:
            assert not caplog.text, "it may subscribe later"
            for _ in range(2):
                assert await consumer.next(100) is None
            consumer.subscribe("t")
            assert len(await consumer.fetch(1)) == 1
    assert caplog.text.count("group g: no topic is subscribed, so no message comes") == 1
