"""Concurrent awaited sends leave as batches."""

import asyncio
import zlib
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.client.conftest import fake_cluster, producer_of, producing

from roquet.client.producer import Producer
from roquet.client.sending.selectors import Chance
from roquet.model.errors import (
    CallError,
    CallRefused,
    ConnectFailed,
    ConnectionLost,
    MessageIllegal,
    UsageError,
)
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt
from roquet.testing.clock import this_loop
from roquet.wire.records import record

batching = partial(producing, linger_ms=5)


def sizes(broker: Any) -> list[int]:
    """The number of messages in each request."""
    return [len(record.decode_batch(c.body)) if c.batch else 1 for c in broker.sends]


async def together(producer: Producer, bodies: Any, **fields: Any) -> list[Any]:
    """Send at the same moment; return receipts and errors."""
    sends = (producer.send("t", body, **fields) for body in bodies)
    return await asyncio.gather(*sends, return_exceptions=True)


def fate(error: object) -> tuple[type, bool]:
    assert isinstance(error, CallError)
    return type(error), error.definite


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def test_each_message_of_a_batch_has_its_own_receipt() -> None:
    async with batching({"a": 4, "b": 4}) as (cluster, producer):
        receipts = await together(producer, numbers(300))
        assert sum(len(b.sends) for b in cluster.brokers.values()) == 1
        assert len({receipt.message_id for receipt in receipts}) == 300
        for body, receipt in zip(numbers(300), receipts, strict=True):
            held = cluster.brokers[receipt.queue.broker_name].bodies("t", receipt.queue.queue_id)
            assert held[receipt.queue_offset] == body


async def test_batches_take_the_queues_in_turn() -> None:
    async with batching({"a": 4}) as (cluster, producer):
        for _ in range(8):
            await together(producer, numbers(10))
        assert {len(held) for held in cluster.a.queues.values()} == {20}
        assert sizes(cluster.a) == [10] * 8


async def test_a_batch_waits_for_its_linger_time() -> None:
    async with batching({"a": 1}, linger_ms=50) as (cluster, producer):
        await producer.send("t", b"route")
        start = this_loop().clock.monotonic_ms()
        first = asyncio.ensure_future(producer.send("t", b"1"))
        await asyncio.sleep(0.04)
        await producer.send("t", b"2")
        assert first.done()
        assert 50 <= this_loop().clock.monotonic_ms() - start < 60
        assert sizes(cluster.a) == [1, 2]


async def test_without_linger_what_is_sent_at_one_moment_goes_together() -> None:
    async with batching({"a": 1}, linger_ms=0) as (cluster, producer):
        await together(producer, numbers(20))
        await producer.send("t", b"alone")
        assert sizes(cluster.a) == [20, 1]


async def test_a_full_batch_does_not_wait() -> None:
    async with batching({"a": 1}, linger_ms=1_000, batch_bytes=1_000) as (cluster, producer):
        await producer.send("t", b"route")
        sends = [asyncio.ensure_future(producer.send("t", b"x" * 200)) for _ in range(20)]
        await asyncio.sleep(0.1)
        assert sum(send.done() for send in sends) >= 15
        assert all(len(call.body) <= 1_000 for call in cluster.a.sends)
        await asyncio.gather(*sends)


async def test_a_key_keeps_its_order_through_batches_and_retries() -> None:
    async with batching({"a": 2, "b": 2}, linger_ms=1) as (cluster, producer):
        for broker in cluster.brokers.values():
            broker.send_ms = 7
            broker.faults += [CallRefused(2, "busy")] * 2
        sends = []
        for number in range(400):
            body, key = b"%d" % number, f"k{number % 5}"
            sends.append(asyncio.ensure_future(producer.send("t", body, order_key=key)))
            if number % 3 == 0:
                await asyncio.sleep(0.001)
        receipts = await asyncio.gather(*sends)
        for one in range(5):
            own = receipts[one::5]
            assert len({receipt.queue for receipt in own}) == 1
            offsets = [receipt.queue_offset for receipt in own]
            assert offsets == sorted(offsets)
        assert sum(len(b.sends) for b in cluster.brokers.values()) < 200


