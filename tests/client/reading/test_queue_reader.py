"""One queue is read within the limits of flow control."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster, reader_context, session_of

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import ReceivedMessage, release, retry_later, settle
from roquet.client.reading.message_batch import BatchInbox
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.reading.queue_reader import QueueReader
from roquet.model.errors import CallRefused, RecordError
from roquet.model.queue import MessageQueue
from roquet.rules.consumption.pull import ConsumeWindow
from roquet.testing.clock import this_loop
from roquet.wire.calls.pull import PullReply
from roquet.wire.records.record import encode_properties

QUEUE = MessageQueue("t", "a", 0)


class ReaderUnderTest:
    """A reader with its inbox."""

    def __init__(
        self, reader: QueueReader, inbox: Inbox[ReceivedMessage], session: Session
    ) -> None:
        self.reader = reader
        self.inbox = inbox
        self.session = session

    async def next(self) -> ReceivedMessage:
        async with asyncio.timeout(100):
            message = await self.inbox.take()
        assert message is not None
        return message


@asynccontextmanager
async def reading(
    cluster: FakeCluster, offset: int = 0, tags: str = "*", **settings: Any
) -> AsyncIterator[ReaderUnderTest]:
    config: ConsumerConfig = config_of(ConsumerConfig, **settings)
    inbox: Inbox[ReceivedMessage] = Inbox()
    message_filter = SubscriptionFilter.by_tags("t", tags, 1)
    async with session_of(cluster.address, config, "t") as session:
        context = reader_context(session, config, inbox, saves_progress=True)
        reader = QueueReader(QUEUE, offset, message_filter, context)
        yield ReaderUnderTest(reader, inbox, session)


async def test_messages_arrive_as_soon_as_they_are_stored() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        await asyncio.sleep(5)
        cluster.a.put("t", 0, b"x")
        message = await r.next()
        assert (message.body, message.queue_offset) == (b"x", 0)
        assert this_loop().clock.monotonic_ms() == 5_000


async def test_an_idle_queue_is_asked_for_each_15_s() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster):
        await asyncio.sleep(61)
        assert len(cluster.a.pulls) == 5


async def test_progress_is_the_lowest_in_flight() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x", b"y", b"z")
        first, second, _ = [await r.next() for _ in range(3)]
        await second.ack()
        assert r.reader.window.committable == 0
        await first.ack()
        assert r.reader.window.committable == 2


async def test_each_pull_tells_the_progress_on_the_way() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x")
        await (await r.next()).ack()
        await asyncio.sleep(20)
        assert cluster.a.committed["g", "t", 0] == 1
        assert r.reader.saved is None  # the broker still holds that pull
        await asyncio.sleep(20)
        assert r.reader.saved == 1


async def test_no_more_than_a_thousand_are_in_flight() -> None:
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        reading(cluster, in_flight_max=10, pull_count=4) as r,
    ):
        cluster.a.put("t", 0, *[b"%d" % n for n in range(30)])
        await asyncio.sleep(60)
        assert len(r.inbox) == 10
        await (await r.next()).ack()
        await asyncio.sleep(0.1)
        assert r.reader.window.count == 10
        assert r.reader.window.next_offset == 11
        bodies = [(await r.next()).body]
        for _ in range(28):
            message = await r.next()
            bodies.append(message.body)
            await message.ack()
        assert bodies == [b"%d" % n for n in range(1, 30)]


async def test_no_more_than_a_hundred_mebibytes_are_in_flight() -> None:
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        reading(cluster, in_flight_bytes_max=250, pull_count=1) as r,
    ):
        cluster.a.put("t", 0, *[b"x" * 10] * 9)
        await asyncio.sleep(60)
        assert len(r.inbox) == 3


async def test_tags_with_the_same_hash_are_told_apart() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster, tags="Aa") as r:
        for tag in ("BB", "Aa", "BB"):  # "Aa" and "BB" have one hash
            cluster.a.put("t", 0, tag.encode(), properties=encode_properties({"TAGS": tag}))
        message = await r.next()
        assert (message.tag, len(r.inbox)) == ("Aa", 0)
        assert r.reader.window.committable == 1
        await message.ack()
        assert r.reader.window.committable == 3


async def test_an_offset_that_is_gone_is_corrected(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.begins["t", 0] = 100
        cluster.a.put("t", 0, b"x")
        async with reading(cluster, offset=3) as r:
            assert (await r.next()).queue_offset == 100
            assert "t@a:0 does not hold offset 3" in caplog.text
            assert "going on at 100" in caplog.text


async def test_a_broker_that_comes_back_is_read_on(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x")
        await (await r.next()).ack()
        port = cluster.a.server.port
        await cluster.a.server.stop(0)
        await asyncio.sleep(30)
        cluster.a.server = type(cluster.a.server)(
            cluster.a.router, host="127.0.0.1", port=port, clock=this_loop().clock
        )
        await cluster.a.server.start()
        cluster.a.put("t", 0, b"y")
        assert (await r.next()).body == b"y"
        assert caplog.text.count("pull of t@a:0") == 1


async def test_a_refused_pull_is_made_again_after_a_second() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.pull_faults = [CallRefused(2, "busy")] * 3
        async with reading(cluster) as r:
            cluster.a.put("t", 0, b"x")
            assert (await r.next()).body == b"x"
            assert this_loop().clock.monotonic_ms() == 3_000


async def test_a_broker_that_holds_no_pull_is_not_flooded() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.holds_pulls = False
        async with reading(cluster):
            await asyncio.sleep(1)
            assert len(cluster.a.pulls) <= 51


async def test_a_failed_message_comes_again_after_a_growing_pause() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x")
        times = []
        for _ in range(4):
            message = await r.next()
            times.append(this_loop().clock.monotonic_ms())
            await message.nack()
        assert times == [0, 1_000, 3_000, 7_000]
        assert message.tries == 3
        assert r.reader.window.committable == 0


async def test_a_released_queue_gives_nothing_more() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x", b"y")
        message = await r.next()
        await message.nack()
        r.reader.release()
        assert r.inbox.pop() is None
        await asyncio.sleep(60)
        assert r.inbox.pop() is None
        assert not message.is_held
        assert len(cluster.a.pulls) == 2


async def test_a_scan_without_a_match_goes_on_at_once() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.pull_answers = [
            PullReply(code=20, next_begin_offset=n * 100, min_offset=0, max_offset=300)
            for n in (1, 2, 3)
        ]
        cluster.a.begins["t", 0] = 300
        async with reading(cluster) as r:
            cluster.a.put("t", 0, b"x")
            assert (await r.next()).queue_offset == 300
            assert this_loop().clock.monotonic_ms() == 0


async def test_a_fault_of_our_own_does_not_end_reading(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        take, faults = r.reader.window.take, [KeyError("ours")]

        def faulty(found: Any, next_offset: int) -> None:
            if faults:
                raise faults.pop()
            take(found, next_offset)

        r.reader.window = FaultyWindow(faulty)
        cluster.a.put("t", 0, b"x")
        assert (await r.next()).body == b"x"
        assert "KeyError: 'ours'" in caplog.text


class FaultyWindow(ConsumeWindow):
    """A window whose `take` a test replaces."""

    def __init__(self, take: Any) -> None:
        super().__init__(0)
        self.fault = take

    def take(self, found: Any, next_offset: int) -> None:
        self.fault(found, next_offset)
        super().take([], next_offset)


async def test_messages_read_before_are_not_handed_out_twice() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.put("t", 0, b"x", b"y", b"z")
        whole = b"".join(cluster.a.queues["t", 0])
        cluster.a.pull_answers = [
            PullReply(body=whole, next_begin_offset=3, min_offset=0, max_offset=3)
        ]
        async with reading(cluster, offset=2) as r:
            assert (await r.next()).body == b"z"
            assert len(r.inbox) == 0


async def test_messages_in_flight_have_a_limited_span() -> None:
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        reading(cluster, in_flight_span_max=5, pull_count=1) as r,
    ):
        cluster.a.put("t", 0, *[b"%d" % n for n in range(30)])
        first = await r.next()
        for _ in range(6):
            message = await r.next()
        await asyncio.sleep(5)
        assert (message.queue_offset, len(r.inbox)) == (6, 0)
        await first.ack()
        assert (await r.next()).queue_offset == 7


async def test_a_paused_queue_is_not_pulled() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x", b"y")
        await (await r.next()).nack(100)
        await asyncio.sleep(0.01)
        r.reader.pause()
        pulls = len(cluster.a.pulls)
        await asyncio.sleep(200)
        assert (len(cluster.a.pulls), len(r.inbox)) == (pulls, 0)
        assert not r.reader.is_silent(this_loop().clock.monotonic_ms(), 120_000)
        r.reader.change(SubscriptionFilter.by_tags("t", "*", 2))
        r.reader.resume()
        assert [(await r.next()).body for _ in range(2)] == [b"x", b"y"]


async def test_a_released_message_comes_again_at_once_without_a_try() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x")
        released, began_ms = await r.next(), this_loop().clock.monotonic_ms()
        release(released)
        again = await r.next()
        assert (again.body, again.tries, released.has_failed) == (b"x", 0, None)
        assert this_loop().clock.monotonic_ms() == began_ms + 1
        await again.nack(5)
        assert (await r.next()).tries == 1


async def test_a_message_that_fails_after_the_release_is_left_to_the_next_owner() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        cluster.a.put("t", 0, b"x")
        message = await r.next()
        r.reader.release()
        await message.nack()
        await asyncio.sleep(10)
        assert r.reader.window.committable == 0
        assert not r.reader.settling


async def test_a_release_waits_only_for_running_handlers() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        for number in range(3):
            cluster.a.put("t", 0, b"%d" % number)
        message = await r.next()
        r.reader.release()
        leaving = asyncio.create_task(r.reader.wait_for_handlers(800))
        await asyncio.sleep(0.3)
        assert not leaving.done()
        settle(message)
        await leaving
        assert this_loop().clock.monotonic_ms() == 300
        assert r.reader.window.committable == 1


async def test_a_batch_that_waits_for_more_messages_delays_no_release() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        batches = BatchInbox(r.inbox, 3, 700)
        taking = asyncio.create_task(batches.take())
        cluster.a.put("t", 0, b"x", b"y")
        await asyncio.sleep(0.1)
        r.reader.release()
        await r.reader.wait_for_handlers(800)
        assert this_loop().clock.monotonic_ms() == 100
        await asyncio.sleep(5)
        assert not taking.done(), "nothing of it is left to handle"
        r.inbox.close()
        assert await taking is None


async def test_a_batch_that_waits_for_more_messages_loses_those_of_a_paused_queue() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        batches = BatchInbox(r.inbox, 3, 700)
        taking = asyncio.create_task(batches.take())
        cluster.a.put("t", 0, b"x", b"y")
        await asyncio.sleep(0.1)
        r.reader.pause()
        await asyncio.sleep(5)
        assert not taking.done()
        r.reader.resume()
        batch = await taking
        assert batch is not None
        assert [message.body for message in batch.messages] == [b"x", b"y"]
        assert this_loop().clock.monotonic_ms() == 5_800, "its time begins with its first message"


async def test_a_failing_or_slow_handler_delays_no_release() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        for number in range(2):
            cluster.a.put("t", 0, b"%d" % number)
        failing, _slow = await r.next(), await r.next()
        r.reader.release()
        leaving = asyncio.create_task(r.reader.wait_for_handlers(800))
        await asyncio.sleep(0.1)
        retry_later(failing)
        await leaving
        assert this_loop().clock.monotonic_ms() == 800
        assert r.reader.window.committable == 0


async def test_a_body_that_cannot_be_restored_is_the_fault_of_its_message_alone() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster) as r:
        for body, sys_flag in ((b"x", 0), (b"not zlib", 1), (b"z", 0)):
            cluster.a.store("t", 0, body, b"", sys_flag)
        first, damaged, last = [await r.next() for _ in range(3)]
        assert (first.body, last.body) == (b"x", b"z")
        with pytest.raises(RecordError, match="not zlib"):
            assert damaged.body
        assert damaged.stored_body == (b"not zlib", 1)


async def test_a_tag_that_is_not_utf_8_is_passed_over_unless_it_is_wanted() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, reading(cluster, tags="b") as r:
        for tag in (b"a", b"\xff", b"b"):
            cluster.a.put("t", 0, tag, properties=b"TAGS\x01%s\x02" % tag)
        message = await r.next()
        assert (message.tag, len(r.inbox)) == ("b", 0)
        await message.ack()
        assert r.reader.window.committable == 3
