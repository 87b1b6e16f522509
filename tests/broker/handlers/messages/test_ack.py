import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import LocalBroker, make_pop, not_none, refuses

from roquet.model.errors import CallRefused
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.pop import Ack, AckBatch, BatchAck, ChangeInvisible, PopAck, encode_acks
from roquet.wire.codes import ResponseCode
from roquet.wire.receipt_handle import ORDER_QUEUE, ReceiptHandle, decode_receipt_handle
from roquet.wire.records.record import decode_many, to_message

replace = msgspec.structs.replace


def popped(broker: LocalBroker, **fields: Any) -> ReceiptHandle:
    """Three messages of queue 0, popped; gives the first one's handle."""
    for n in range(3):
        broker.send(b"%d" % n)
    reply = broker.ask(make_pop(**{"consumer_group": "g", "order": False, "queue_id": 0, **fields}))
    return ReceiptHandle(
        0, reply.pop_time, reply.invisible_time, reply.revive_qid, "0", "broker-a", 0, 0
    )


def acknowledge(broker: LocalBroker, handle: ReceiptHandle, **fields: Any) -> Any:
    arguments: dict[str, Any] = {
        "consumer_group": "g", "topic": "orders", "queue_id": handle.queue_id,
        "extra_info": handle.text(), "offset": handle.offset, **fields,
    }  # fmt: skip
    return broker.ask(Ack(**arguments)).code


def acked(handle: ReceiptHandle, bits: str) -> PopAck:
    return PopAck(
        group="g", topic="orders", retry="0", start=0, queue_id=0, bits=bits,
        revive_queue=handle.revive_queue, pop_ms=handle.pop_ms, invisible_ms=60_000,
    )  # fmt: skip


def acknowledge_all(broker: LocalBroker, *acks: PopAck) -> Any:
    return broker.ask(BatchAck(body=encode_acks(AckBatch(acks=[*acks])))).code


def change(
    broker: LocalBroker,
    handle: ReceiptHandle,
    invisible_ms: int,
    topic: str = "orders",
    **fields: Any,
) -> Any:
    call = ChangeInvisible(
        consumer_group="g", topic=topic, queue_id=0, extra_info=handle.text(),
        offset=handle.offset, invisible_time=invisible_ms, **fields,
    )  # fmt: skip
    return broker.ask(call)


@pytest.mark.parametrize("topic", ["%RETRY%g+orders", "orders"], ids=["since 5.2", "before"])
async def test_a_failed_message_is_settled_by_any_client(broker: LocalBroker, topic: str) -> None:
    popped(broker, invisible_time=1)
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 10)
    reply = broker.ask(make_pop(consumer_group="g", order=False))
    texts = [to_message(r).properties["POP_CK"] for r in decode_many(reply.body)]
    assert [text.split(" ")[4] for text in texts] == ["2"] * 3
    for text in texts[:2]:
        assert acknowledge(broker, decode_receipt_handle(text), topic=topic) == 0
    (checkpoint,) = broker.delivery.revive.in_flight
    assert (checkpoint.topic, checkpoint.left) == ("%RETRY%g+orders", 0b100)
    last = decode_receipt_handle(texts[2])
    assert change(broker, last, 90_000, topic).code == 0
    (again,) = broker.delivery.revive.in_flight
    assert (again.topic, again.start, again.invisible_ms) == ("%RETRY%g+orders", 2, 90_000)


async def test_an_acknowledged_message_is_not_delivered_again(broker: LocalBroker) -> None:
    handle = popped(broker)
    for offset in (2, 0, 1, 1):
        assert acknowledge(broker, replace(handle, offset=offset)) == 0
    assert len(broker.delivery.revive.in_flight) == 0


async def test_a_message_of_a_queue_removed_since_is_acknowledged(broker: LocalBroker) -> None:
    for n in range(3):
        broker.send(b"%d" % n, queue_id=1)
    handle = popped(broker, queue_id=1)
    broker.put_topic("orders", 1)
    for offset in range(3):
        assert acknowledge(broker, replace(handle, queue_id=1, offset=offset)) == 0
    assert len(broker.delivery.revive.in_flight) == 0
    with pytest.raises(CallRefused, match=r"queueId\[7\] is illegal"):
        acknowledge(broker, replace(handle, queue_id=7))


