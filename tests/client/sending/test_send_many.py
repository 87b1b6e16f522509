"""Any number of messages are sent in growing batches."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.client.conftest import Created, FakeCluster, producing

from roquet.client.connection.routes import Routes
from roquet.client.producer import Producer
from roquet.client.sending.send_many import BATCH_COUNT_MAX, FEED_RUN, SendMany
from roquet.model.errors import CallRefused, MessageIllegal
from roquet.model.message import Message
from roquet.model.results import SendReceipt
from roquet.wire.records.batch import decode_batch


def numbered(count: int, keys: int = 7) -> Iterator[Message]:
    """Messages whose body is their key and number."""
    for number in range(count):
        yield Message("t", b"%d %d" % (number % keys, number), order_key=f"k{number % keys}")


def stored(cluster: FakeCluster) -> list[bytes]:
    return [
        body
        for broker in cluster.brokers.values()
        for topic, queue_id in broker.queues
        for body in broker.bodies(topic, queue_id)
    ]


def count(cluster: FakeCluster) -> int:
    return sum(len(held) for broker in cluster.brokers.values() for held in broker.queues.values())


async def drain(sending: SendMany, seen: list[SendReceipt]) -> None:
    """Append every receipt to `seen` until an error."""
    async for receipt in sending:
        seen.append(receipt)  # noqa: PERF401 - those before the failure are wanted, too


def assert_in_order(cluster: FakeCluster, *, once: bool = True) -> None:
    """Check that each key is in one queue with rising numbers; duplicates only without `once`."""
    homes = defaultdict(set)
    for name, broker in cluster.brokers.items():
        for topic, queue_id in broker.queues:
            last: dict[bytes, int] = defaultdict(lambda: -1)
            seen: set[bytes] = set()
            for body in broker.bodies(topic, queue_id):
                key, number = body.split()
                homes[key].add((name, queue_id))
                if body in seen and not once:
                    continue
                assert int(number) > last[key]
                last[key] = int(number)
                seen.add(body)
    assert all(len(queues) == 1 for queues in homes.values())


async def test_receipts_come_in_the_order_of_the_messages() -> None:
    async with producing({"a": 4, "b": 2}) as (cluster, producer):
        messages = list(numbered(500))
        receipts = await producer.send_many(messages)
        assert len(receipts) == 500
        for message, receipt in zip(messages, receipts, strict=True):
            held = cluster.brokers[receipt.queue.broker_name].bodies("t", receipt.queue.queue_id)
            assert held[receipt.queue_offset] == message.body


async def test_batches_form_and_keep_the_order_of_each_key() -> None:
    async with producing({"a": 4, "b": 2}) as (cluster, producer):
        for broker in cluster.brokers.values():
            broker.send_ms = 5
        await producer.send_many(numbered(5_000))
        assert count(cluster) == 5_000
        assert_in_order(cluster)
        assert sum(len(b.sends) for b in cluster.brokers.values()) < 100


async def test_receipts_can_be_had_as_they_come() -> None:
    async with producing({"a": 2}) as (cluster, producer):
        cluster.a.send_ms = 5
        seen = 0
        async for receipt in producer.send_many(numbered(3_000), in_flight=500):
            assert receipt.ok
            seen += 1
            assert count(cluster) - seen < 1_000
        assert seen == 3_000


async def test_no_more_are_under_way_than_allowed() -> None:
    async with producing({"a": 2}) as (cluster, producer):
        cluster.a.send_ms = 1_000
        read = 0

        def source() -> Iterator[Message]:
            nonlocal read
            for message in numbered(2_000):
                read += 1
                yield message

        sending = asyncio.ensure_future(_all(producer, source(), in_flight=100))
        await asyncio.sleep(0.5)
        assert read == 100
        assert len(await sending) == 2_000


async def _all(producer: Producer, source: Any, in_flight: int) -> Any:
    return await producer.send_many(source, in_flight=in_flight)


async def test_an_async_source_does_not_hold_receipts_back() -> None:
    async with producing({"a": 2}) as (_cluster, producer):

        async def slow() -> AsyncIterator[Message]:
            for message in numbered(5):
                yield message
                await asyncio.sleep(10)

        loop = asyncio.get_running_loop()
        start = loop.time()
        times = [round(loop.time() - start) async for _ in producer.send_many(slow())]
        assert times == [0, 10, 20, 30, 40]


async def test_a_batch_is_never_longer_than_brokers_take() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        await producer.send_many([Message("t", b"x" * 100_000)] * 20 + [Message("t", b"y")] * 4_000)
        sizes = [len(call.body) for call in cluster.a.sends]
        assert max(sizes) <= 256 * 1024
        assert count(cluster) == 4_020
        assert BATCH_COUNT_MAX == 500


async def test_a_retry_keeps_the_order() -> None:
    async with producing({"a": 2, "b": 2}) as (cluster, producer):
        busy = CallRefused(2, "busy")
        cluster.a.faults += [busy, busy]
        cluster.brokers["b"].late_faults += [busy]  # stored, and yet refused: it comes twice
        await producer.send_many(numbered(2_000), in_flight=300)
        assert len(set(stored(cluster))) == 2_000
        assert_in_order(cluster, once=False)


async def test_without_keys_a_batch_may_go_elsewhere() -> None:
    async with producing({"a": 2, "b": 2}) as (cluster, producer):
        await producer.send("t", b"first")
        await cluster.a.server.stop(0)
        receipts = await producer.send_many(Message("t", b"x") for _ in range(1_000))
        assert {receipt.queue.broker_name for receipt in receipts} == {"b"}
        assert len(receipts) == 1_000


async def test_a_failure_ends_the_stream_after_the_receipts_of_stored_messages() -> None:
    async with producing({"a": 4}) as (cluster, producer):
        cluster.a.faults += [MessageIllegal("no")]
        seen: list[SendReceipt] = []
        with pytest.raises(CallRefused, match="no") as caught:
            await drain(producer.send_many(numbered(100_000), in_flight=1_000), seen)
        assert any("a batch of" in note for note in caught.value.__notes__)
        assert len(seen) == count(cluster) < 1_000


async def test_a_message_that_cannot_be_sent_ends_it_after_those_before() -> None:
    async with producing({"a": 4}) as (cluster, producer):
        messages = [*numbered(50), Message("t", b""), *numbered(50)]
        seen: list[SendReceipt] = []
        with pytest.raises(MessageIllegal, match="empty"):
            await drain(producer.send_many(messages), seen)
        assert len(seen) == count(cluster) == 50


async def test_a_failure_while_the_source_is_silent_is_raised() -> None:
    async with producing({"a": 4}) as (cluster, producer):
        cluster.a.faults += [MessageIllegal("no")]

        async def silent() -> AsyncIterator[Message]:
            yield Message("t", b"x")
            await asyncio.sleep(3600)

        with pytest.raises(CallRefused):
            await producer.send_many(silent())


async def test_keys_that_move_with_a_new_route_keep_their_order_in_time(created: Created) -> None:
    routes = created(Routes)
    async with producing({"a": 3}) as (cluster, producer):
        cluster.a.send_ms = 50

        async def source() -> AsyncIterator[Message]:
            for number, message in enumerate(numbered(600)):
                if number == 300:
                    cluster.topics["t"] = {"a": 5}
                    await routes[0].refresh_all()
                yield message

        order = [receipt async for receipt in producer.send_many(source(), in_flight=50)]
        assert len(order) == 600
        early = {int(b.split()[1]) for q in (3, 4) for b in cluster.a.bodies("t", q)}
        assert min(early) >= 300


async def test_leaving_the_iteration_leaves_no_task() -> None:
    async with producing({"a": 1}) as (_cluster, producer):
        before = len(asyncio.all_tasks())
        receipts = producer.send_many(numbered(1_000), in_flight=10).__aiter__()
        await anext(receipts)
        await receipts.aclose()
        await asyncio.sleep(0.1)
        assert len(asyncio.all_tasks()) == before


async def test_nothing_to_send_is_fine() -> None:
    async with producing({"a": 1}) as (_cluster, producer):
        assert await producer.send_many([]) == []


async def test_a_failure_stops_sending_even_without_a_reader() -> None:
    async with producing({"a": 1}, retry_times=0) as (cluster, producer):

        async def slowly() -> AsyncIterator[Message]:
            for number in range(5):
                yield Message("t", b"k %d" % number, order_key="k")
                await asyncio.sleep(1)

        sending = producer.send_many(slowly()).__aiter__()
        await sending.__anext__()
        cluster.a.faults += [MessageIllegal("no")]
        await asyncio.sleep(10)
        assert stored(cluster) == [b"k 0"]
        with pytest.raises(CallRefused, match="no"):
            await sending.__anext__()


async def test_other_tasks_run_while_messages_are_prepared() -> None:
    async with producing({"a": 4}) as (_cluster, producer):
        prepared, seen = 0, set[int]()

        def messages() -> Iterator[Message]:
            nonlocal prepared
            for prepared in range(4 * FEED_RUN):  # noqa: B007 - the other task reads it
                yield Message("t", b"x")

        async def look() -> None:
            while True:
                seen.add(prepared)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await producer.send_many(messages(), in_flight=10 * FEED_RUN)
        looking.cancel()
        assert len(seen) >= 4


async def test_a_delayed_message_is_sent_by_itself_between_its_neighbours() -> None:
    async with producing({"a": 4}) as (cluster, producer):
        levels = [0, 0, 0, 1, 0, 0]
        receipts = await producer.send_many(
            Message("t", b"x", order_key="k", delay_level=level) for level in levels
        )
        sends = cluster.a.sends
        assert [len(decode_batch(call.body)) if call.batch else 1 for call in sends] == [3, 1, 2]
        assert len(receipts) == len(levels)