async def test_keys_keep_their_order_while_the_route_is_looked_for() -> None:
    async with batching({"a": 3}) as (cluster, producer):
        cluster.unready = 3
        sends = []
        for number in range(60):
            send = producer.send("t", b"%d" % number, order_key="k")
            sends.append(asyncio.ensure_future(send))
            await asyncio.sleep(0.02)
        receipts = await asyncio.gather(*sends)
        offsets = [receipt.queue_offset for receipt in receipts]
        assert offsets == list(range(60))


async def test_unbatchable_messages_are_sent_alone() -> None:
    async with batching({"a": 1}) as (cluster, producer):
        long = b"x" * 5_000
        await asyncio.gather(
            producer.send("t", b"1"),
            producer.send("t", b"2", delay_level=3),
            producer.send("t", b"3", delay=timedelta(seconds=9)),
            producer.send("t", long),
            producer.send("t", b"4"),
        )
        calls = cluster.a.sends
        assert sorted(sizes(cluster.a)) == [1, 1, 1, 2]
        (compressed,) = [call for call in calls if call.sys_flag]
        assert zlib.decompress(compressed.body) == long
        await producer.send_oneway("t", b"5")
        await asyncio.sleep(0.1)
        assert sizes(cluster.a)[-1] == 1


async def test_messages_sent_alone_keep_the_order_of_their_key() -> None:
    async with batching({"a": 1}) as (cluster, producer):
        cluster.a.send_ms = 10
        messages = [Message("t", b"%d" % n, order_key="k", delay_level=n % 3) for n in range(12)]
        receipts = await asyncio.gather(*(producer.send(message) for message in messages))
        assert [receipt.queue_offset for receipt in receipts] == list(range(12))
        assert set(sizes(cluster.a)) == {1}


async def test_a_refused_message_does_not_spoil_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async with batching({"a": 2}) as (cluster, producer):
        take = cluster.a.take

        async def picky(call: Any, items: Any) -> Any:
            if any(body == b"7" for body, _, _ in items):
                raise MessageIllegal("no sevens")
            return await take(call, items)

        monkeypatch.setattr(cluster.a, "take", picky)
        for fields in ({}, {"order_key": "k"}):
            results = await together(producer, numbers(20), **fields)
            assert [n for n, one in enumerate(results) if not isinstance(one, SendReceipt)] == [7]
            assert isinstance(results[7], CallRefused)
            assert "no sevens" in str(results[7])


async def test_when_a_batch_fails_each_message_has_an_error_of_its_own() -> None:
    async with batching({"a": 1}) as (cluster, producer):
        cluster.a.faults += [CallRefused(2, "busy")] * 3
        results = await together(producer, numbers(5))
        assert len({id(error) for error in results}) == 5
        assert {(type(e), str(e), e.code, e.definite) for e in results} == {
            (CallRefused, "code 2: busy", 2, True)
        }
        assert all(isinstance(one, SendReceipt) for one in await together(producer, numbers(5)))


async def test_a_retried_batch_goes_to_another_broker() -> None:
    async with batching({"a": 2, "b": 2}) as (cluster, producer):
        cluster.a.faults += [CallRefused(2, "busy")] * 9
        for _ in range(3):
            results = await together(producer, numbers(10))
            assert {receipt.queue.broker_name for receipt in results} == {"b"}


