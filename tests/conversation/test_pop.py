"""Pop: members share messages one by one; nothing is lost when a member or the broker dies."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.conftest import (
    config_of,
    next_of,
    producer_of,
    remote_cluster,
    send,
    started,
    virtual_cluster,
)

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client import ConsumerConfig, Message, PopConsumer, PoppedMessage, ReceivedMessage
from roquet.model import names
from roquet.model.errors import CallRefused
from roquet.model.topic import TopicConfig
from roquet.net.channel import Channel
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import AppendResult, Draft
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.calls.pop import Ack, ChangeInvisible, Pop, PopReply
from roquet.wire.calls.send import Send
from roquet.wire.receipt_handle import ReceiptHandle, parse_offsets, parse_starts
from roquet.wire.records import record
from simulation.hosts import Hosts

Snapshot = tuple[MemoryFiles, set[bytes], set[bytes]]
"""The files at a moment, and the bodies acknowledged until then: begun, and with a reply."""


def consumer(
    running: Cluster, *, group: str = "g", topic: str = "t", **settings: Any
) -> PopConsumer:
    config = config_of(ConsumerConfig, **settings)
    return PopConsumer(running.namesrv_addr, group=group, topic=topic, config=config)


async def test_every_message_is_popped_once_and_nothing_stays_in_flight() -> None:
    async with virtual_cluster(brokers=2) as running:
        await send(running, *[b"%d" % n for n in range(300)])
        async with consumer(running) as taker:
            seen: Counter[bytes] = Counter()
            for _ in range(300):
                message = await next_of(taker, 60_000)
                seen[message.body] += 1
                await message.ack()
            assert await taker.next(100_000) is None
        assert len(seen) == 300
        assert max(seen.values()) == 1
        assert [len(b.broker.delivery.revive.in_flight) for b in running.brokers] == [0, 0]


async def test_a_slow_member_of_four_gets_few_messages_and_no_other_idles() -> None:
    loop = this_loop()
    async with virtual_cluster() as running:
        await send(running, *[b"%d" % n for n in range(6_000)])
        takers = [consumer(running, concurrency=1) for _ in range(4)]
        done: list[list[float]] = [[], [], [], []]
        all_done = asyncio.Event()

        async def work(index: int, pause_s: float) -> None:
            async def handle(message: ReceivedMessage) -> None:
                await asyncio.sleep(pause_s)
                done[index].append(loop.time())
                if sum(map(len, done)) == 6_000:
                    all_done.set()

            await takers[index].run(handle)

        for taker in takers:
            await taker.start()
        tasks = [asyncio.create_task(work(n, 0.1 if n == 0 else 0.001)) for n in range(4)]
        await asyncio.wait_for(all_done.wait(), 600)
        for taker in takers:
            await taker.close()
        await asyncio.gather(*tasks)
        assert sum(map(len, done)) == 6_000
        assert 0 < len(done[0]) <= 0.03 * 6_000
        last = max(max(times) for times in done)
        for times in done:
            gaps = [b - a for a, b in zip(times, [*times[1:], last], strict=True)]
            assert max(gaps) <= 1.0


async def test_a_message_that_fails_is_retried_and_becomes_a_dead_letter() -> None:
    async with virtual_cluster() as running:
        await send(running, *[b"%d" % n for n in range(1)])
        async with consumer(running, retries_max=3) as taker:
            times = []
            while (message := await taker.next(60_000)) is not None:
                times.append(message.reconsume_times)
                await message.nack(500)
            assert times == [0, 1, 2, 3]
            assert await taker.next(60_000) is None
        store = running.brokers[0].broker.log.store
        assert store.bounds("%DLQ%g", 0) == (0, 1)
        dead = record.to_message(record.decode(store.read("%DLQ%g", 0, 0).parts[0]))
        assert dead.body == b"0"


@pytest.mark.parametrize("is_v2", [None, False])
async def test_groups_and_topics_whose_names_join_alike_get_their_own_failed_messages(
    is_v2: bool | None,
) -> None:
    pairs = [("pay", "eu_orders"), ("pay_eu", "orders")]
    async with virtual_cluster(retry_topic_v2=is_v2) as running:
        async with producer_of(running) as sender:
            for _, topic in pairs:
                await sender.send_many([Message(topic, b"%d" % n, tag=topic) for n in range(10)])
        for group, topic in pairs:
            async with consumer(running, group=group, topic=topic) as taker:
                for message in await taker.fetch(10):
                    await message.nack(500)
        for group, topic in pairs:
            async with consumer(running, group=group, topic=topic) as taker:
                seen = []
                while (again := await taker.next(10_000)) is not None:
                    seen.append((again.tag, again.topic, again.reconsume_times))
                    await again.ack()
                assert seen == [(topic, topic, 1)] * 10


async def test_messages_of_a_killed_member_return_after_their_invisible_time() -> None:
    hosts, host = Hosts(this_loop()), "10.0.0.2"
    async with remote_cluster() as running:
        await send(running, *[b"%d" % n for n in range(50)])
        dying = consumer(running, invisible_ms=10_000)
        await hosts.run(host, dying.start())
        held = await hosts.run(host, dying.fetch(20))
        assert len(held) == 20
        hosts.kill(host)
        await hosts.wait_ended(host)
        async with consumer(running) as taker:
            seen = set()
            while (message := await taker.next(30_000)) is not None:
                seen.add(message.body)
                await message.ack()
        assert seen == {b"%d" % n for n in range(50)}


async def test_extending_keeps_a_message_invisible_for_longer() -> None:
    loop = this_loop()
    async with virtual_cluster() as running:
        await send(running, *[b"%d" % n for n in range(1)])
        async with consumer(running, invisible_ms=5_000) as taker, consumer(running) as other:
            message = await next_of(taker)
            for _ in range(4):
                await loop.clock.sleep(4_000)
                assert isinstance(message, PoppedMessage)
                await message.extend(5_000)
            assert await other.next(100) is None
            await message.ack()
            assert await other.next(60_000) is None


async def test_messages_prefetched_by_a_closing_member_return_at_once() -> None:
    async with virtual_cluster() as running:
        await send(running, *[b"%d" % n for n in range(40)])
        async with consumer(running) as leaving:
            for _ in range(10):
                message = await next_of(leaving)
                await message.ack()
        async with consumer(running) as taker:
            assert len(await taker.fetch(31, 1_500)) == 30


async def test_messages_popped_during_a_close_return_at_once() -> None:
    async with virtual_cluster() as running:
        await send(running, *[b"%d" % n for n in range(1)])
        leaving = consumer(running)
        await leaving.start()

        async def slowly(message: ReceivedMessage) -> None:
            await asyncio.sleep(10)

        working = asyncio.create_task(leaving.run(slowly))
        await asyncio.sleep(3)
        closing = asyncio.create_task(leaving.close())
        await asyncio.sleep(1)
        async with producer_of(running) as sender:
            await sender.send("t", b"new")
        async with consumer(running) as taker:
            message = await next_of(taker, 3_000)
            assert message.body == b"new"
        await closing
        await working


async def test_popped_checkpoints_cannot_be_forged() -> None:
    async with started() as server, Peer(server) as one:
        with pytest.raises(CallRefused, match="forbidden"):
            await one.send(b"{}", topic=names.revive_topic(BrokerConfig().cluster_name))


# -- the broker dies -------------------------------------------------------------------------


class Peer:
    """A raw client of one broker."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server

    async def __aenter__(self) -> "Peer":
        self.clock = this_loop().clock
        self.channel = await Channel.connect("127.0.0.1", self.server.port, clock=self.clock)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def send(self, body: bytes, queue_id: int = 0, tag: str = "", topic: str = "t") -> None:
        properties = f"TAGS\x01{tag}\x02" if tag else ""
        await self.channel.call(
            Send(
                body=body,
                producer_group="p",
                topic=topic,
                queue_id=queue_id,
                born_timestamp=1,
                properties=properties,
            )
        )

    async def pop(self, count: int = 32, poll_ms: int = 0, **fields: Any) -> PopReply:
        given: dict[str, Any] = {
            "consumer_group": "g",
            "topic": "t",
            "queue_id": -1,
            "invisible_time": 1_000,
            "init_mode": 0,
            **fields,
        }
        call = Pop(max_msg_nums=count, poll_time=poll_ms, born_time=self.clock.now_ms(), **given)
        return await self.channel.call(call, poll_ms + 3_000)

    async def ack(self, handle: tuple[str, ReceiptHandle], **fields: Any) -> int:
        topic, it = handle
        given: dict[str, Any] = {
            "consumer_group": "g",
            "topic": topic,
            "queue_id": it.queue_id,
            "extra_info": it.text(),
            "offset": it.offset,
            **fields,
        }
        return (await self.channel.call(Ack(**given))).code

    async def change(self, handle: tuple[str, ReceiptHandle], invisible_ms: int) -> int:
        topic, it = handle
        call = ChangeInvisible(
            consumer_group="g",
            topic=topic,
            queue_id=it.queue_id,
            extra_info=it.text(),
            offset=it.offset,
            invisible_time=invisible_ms,
        )
        return (await self.channel.call(call)).code


