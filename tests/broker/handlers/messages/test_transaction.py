from collections.abc import Awaitable
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, failing, not_none, refuses

from roquet.model.errors import CallRefused, MessageIllegal, StoreFull
from roquet.observe.log_lines import LineFilter
from roquet.rules.line_limit import BURST
from roquet.wire.calls.send import SendReply
from roquet.wire.calls.transaction import EndTransaction, ResumeCheck
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import decode_many

COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0


def prepare(
    broker: LocalBroker, body: bytes = b"m", extra: str = "", **fields: Any
) -> EndTransaction:
    """Stores a half message; gives the call that commits it."""
    text = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01k\x02{extra}"
    now_ms = broker.control.clock.now_ms()
    arguments = {"properties": text, "sys_flag": 4, "born_timestamp": now_ms, **fields}
    reply = broker.send(body, **arguments)
    assert isinstance(reply, SendReply)
    assert reply.code == ResponseCode.SUCCESS
    return EndTransaction(
        producer_group="pg",
        half_offset=reply.queue_offset,
        position=parse_offset_message_id(reply.msg_id)[1],
        commit_or_rollback=COMMIT,
        msg_id=reply.transaction_id or "",
    )


def bodies(broker: LocalBroker, topic: str = "orders") -> list[bytes]:
    messages = broker.log.store.read(topic, 0, 0, count_max=100)
    return [record.body for part in messages.parts for record in decode_many(part)]


def changed(call: EndTransaction, **fields: Any) -> EndTransaction:
    values = {name: getattr(call, name) for name in call.__struct_fields__}
    return EndTransaction(**{**values, **fields})


def give_up(broker: LocalBroker, call: EndTransaction) -> str:
    """Gives a half message up; the id under which operators find it."""
    half = not_none(broker.delivery.transactions.queue.find(call.position))
    broker.delivery.transactions.give_up(half)
    messages = broker.log.store.read("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0)
    (record,) = [record for part in messages.parts for record in decode_many(part)]
    return broker.log.ingest.message_id(record.position)


async def test_the_reply_to_a_half_message_has_its_queue_and_offset(broker: LocalBroker) -> None:
    text = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01k\x02"
    for number in range(2):
        reply = broker.send(properties=text, queue_id=2)
        assert (reply.queue_id, reply.queue_offset, reply.transaction_id) == (2, number, "k")
    assert bodies(broker) == []


async def test_a_commit_delivers_and_a_roll_back_does_not(broker: LocalBroker) -> None:
    assert broker.ask(prepare(broker, b"yes")) is None
    assert broker.ask(changed(prepare(broker, b"no"), commit_or_rollback=ROLL_BACK)) is None
    assert broker.ask(changed(prepare(broker, b"perhaps"), commit_or_rollback=UNKNOWN)) is None
    assert bodies(broker) == [b"yes"]


@pytest.mark.parametrize("how", [1, 4, -8, 2**31 - 1])
async def test_another_word_is_no_end(broker: LocalBroker, how: int) -> None:
    with refuses(ResponseCode.SYSTEM_ERROR, ": commitOrRollback field wrong$"):
        broker.ask(changed(prepare(broker), commit_or_rollback=how))
    assert bodies(broker) == []


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"position": 10**6}, "Find prepared transaction message failed"),
        ({"position": -7}, "Find prepared transaction message failed"),
        ({"producer_group": ""}, "The producer group wrong"),
        ({"producer_group": "PG"}, "The producer group wrong"),
        ({"half_offset": 1}, "The transaction state table offset wrong"),
    ],
)
async def test_an_end_that_contradicts_its_half_message_is_refused_in_apaches_words(
    broker: LocalBroker, fields: dict[str, Any], remark: str
) -> None:
    call = prepare(broker)
    for how in (COMMIT, ROLL_BACK):
        with refuses(ResponseCode.SYSTEM_ERROR, f": {remark}$"):
            broker.ask(changed(call, commit_or_rollback=how, **fields))
    assert broker.ask(call) is None