@pytest.mark.parametrize(
    "forged", [{"broker": "broker-b"}, {"queue_id": 1}, {"offset": 1}, {"retry": "1"}, {"start": 1}]
)
async def test_a_forged_handle_is_refused(broker: LocalBroker, forged: dict[str, Any]) -> None:
    handle = popped(broker)
    with refuses(ResponseCode.INVALID_PARAMETER):
        acknowledge(broker, handle, extra_info=replace(handle, **forged).text())
    (checkpoint,) = broker.delivery.revive.in_flight
    assert checkpoint.left == 0b111


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 99}, ResponseCode.MESSAGE_ILLEGAL),
        ({"extra_info": "nonsense"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_bad_acknowledgements_are_refused(
    broker: LocalBroker, fields: dict[str, Any], code: ResponseCode
) -> None:
    handle = popped(broker)
    with refuses(code):
        acknowledge(broker, handle, **fields)


@pytest.mark.parametrize("offset", [3, 50])
async def test_an_offset_outside_the_queue_is_no_message(broker: LocalBroker, offset: int) -> None:
    handle = replace(popped(broker), offset=offset)
    with refuses(ResponseCode.NO_MESSAGE):
        acknowledge(broker, handle)


async def test_a_handle_that_only_claims_to_be_ordered_loses_nothing(broker: LocalBroker) -> None:
    handle = popped(broker)
    for n in range(2):
        broker.send(b"later %d" % n)
    before = broker.tables.offsets.get("g", "orders", 0)
    for pop_ms in (handle.pop_ms, 0):
        ordered = replace(handle, pop_ms=pop_ms, revive_queue=ORDER_QUEUE)
        for offset in (3, 4):
            with refuses(ResponseCode.MESSAGE_ILLEGAL):
                acknowledge(broker, replace(ordered, offset=offset))
    assert broker.tables.offsets.get("g", "orders", 0) == before == 3
    (checkpoint,) = broker.delivery.revive.in_flight
    assert checkpoint.left == 0b111


async def test_a_handle_of_another_group_or_pop_takes_nothing_here(broker: LocalBroker) -> None:
    handle = popped(broker)
    # Code 0 as from the genuine broker, which looks no checkpoint up either.
    assert acknowledge(broker, handle, consumer_group="other") == 0
    assert acknowledge(broker, replace(handle, pop_ms=handle.pop_ms + 1)) == 0
    (checkpoint,) = broker.delivery.revive.in_flight
    assert checkpoint.left == 0b111
    assert broker.tables.offsets.get("other", "orders", 0) is None


async def test_a_message_that_the_pop_did_not_give_out_is_refused(broker: LocalBroker) -> None:
    handle = popped(broker)
    broker.send(b"later")
    with pytest.raises(CallRefused, match="did not give this out"):
        acknowledge(broker, replace(handle, offset=3))


async def test_an_expired_handle_is_refused_and_changes_nothing(broker: LocalBroker) -> None:
    handle = popped(broker, invisible_time=1)
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 10)
    assert broker.log.store.bounds("%RETRY%g+orders", 0) == (0, 3)
    old = replace(handle, pop_ms=handle.pop_ms - 5_000)
    assert acknowledge(broker, old) == ResponseCode.NO_MESSAGE
    assert change(broker, old, 1_000).code == ResponseCode.NO_MESSAGE
    assert acknowledge(broker, handle, consumer_group="other") in (0, ResponseCode.NO_MESSAGE)


async def test_a_batch_acknowledges_many_at_once(broker: LocalBroker) -> None:
    handle = popped(broker)
    good = acked(handle, "BQ==")
    changes: list[dict[str, Any]] = [
        {"start": 2**62}, {"start": 1}, {"group": "other"}, {"queue_id": 1}, {"topic": "nowhere"},
        {"pop_ms": handle.pop_ms + 1}, {"revive_queue": ORDER_QUEUE}, {"retry": "1"},
    ]  # fmt: skip
    forged = [replace(good, bits="////", **change) for change in changes]
    assert acknowledge_all(broker, *forged, good) == 0
    (checkpoint,) = broker.delivery.revive.in_flight
    assert checkpoint.left == 0b010
    assert broker.tables.offsets.get("g", "orders", 0) == 3
    assert acknowledge_all(broker) == ResponseCode.NO_MESSAGE


async def test_another_time_makes_another_handle(broker: LocalBroker) -> None:
    handle = popped(broker)
    reply = change(broker, handle, 5)
    assert (reply.code, reply.invisible_time) == (0, 5)
    assert change(broker, handle, 5).code == ResponseCode.NO_MESSAGE
    new = replace(handle, pop_ms=reply.pop_time, invisible_ms=5, revive_queue=reply.revive_qid)
    again = change(broker, new, 9_000)
    assert again.code == 0
    assert again.pop_time > reply.pop_time or again.pop_time != new.pop_ms
    assert acknowledge(broker, replace(new, pop_ms=again.pop_time, invisible_ms=9_000)) == 0
    (left,) = broker.delivery.revive.in_flight
    assert left.left == 0b110


@pytest.mark.parametrize("invisible_ms", [0, -1, 2**63 - 1])
async def test_a_time_out_of_range_is_refused(broker: LocalBroker, invisible_ms: int) -> None:
    with refuses(ResponseCode.INVALID_PARAMETER):
        change(broker, popped(broker), invisible_ms)


async def test_a_suspended_message_comes_again_without_a_try(broker: LocalBroker) -> None:
    handle = popped(broker)
    change(broker, handle, 5, suspend=True)
    change(broker, replace(handle, offset=1), 5)
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 10)
    raw = broker.log.store.read("%RETRY%g+orders", 0, 0, count_max=9).parts
    again = [to_message(record) for part in raw for record in decode_many(part)]
    tries = {message.body: message.reconsume_times for message in again}
    assert tries == {b"0": 0, b"1": 1}


