import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.conftest import not_none, refuses
from tests.broker.log_harness import LogHarness

from roquet.broker.services.transactions import half_messages
from roquet.broker.services.transactions.half_messages import HalfMessage, HalfQueue
from roquet.model.errors import CallRefused
from roquet.store.store import Draft
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import POSITION_AT, Record, decode

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT = 8


class HalfQueueHarness(LogHarness):
    """A store with half messages, and what comes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = HalfQueue(self.store)

    def append(
        self, topic: str = HALF, body: bytes = b"m", key: str = "k", **fields: Any
    ) -> Record:
        extra = fields.pop("extra", "")
        text = f"PGROUP\x01g\x02REAL_TOPIC\x01t\x02REAL_QID\x013\x02UNIQ_KEY\x01{key}\x02{extra}"
        draft = Draft(topic, 0, body, text.encode(), **fields)
        raw = not_none(self.store.message_at(self.store.append(draft, 1_000).position))
        return decode(raw)

    def half(self, **fields: Any) -> HalfMessage:
        return not_none(self.queue.find(self.append(**fields).position))


@pytest.fixture
def harness() -> Iterator[HalfQueueHarness]:
    harness = HalfQueueHarness()
    yield harness
    harness.close()


def test_a_half_message_is_found_by_position_and_by_offset(harness: HalfQueueHarness) -> None:
    harness.append(topic="t")
    first, second = harness.half(body=b"1"), harness.half(body=b"2")
    assert (first.offset, second.offset) == (0, 1)
    assert harness.queue.at(1) == second
    assert harness.queue.bounds() == (0, 2)
    assert (first.topic, first.unique_key) == ("t", "k")
    place = second.place
    assert (place.group, place.offset, place.position) == ("g", 1, second.record.position)


def test_a_record_that_is_no_half_message_is_not_found(harness: HalfQueueHarness) -> None:
    plain = harness.append(topic="t")
    half = harness.half()
    for position in (-1, plain.position, half.record.position + 1, 2**62):
        assert harness.queue.find(position) is None
    for offset in (-1, 1, 10**9):
        assert harness.queue.at(offset) is None


def test_a_damaged_one_is_not_found(
    harness: HalfQueueHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    half = harness.half()
    raw = bytearray(harness.store.message_at(half.record.position) or b"")
    raw[88] ^= 1
    monkeypatch.setattr(harness.store, "message_at", lambda *_, **__: bytes(raw))
    assert harness.queue.find(half.record.position) is None
    assert "checksum" in caplog.text


def test_facts_of_a_half_message_for_its_checks(harness: HalfQueueHarness) -> None:
    extra = "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02TRANSACTION_CHECK_TIMES\x013\x02"
    half = harness.half(extra=extra, born_ms=77)
    facts = half.facts
    assert (facts.born_ms, facts.stored_ms, facts.immunity, facts.checked) == (77, 1_000, "60", "3")
    assert half.has_immunity
    assert half.was_put_back
    plain = harness.half()
    assert not plain.has_immunity
    assert not plain.was_put_back
    assert harness.half(extra="TRAN_PREPARED_QUEUE_OFFSET\x010\x02").was_put_back


def test_a_body_that_looks_like_a_half_message_is_not_one(harness: HalfQueueHarness) -> None:
    """Whoever could name it would end others' transactions, or have us count to its offset."""
    first = harness.half()
    raw = not_none(harness.store.message_at(first.record.position))
    carrier = harness.append(topic="t", body=b"mark" + raw)
    whole = not_none(harness.store.message_at(carrier.position))
    at = whole.index(b"mark") + 4
    place = harness.store.end_position + at
    forged = raw[:POSITION_AT] + place.to_bytes(8, "big") + raw[POSITION_AT + 8 :]
    harness.append(topic="t", body=b"mark" + forged)
    assert harness.store.message_at(place) is not None, (
        "it is a record to those who only look at it"
    )
    assert harness.queue.find(place) is None