def handles(reply: PopReply) -> list[tuple[bytes, tuple[str, ReceiptHandle]]]:
    """Bodies and handles, in the order of the reply's information."""
    if not reply.start_offset_info:
        return []
    starts = parse_starts(reply.start_offset_info)
    offsets = parse_offsets(reply.msg_offset_info or "")
    bodies = iter(record.decode_many(reply.body))
    found = []
    for key, many in offsets.items():
        kind, _, queue_id = key.partition("@")
        topic = "t" if kind == "0" else names.pop_retry_topic("g", "t")
        for offset in many:
            handle = ReceiptHandle(
                starts[key], reply.pop_time, reply.invisible_time, reply.revive_qid, kind,
                "broker-a", int(queue_id), offset,
            )  # fmt: skip
            found.append((next(bodies).body, (topic, handle)))
    return found


def snapshots(
    server: BrokerServer, files: MemoryFiles, asked: set[bytes], told: set[bytes]
) -> list[Snapshot]:
    """What is on the disk around each record that the broker stores, and what clients know then."""
    taken: list[Snapshot] = []
    store = server.broker.log.store
    append = store.append

    def append_between_copies(draft: Draft, now_ms: int) -> AppendResult:
        taken.append((files.copy(), set(asked), set(told)))
        appended = append(draft, now_ms)
        taken.append((files.copy(), set(asked), set(told)))
        return appended

    # The broker ends with the test, and its store with it.
    store.append = append_between_copies  # type: ignore[method-assign]
    return taken


