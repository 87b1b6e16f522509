import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.admin.mirror.mirrored import (
    NAMES,
    bodies,
    messages,
    mirror,
    run_once,
    send,
    two_clusters,
    until_copied,
)

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.mirror.queue_copier import (
    BATCH_BYTES,
    Copy,
    MirrorNames,
    MirrorStopped,
    QueueCopier,
    batches,
    copies_of,
    properties_of,
)
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import CallError, ConnectFailed
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.net.channel import Channel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.mirror import origin_of
from roquet.rules.rate_limit import RateLimit
from roquet.testing.cluster import Cluster
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.records.record import Record

QUEUE = MessageQueue("orders", "broker-a", 0)
ONE_QUEUE = topics.TopicSettings(read_queues=1, write_queues=1)


async def test_bodies_cross_as_they_are_compressed() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        config = ProducerConfig(compress_from=100)
        async with Producer(source.namesrv_addr, config=config) as producer:
            for number in range(6):
                await producer.send(Message("orders", (b"%d" % number) * (1 + 1000 * (number % 2))))
        await run_once(source, target)
        before = await messages(source.namesrv_addr, "orders")
        after = await messages(target.namesrv_addr, "orders")
        for queue, own in before.items():
            assert [m.body for m in after[queue]] == [m.body for m in own]
            assert [m.sys_flag for m in after[queue]] == [m.sys_flag for m in own]


class Unsteady(MirrorEndpoint):
    """An endpoint whose replies to sends are lost now and then."""

    sends = 0

    async def send(self, queue: MessageQueue, call: Send, channel: Channel | None) -> SendReply:
        self.sends += 1
        if self.sends % 3 == 1:
            raise ConnectFailed("the request was lost")
        reply = await super().send(queue, call, channel)
        if self.sends % 3 == 2:
            raise CallError("the reply was lost", definite=False)
        return reply


@asynccontextmanager
async def copier(source: Cluster, target: Cluster) -> AsyncIterator[QueueCopier]:
    async with (
        MirrorEndpoint(source.namesrv_addr, group=NAMES.source_group) as from_,
        Unsteady(target.namesrv_addr, group=NAMES.target_group) as to,
        AdminClient(target.namesrv_addr) as admin,
    ):
        if await admin.route("orders") is None:
            await topics.create(admin, "orders", ONE_QUEUE)
        yield QueueCopier((from_, to), NAMES, (QUEUE, QUEUE), RateLimit(100), SYSTEM_CLOCK)


async def test_a_lost_reply_neither_loses_nor_doubles_a_message() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 40)
        async with copier(source, target) as one:
            await one.resume()
            while (one.state.next_offset or 0) < 40:
                try:
                    await one.step()
                except CallError:
                    await one.resume()
        before = await messages(source.namesrv_addr, "orders")
        after = await messages(target.namesrv_addr, "orders")
        assert [m.body for m in after[QUEUE]] == [m.body for m in before[QUEUE]]
        assert (one.copies.stop, one.state.target_end) == (40, 40)


async def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 5)
        await run_once(source, target)
        async with AdminClient(source.namesrv_addr) as admin:
            await topics.delete(admin, "orders")
            await topics.create(admin, "orders", ONE_QUEUE)
        (queue,) = (await run_once(source, target)).queues
        assert "--from-name" in str(queue.fault)
        await send(source.namesrv_addr, 9, start=50)
        async with copier(source, target) as one:
            with pytest.raises(MirrorStopped, match="another message"):
                await one.resume()
        await run_once(source, target, names=MirrorNames("A2", "B"))
        assert (await bodies(target.namesrv_addr, "orders"))[0][5:] == [
            b"%d" % n for n in range(50, 59)
        ]


async def test_copies_that_a_new_master_lacks_are_copied_again() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 3)
        await run_once(source, target)
        await send(target.namesrv_addr, 4, start=50)  # where copies were that got lost
        await send(source.namesrv_addr, 3, start=3)
        async with copier(source, target) as one:
            one.state.next_offset, one.state.target_end = 5, 5
            await one.commit()
            await one.resume()
            assert one.state.next_offset == 3


async def test_a_target_that_lost_its_copies_while_nothing_was_sent_gets_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask, failures = MirrorEndpoint.max_offset, [ConnectFailed("the source is away")]

    async def max_offset(endpoint: MirrorEndpoint, queue: MessageQueue) -> int:
        if failures and endpoint.group == NAMES.source_group:
            raise failures.pop()
        return await ask(endpoint, queue)

    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 3)
        async with mirror(source.namesrv_addr, target.namesrv_addr) as running:
            task = asyncio.create_task(running.follow())
            await until_copied(target, 3)
            await target.stop_broker(0)
            await target.start_broker(0)  # it has kept everything in memory
            monkeypatch.setattr(MirrorEndpoint, "max_offset", max_offset)
            await send(source.namesrv_addr, 3, start=3)
            await until_copied(target, 6)
            task.cancel()
        assert failures == []
        assert await bodies(target.namesrv_addr, "orders") == {0: [b"%d" % n for n in range(6)]}


async def test_a_topic_that_was_deleted_in_the_target_is_copied_again() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 3)
        await run_once(source, target)
        async with AdminClient(target.namesrv_addr) as admin:
            await topics.delete(admin, "orders")
        await run_once(source, target)
        assert await bodies(target.namesrv_addr, "orders") == {0: [b"0", b"1", b"2"]}


def record(size: int) -> Record:
    return Record("orders", 0, 0, 0, size, b"x", b"", 0, 0, 0, b"", 0, b"", 0, 0, 0)


@given(st.binary(max_size=60) | st.text().map(lambda text: f"A\x01{text}\x02".encode()))
def test_whatever_bytes_properties_are_a_copy_names_its_original(raw: bytes) -> None:
    original = replace(record(100), queue_offset=7, properties=raw, store_host=bytes(8))
    (copy,) = copies_of([original], "A", QUEUE)
    origin = origin_of(properties_of(replace(original, properties=copy.properties)))
    assert origin is not None
    assert origin.is_from("A", QUEUE)
    assert origin.offset == 7
    assert list(copies_of([replace(original, properties=copy.properties)], "B", QUEUE)) == []


def test_requests_hold_what_may_go_together_and_are_no_longer_than_their_limit() -> None:
    small, big = record(100), record(BATCH_BYTES)
    copies = [Copy(small, b"", is_alone=False)] * 3 + [Copy(big, b"", is_alone=False)] * 2
    copies += [Copy(small, b"", is_alone=True)] * 2
    assert [len(batch) for batch in batches(copies)] == [3, 1, 1, 1, 1]
    assert list(batches([])) == []
