"""One parcel to a queue, and to another one when that fails."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from roquet.client.config import ProducerConfig
from roquet.client.delivery import RETRIED, Delivery, Parcel, receipts
from roquet.client.outgoing import Outgoing
from roquet.client.session import Session
from roquet.model.errors import CallRefused, CallTimeout, ConnectFailed, MessageIllegal
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.model.subscription import HeartbeatData
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode

Fakes = Callable[..., Any]

QUEUE = MessageQueue("t", "a", 1)


def parcel(*bodies: bytes, order_hash: int | None = None) -> Parcel:
    return Parcel.of([Outgoing("t", body, "", "ID", order_hash, 0, 0, 99) for body in bodies])


def busy(code: int = ResponseCode.SYSTEM_BUSY) -> CallRefused:
    return CallRefused(code, "try elsewhere")


@asynccontextmanager
async def delivery_of(virtual: Fakes, address: str, **settings: Any) -> AsyncIterator[Delivery]:
    config: ProducerConfig = virtual(ProducerConfig, **settings)
    session = Session(address, config)
    session.start(lambda: HeartbeatData(client_id="me"))
    try:
        yield Delivery(session, config, "g")
    finally:
        await session.close()


def held(cluster: Any) -> list[str]:
    """Which broker got each message that is stored."""
    return sorted(n for n, b in cluster.brokers.items() for q in b.queues.values() for _ in q)


@in_virtual_time
async def test_queues_take_turns(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 4, "b": 2}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        for _ in range(60):
            await delivery.send(parcel(b"x"))
        assert {
            (name, queue): len(records)
            for name, broker in cluster.brokers.items()
            for (_, queue), records in broker.queues.items()
        } == dict.fromkeys([("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)], 10)


@in_virtual_time
async def test_a_refused_send_goes_to_another_broker_at_once(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 4, "b": 2}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        for _ in range(20):
            cluster.brokers["a"].faults[:] = [busy()]
            await delivery.send(parcel(b"x"))
        assert held(cluster).count("b") >= 7  # those that met the fault
        assert this_loop().clock.monotonic_ms() < 100


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_codes_that_java_tries_again_are_tried_again(
    fakes: Fakes, virtual: Fakes, code: int
) -> None:
    @in_virtual_time
    async def tried() -> None:
        async with (
            fakes(t={"a": 1}) as cluster,
            delivery_of(virtual, cluster.address) as delivery,
        ):
            cluster.brokers["a"].faults += [busy(code), busy(code)]
            assert await delivery.send(parcel(b"x"))
            assert len(cluster.brokers["a"].sends) == 3

    tried()


@in_virtual_time
async def test_a_refusal_that_others_would_share_is_raised(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 1, "b": 1}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        for broker in cluster.brokers.values():
            broker.faults.append(MessageIllegal("too long"))
        with pytest.raises(CallRefused, match="too long") as caught:
            await delivery.send(parcel(b"x"))
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert sum(len(b.sends) for b in cluster.brokers.values()) == 1


@in_virtual_time
async def test_after_the_last_try_its_error_is_raised(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 1}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        cluster.brokers["a"].faults += [busy()] * 9
        with pytest.raises(CallRefused, match="try elsewhere"):
            await delivery.send(parcel(b"x"))
        assert len(cluster.brokers["a"].sends) == 3
        assert this_loop().clock.monotonic_ms() == 300  # the same broker: 100 ms, then 200 ms


@in_virtual_time
async def test_a_dead_broker_is_passed_over(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 4, "b": 4}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        await delivery.send(parcel(b"x"))
        await cluster.brokers["a"].server.stop(0)
        for _ in range(40):
            await delivery.send(parcel(b"y"))
        assert held(cluster).count("b") >= 40


@in_virtual_time
async def test_a_key_stays_with_its_queue_in_every_try(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 2, "b": 2}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        cluster.brokers["a"].faults += [busy(), busy()]
        await delivery.send(parcel(b"x", order_hash=-5))
        assert [call.queue_id for call in cluster.brokers["a"].sends] == [1, 1, 1]
        assert not cluster.brokers["b"].sends


@in_virtual_time
async def test_a_key_whose_broker_is_dead_fails_and_goes_nowhere_else(
    fakes: Fakes, virtual: Fakes
) -> None:
    async with (
        fakes(t={"a": 2, "b": 2}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        await delivery.queues("t", 1_000)
        await cluster.brokers["a"].server.stop(0)
        with pytest.raises(ConnectFailed):
            await delivery.send(parcel(b"x", order_hash=1))
        assert held(cluster) == []


@in_virtual_time
async def test_time_is_counted_over_all_tries(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 1, "b": 1}) as cluster,
        delivery_of(virtual, cluster.address, retries=9) as delivery,
    ):
        for broker in cluster.brokers.values():
            broker.send_ms = 1_300
            broker.faults += [busy()] * 9
        with pytest.raises(CallTimeout):
            await delivery.send(parcel(b"x"), 3_000)
        assert this_loop().clock.monotonic_ms() == 3_000


@in_virtual_time
async def test_one_way_is_sent_once_and_not_waited_for(fakes: Fakes, virtual: Fakes) -> None:
    async with (
        fakes(t={"a": 1}) as cluster,
        delivery_of(virtual, cluster.address) as delivery,
    ):
        cluster.brokers["a"].send_ms = 10_000
        await delivery.send_oneway(parcel(b"x"))
        assert this_loop().clock.monotonic_ms() < 100


def receipts_of(reply: SendReply, *bodies: bytes) -> Sequence[SendReceipt]:
    return receipts(parcel(*bodies), QUEUE, reply)


def test_each_message_of_a_batch_has_its_own_receipt() -> None:
    found = receipts_of(SendReply(msg_id="A,B,C", queue_id=1, queue_offset=7), b"1", b"2", b"3")
    assert [(r.offset_message_id, r.queue_offset) for r in found] == [("A", 7), ("B", 8), ("C", 9)]
    assert {r.queue for r in found} == {QUEUE}
    assert all(r.ok for r in found)


def test_a_batch_that_is_stored_as_one_has_one_id() -> None:
    found = receipts_of(SendReply(msg_id="A", queue_id=1, queue_offset=7), b"1", b"2")
    assert [(r.offset_message_id, r.queue_offset) for r in found] == [("A", 7), ("A", 8)]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
    ids=lambda value: value.name,
)
def test_stored_but_less_durable_is_a_receipt(code: ResponseCode, status: SendStatus) -> None:
    (receipt,) = receipts_of(SendReply(code=code, msg_id="A"), b"1")
    assert (receipt.status, receipt.ok) == (status, False)