@pytest.mark.parametrize("saved", [False, True])
async def test_a_broker_killed_at_any_step_loses_nothing_and_repeats_nothing_acknowledged(
    saved: bool,
) -> None:
    clock, files = this_loop().clock, MemoryFiles()
    asked, told = set[bytes](), set[bytes]()
    config = {"store_dir": Path("/memory"), "save_interval": 700 if saved else 10**9}
    bodies = {b"%d" % n for n in range(8)}
    async with started(**config, files=files) as server, Peer(server) as peer:
        for n in range(8):
            await peer.send(b"%d" % n, n % 2)
        taken = snapshots(server, files, asked, told)

        async def acknowledge(found: list[tuple[bytes, tuple[str, ReceiptHandle]]]) -> None:
            for body, handle in found:
                asked.add(body)
                assert await peer.ack(handle) == 0
                told.add(body)

        first = handles(await peer.pop(5))
        await acknowledge(first[:2])
        assert await peer.change(first[2][1], 3_000) == 0
        second = handles(await peer.pop(2, invisible_time=400))
        await acknowledge(second[:1])
        await clock.sleep(1_800)  # what is left of both comes again
        await acknowledge(handles(await peer.pop())[:2])
        taken.append((files.copy(), set(asked), set(told)))
    for copy, maybe, surely in taken:
        rest = await rest_of(config, copy)
        assert bodies - maybe <= rest <= bodies - surely