async def test_selectors_choose_for_each_message() -> None:
    def by_tag(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        chosen: MessageQueue = queues[int(message.tag or "0")]
        return chosen

    async with batching({"a": 4}, selector=by_tag) as (cluster, producer):
        sends = (producer.send("t", b"x", tag=str(number % 4)) for number in range(40))
        receipts = await asyncio.gather(*sends)
        assert [receipt.queue.queue_id for receipt in receipts] == [0, 1, 2, 3] * 10
        assert sorted(sizes(cluster.a)) == [10] * 4
        spread = await together(producer, numbers(40), selector=Chance())
        assert len({receipt.queue.queue_id for receipt in spread}) == 4


async def test_a_cancelled_message_is_left_out_of_its_batch() -> None:
    async with batching({"a": 1}, linger_ms=100) as (cluster, producer):
        await producer.send("t", b"route")
        sends = [asyncio.ensure_future(producer.send("t", body)) for body in numbers(3)]
        await asyncio.sleep(0.01)
        sends[1].cancel()
        await asyncio.wait(sends)
        assert cluster.a.bodies("t", 0) == [b"route", b"0", b"2"]


async def test_time_counts_from_the_send_and_each_has_its_own() -> None:
    async with batching({"a": 1}) as (cluster, producer):
        await producer.send("t", b"route")
        cluster.a.send_ms = 2_000
        first = asyncio.ensure_future(producer.send("t", b"1", order_key="k"))
        await asyncio.sleep(0.1)
        hasty = asyncio.ensure_future(producer.send("t", b"2", order_key="k", timeout_ms=500))
        patient = asyncio.ensure_future(producer.send("t", b"3", order_key="k", timeout_ms=9_000))
        with pytest.raises(CallError, match="it was not sent") as caught:
            await hasty
        assert caught.value.definite
        assert (await first).queue_offset == 1
        assert (await patient).queue_offset == 2


async def test_a_close_sends_lingering_messages() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        async with producer_of(cluster, linger_ms=60_000) as producer:
            sends = [asyncio.ensure_future(producer.send("t", body)) for body in numbers(20)]
            keyed = [
                asyncio.ensure_future(producer.send("t", body, order_key="k"))
                for body in numbers(20, 20)
            ]
        receipts = await asyncio.gather(*sends, *keyed)
        assert len({receipt.message_id for receipt in receipts}) == 40
        assert this_loop().clock.monotonic_ms() < 5_000


async def test_a_flush_waits_for_the_sends_made_before_it() -> None:
    async with batching({"a": 1}, linger_ms=60_000) as (cluster, producer):
        sends = [asyncio.ensure_future(producer.send("t", body)) for body in numbers(20)]
        await asyncio.sleep(0.1)
        assert await producer.flush()
        assert all(send.done() for send in sends)
        later = asyncio.ensure_future(producer.send("t", b"later"))
        cluster.a.send_ms = 2_000
        await asyncio.sleep(0.1)
        assert not await producer.flush(timeout_ms=500)
        assert await producer.flush()
        assert later.done()


async def test_an_answer_that_a_close_does_not_wait_for_is_not_definite() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        producer = producer_of(cluster, linger_ms=1, close_timeout_ms=500, send_timeout_ms=60_000)
        cluster.a.send_ms = 10_000
        async with producer:
            sends = [
                asyncio.ensure_future(producer.send("t", body, order_key="k"))
                for body in numbers(3)
            ]
            await asyncio.sleep(0.1)
            sends.append(asyncio.ensure_future(producer.send("t", b"behind", order_key="k")))
        *sent, behind = await asyncio.gather(*sends, return_exceptions=True)
        assert [fate(error) for error in sent] == [(ConnectionLost, False)] * 3
        assert fate(behind) == (ConnectFailed, True), "it never left"
        assert cluster.a.bodies("t", 0) == []
        with pytest.raises(UsageError, match="closed"):
            await producer.send("t", b"late")


async def test_a_message_that_cannot_be_sent_is_refused_before_it_joins() -> None:
    async with batching({"a": 1}) as (cluster, producer):
        results = await together(producer, [b"1", b"", b"2"])
        assert isinstance(results[1], MessageIllegal)
        assert sizes(cluster.a) == [2]