async def test_a_message_suspended_at_its_last_try_is_no_dead_letter(broker: LocalBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_max_times=0), 1)
    change(broker, popped(broker), 5, suspend=True)
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 10)
    assert broker.log.store.bounds("%RETRY%g+orders", 0) == (0, 1)


async def test_a_suspended_message_of_an_ordered_queue_blocks_it(broker: LocalBroker) -> None:
    handle = popped(broker, order=True)
    assert change(broker, handle, 5_000, suspend=True).code == 0
    held = not_none(broker.tables.ordered_pops.get("g", "orders", 0))
    assert held.suspended == {0}
    assert broker.ask(make_pop(consumer_group="g", order=True, queue_id=0, poll_time=0)).code != 0


async def test_ordered_messages_are_acknowledged_by_their_holder_alone(broker: LocalBroker) -> None:
    handle = popped(broker, order=True)
    assert handle.revive_queue == 999
    assert acknowledge(broker, replace(handle, offset=1)) == 0
    assert broker.tables.offsets.get("g", "orders", 0) == 0
    with refuses(ResponseCode.MESSAGE_ILLEGAL):
        acknowledge(broker, replace(handle, pop_ms=handle.pop_ms - 1))
    assert acknowledge(broker, handle) == 0
    assert broker.tables.offsets.get("g", "orders", 0) == 2
    reply = change(broker, replace(handle, offset=2), 5_000)
    assert (reply.code, reply.revive_qid) == (0, 999)
    assert acknowledge_all(broker, acked(handle, "BA==")) == 0
    assert broker.tables.offsets.get("g", "orders", 0) == 3
    assert broker.tables.ordered_pops.get("g", "orders", 0) is None


async def test_expired_handles_of_an_ordered_batch_are_left_out(broker: LocalBroker) -> None:
    handle = popped(broker, order=True)
    good = acked(handle, "Bw==")
    assert acknowledge_all(broker, replace(good, pop_ms=handle.pop_ms - 5), good) == 0
    assert broker.tables.offsets.get("g", "orders", 0) == 3
    assert broker.tables.ordered_pops.get("g", "orders", 0) is None


async def test_an_ordered_queue_that_becomes_free_wakes_waiting_pops(broker: LocalBroker) -> None:
    handle = popped(broker, order=True)
    deadline_ms = broker.control.clock.monotonic_ms() + 5_000
    waits = [
        asyncio.create_task(broker.log.arrivals.waiters.wait("g", "orders", queue_id, deadline_ms))
        for queue_id in (1, 0)
    ]
    await asyncio.sleep(0)
    for offset in range(3):
        acknowledge(broker, replace(handle, offset=offset))
    assert await asyncio.wait_for(waits[1], 2)
    assert not waits[0].done()
    waits[0].cancel()