def test_a_commit_is_found_wherever_it_waits(harness: HalfQueueHarness) -> None:
    for number, topic in enumerate(("t", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")):
        half = harness.half(key=f"k{number}")
        assert not harness.queue.was_delivered(half)
        harness.append(topic=topic, key=f"k{number}", sys_flag=COMMIT)
        assert harness.queue.was_delivered(half)
        assert harness.queue.was_settled(half)


@pytest.mark.parametrize(
    "fields",
    [
        {"sys_flag": 0},
        {"body": b"other"},
        {"key": "other"},
        {"topic": "another"},
        {"born_ms": half_messages.SENT_AGAIN_MS + 1},
        {"born_ms": -1},
    ],
)
def test_a_record_that_differs_is_another_message(
    harness: HalfQueueHarness, fields: dict[str, Any]
) -> None:
    half = harness.half()
    harness.append(**{"topic": "t", "sys_flag": COMMIT, **fields})
    assert not harness.queue.was_delivered(half)
    assert not harness.queue.was_settled(half)


def test_another_row_of_a_table_is_another_message(harness: HalfQueueHarness) -> None:
    first, second = (harness.half(extra=f"ROQUET_ROW\x01q/1/0/{row}\x02") for row in (1, 2))
    harness.append(topic="t", sys_flag=COMMIT, extra="ROQUET_ROW\x01q/1/0/1\x02")
    assert harness.queue.was_delivered(first)
    assert not harness.queue.was_delivered(second)


def test_a_half_message_without_a_key_cannot_be_searched(harness: HalfQueueHarness) -> None:
    half = harness.half()
    half.properties.pop("UNIQ_KEY")
    harness.append(topic="t", sys_flag=COMMIT)
    assert not harness.queue.was_delivered(half)


def test_the_new_offset_of_a_half_message_is_found(harness: HalfQueueHarness) -> None:
    half = harness.half()
    harness.half()  # sent twice, which is something else
    moved = [
        harness.half(extra=f"TRANSACTION_CHECK_TIMES\x01{times}\x02", prepared_position=times)
        for times in (1, 2)
    ]
    assert harness.queue.put_back_since(half) == moved
    assert harness.queue.put_back_since(moved[0]) == moved[1:]
    assert harness.queue.put_back_since(moved[1]) == []


def test_the_original_is_known_also_from_apaches_broker(harness: HalfQueueHarness) -> None:
    first = harness.half()
    assert not harness.queue.was_settled(first)
    position = first.record.position
    assert position == 0, "which says nothing by itself"
    harness.half()
    assert not harness.queue.was_settled(first)
    kept = harness.half(extra="TRAN_PREPARED_QUEUE_OFFSET\x010\x02", prepared_position=position)
    assert harness.queue.was_settled(first)
    assert not harness.queue.was_settled(kept)
    harness.half(extra="TRANSACTION_CHECK_TIMES\x011\x02")
    assert harness.queue.was_settled(kept)


def test_a_half_message_given_up_is_settled_until_it_is_put_back(harness: HalfQueueHarness) -> None:
    half = harness.half()
    harness.append(topic=GIVEN_UP)
    resumed = harness.half(extra="TRANSACTION_CHECK_TIMES\x010\x02")
    assert harness.queue.was_settled(half)
    assert not harness.queue.was_settled(resumed)


def test_an_incomplete_key_index_decides_nothing(
    harness: HalfQueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = harness.half()
    harness.append(topic="t", sys_flag=COMMIT)
    monkeypatch.setattr(half_messages, "INDEX_STEPS", 1)
    monkeypatch.setattr(half_messages, "INDEX_COUNT", 1)
    with refuses(ResponseCode.SYSTEM_BUSY):
        harness.queue.was_delivered(half)
    harness.store.dispatch()
    assert harness.queue.was_delivered(half)


async def test_the_index_is_made_a_millisecond_at_a_time(harness: HalfQueueHarness) -> None:
    half = harness.half()
    for _ in range(1_000):
        harness.append(topic="t", key="another")
    harness.append(topic="t", sys_flag=COMMIT)
    turns = list[int]()

    async def other() -> None:
        while harness.store.indexed_position < harness.store.end_position:
            turns.append(harness.store.indexed_position)
            await asyncio.sleep(0)

    await asyncio.gather(harness.queue.index(), other())
    assert len(set(turns)) > 2
    assert harness.queue.was_delivered(half)


async def test_an_index_that_takes_long_is_not_waited_for(
    harness: HalfQueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_messages, "INDEX_STEPS", 2)
    monkeypatch.setattr(half_messages, "INDEX_COUNT", 1)
    half = harness.half()
    for _ in range(5):
        harness.append(topic="t")
    await harness.queue.index()
    with pytest.raises(CallRefused):
        harness.queue.was_delivered(half)


def test_the_newest_messages_of_a_key_are_examined(
    harness: HalfQueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = harness.half()
    harness.append(topic="t", sys_flag=COMMIT)
    for _ in range(3):
        harness.append(topic="t")
    assert harness.queue.was_delivered(half)
    monkeypatch.setattr(half_messages, "SAME_KEY_BYTES", 1)
    assert not harness.queue.was_delivered(half)


def test_one_that_replicas_do_not_have_is_found_by_position(harness: HalfQueueHarness) -> None:
    half = harness.half()
    harness.store.set_confirmed(half.record.position)
    assert harness.queue.at(half.offset) is None
    assert harness.queue.find(half.record.position) == half
    assert harness.queue.stored_at(half.record.position) == half