async def test_an_end_that_comes_twice_is_refused(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    call = prepare(broker)
    broker.ask(call)
    for fields in ({}, {"commit_or_rollback": ROLL_BACK}, {"from_transaction_check": True}):
        with pytest.raises(CallRefused, match="ended before"):
            broker.ask(changed(call, **fields))
    assert bodies(broker) == [b"m"]
    assert "10.0.0.7:5000 of group pg" in caplog.text, "most ends are one-way"


async def test_a_client_that_ends_what_has_ended_again_and_again_fills_no_log(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(line_filter := LineFilter())  # as each server's process has it
    try:
        broker.ask(call := prepare(broker))
        for _ in range(BURST + 100):
            with pytest.raises(CallRefused):
                broker.ask(call)
    finally:
        caplog.handler.removeFilter(line_filter)
    assert caplog.text.count("has ended before") == BURST


async def test_an_end_after_its_senders_time_waits_for_the_check(broker: LocalBroker) -> None:
    late = prepare(broker, extra="CHECK_IMMUNITY_TIME_IN_SECONDS\x017\x02", born_timestamp=1)
    with refuses(ResponseCode.ILLEGAL_OPERATION):
        broker.ask(late)
    assert broker.ask(changed(late, from_transaction_check=True)) is None
    soon = prepare(broker, b"2", extra="CHECK_IMMUNITY_TIME_IN_SECONDS\x017\x02")
    assert broker.ask(soon) is None
    assert bodies(broker) == [b"m", b"2"]


async def test_a_transaction_committed_before_is_not_delivered_again(broker: LocalBroker) -> None:
    """A half message that its producer, who got no answer, had sent once more."""
    first, second = prepare(broker), prepare(broker)
    broker.ask(second)
    assert broker.ask(changed(first, from_transaction_check=True)) is None
    assert bodies(broker) == [b"m"]
    with pytest.raises(CallRefused, match="ended before"):
        broker.ask(first)


async def test_an_end_waits_until_the_key_index_has_caught_up(broker: LocalBroker) -> None:
    first, second = prepare(broker), prepare(broker)
    broker.ask(second)
    for number in range(600):
        broker.send(b"%d" % number, properties="", topic="others")
    waiting = broker.ask(changed(first, from_transaction_check=True))
    assert isinstance(waiting, Awaitable)
    assert await waiting is None
    assert bodies(broker) == [b"m"]
    with pytest.raises(CallRefused, match="ended before"):
        broker.ask(first)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreFull("the disk is full"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (MessageIllegal("too long"), ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_a_commit_that_could_not_be_stored_can_be_repeated(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    call = prepare(broker)

    with monkeypatch.context() as patched:
        patched.setattr(broker.log.ingest, "reappend", failing(error))
        with refuses(code):
            broker.ask(call)
    assert broker.ask(call) is None
    assert bodies(broker) == [b"m"]


async def test_a_half_message_for_a_topic_of_the_brokers_own_is_not_found(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = prepare(broker)
    half = not_none(broker.delivery.transactions.queue.find(call.position))
    monkeypatch.setattr(broker.delivery.transactions.queue, "find", lambda _: half)
    for topic in ("", "SCHEDULE_TOPIC_XXXX", "rmq_sys_REVIVE_LOG_DefaultCluster"):
        half.properties["REAL_TOPIC"] = topic
        with pytest.raises(CallRefused, match="Find prepared"):
            broker.ask(call)


async def test_a_half_message_that_was_given_up_can_be_put_back(broker: LocalBroker) -> None:
    call = prepare(broker)
    message_id = give_up(broker, call)
    with pytest.raises(CallRefused, match="ended before"):
        broker.ask(call)
    assert broker.ask(ResumeCheck(msg_id=message_id)) is None
    resumed = not_none(broker.delivery.transactions.queue.at(1))
    assert broker.ask(changed(call, half_offset=1, position=resumed.record.position)) is None
    assert bodies(broker) == [b"m"]


async def test_a_message_that_was_put_back_is_answered_once_it_is_as_safe_as_a_send(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = give_up(broker, prepare(broker))
    waited_for: list[int] = []

    async def status(position: int) -> None:
        waited_for.append(position)

    acknowledgements = broker.replication.acknowledgements
    monkeypatch.setattr(acknowledgements, "is_needed", True)
    monkeypatch.setattr(acknowledgements, "status", status)
    await broker.ask(ResumeCheck(msg_id=message_id))
    assert waited_for == [broker.log.store.end_position]


async def test_only_half_messages_given_up_are_put_back(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = broker.log.ingest.message_id(prepare(broker).position)
    for message_id in (None, "", "short", "X" * 32, "0" * 32, "F" * 32, half):
        with refuses(ResponseCode.SYSTEM_ERROR):
            broker.ask(ResumeCheck(msg_id=message_id))
    assert broker.delivery.transactions.queue.bounds() == (0, 1)


async def test_a_disk_that_takes_nothing_puts_nothing_back(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = give_up(broker, prepare(broker))
    monkeypatch.setattr(broker.log.ingest, "reappend", failing(StoreFull("the disk is full")))
    with pytest.raises(CallRefused, match="RMQ_SYS_TRANS_HALF_TOPIC failed"):
        broker.ask(ResumeCheck(msg_id=message_id))