async def rest_of(config: dict[str, Any], files: MemoryFiles) -> set[bytes]:
    """What a group is given after the broker was killed; all of it, or less if it was noted."""
    seen = set[bytes]()
    async with started(**config, files=files) as server, Peer(server) as peer:
        while found := handles(await peer.pop(poll_ms=8_000, invisible_time=60_000)):
            for body, handle in found:
                seen.add(body)
                assert await peer.ack(handle) == 0
    return seen


# -- ordered ---------------------------------------------------------------------------------


async def test_an_ordered_queue_gives_later_messages_to_no_other_member() -> None:
    clock = this_loop().clock
    async with started() as server, Peer(server) as one, Peer(server) as other:
        for n in range(4):
            await one.send(b"%d" % n)
        held = handles(await one.pop(2, order=True, attempt_id="a", invisible_time=5_000))
        assert [body for body, _ in held] == [b"0", b"1"]
        assert (await other.pop(order=True, attempt_id="b")).code == 210
        again = await one.pop(2, order=True, attempt_id="a", invisible_time=5_000)
        assert [body for body, _ in handles(again)] == [b"0", b"1"]
        waiting = asyncio.create_task(other.pop(order=True, attempt_id="b", poll_ms=20_000))
        await clock.sleep(100)
        for _, handle in handles(again):
            assert not waiting.done()
            assert await one.ack(handle) == 0
        reply = await waiting
        assert [body for body, _ in handles(reply)] == [b"2", b"3"]
        assert reply.revive_qid == 999


async def test_an_ordered_queue_is_free_after_the_invisible_time() -> None:
    loop = this_loop()
    async with started() as server, Peer(server) as one:
        await one.send(b"0")
        await one.pop(order=True, attempt_id="a", invisible_time=3_000)
        before = loop.time()
        reply = await one.pop(order=True, attempt_id="b", poll_ms=20_000)
        assert [body for body, _ in handles(reply)] == [b"0"]
        assert 2.9 < loop.time() - before < 3.1
        assert reply.order_count_info == "0 qo0%0 1;0 0 1"


async def test_higher_priorities_are_popped_first_and_failed_ones_stay_before_lower_ones() -> None:
    async with virtual_cluster() as running:
        (broker,) = running.brokers
        broker.broker.tables.topics.put(
            TopicConfig(
                topic_name="t", read_queue_nums=4, write_queue_nums=4,
                attributes={"message.type": "PRIORITY"},
            ), 0,
        )  # fmt: skip
        for priority in range(4):
            await send(running, b"%d" % priority, b"%d" % priority, priority=priority)
        async with consumer(running, pop_count=1) as taker:
            failed = await next_of(taker)
            assert (failed.body, failed.priority, failed.queue_id) == (b"3", 3, 3)
            await failed.nack(delay_ms=1)
            await this_loop().clock.sleep(1_000)
            seen = [await next_of(taker) for _ in range(8)]
            for message in seen:
                await message.ack()
        order = [(message.priority, message.tries) for message in seen]
        assert sorted(order, reverse=True) == [
            (3, 1), (3, 0), (2, 0), (2, 0), (1, 0), (1, 0), (0, 0), (0, 0),
        ]  # fmt: skip
        assert order.index((3, 1)) < order.index((1, 0)), "one message may be popped ahead"
        assert [priority for priority, tries in order if not tries] == [3, 2, 2, 1, 1, 0, 0]
