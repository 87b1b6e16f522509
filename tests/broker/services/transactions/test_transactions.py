from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.conftest import failing, not_none
from tests.broker.log_harness import HOST, HOST_V6, LogHarness

from roquet.broker.services.transactions import transactions as module
from roquet.broker.services.transactions.half_messages import HalfMessage
from roquet.broker.services.transactions.transactions import GROUP, Transactions
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.request_modes import RequestModes
from roquet.model.errors import MessageIllegal, StoreFull
from roquet.store.store import Draft
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties

HALF, OPS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


class TransactionsHarness(LogHarness):
    """Transactions with all that they need."""

    def __init__(self, host: bytes = HOST, **settings: Any) -> None:
        super().__init__("t", host, **settings)
        self.offsets = ConsumerOffsets(None)
        self.tables = BrokerTables(
            topics=self.topics, groups=Groups(None, self.settings, 0), offsets=self.offsets,
            request_modes=RequestModes(None), ordered_pops=OrderedPops(None),
            delay_offsets=DelayOffsets(None),
        )  # fmt: skip
        self.transactions = self.started()

    def started(self) -> Transactions:
        """As after a restart."""
        transactions = Transactions(
            self.message_log, self.tables, self.destinations, self.set_aside, self.clock,
            self.settings,
        )  # fmt: skip
        transactions.restore()
        return transactions

    def half(self, body: bytes = b"m", queue_id: int = 2, **fields: Any) -> HalfMessage:
        """Store one."""
        text = (
            f"TAGS\x01red\x02PGROUP\x01g\x02UNIQ_KEY\x01{body.decode()}\x02TRAN_MSG\x01true\x02"
            f"{fields.pop('extra', '')}REAL_TOPIC\x01{fields.pop('topic', 't')}\x02"
            f"REAL_QID\x01{queue_id}\x02"
        )
        fields_of_draft = {"born_ms": 5, "flag": 3, "reconsume_times": 1, **fields}
        raw = text.encode("utf-8", "surrogateescape")
        draft = Draft(HALF, 0, body, raw, hash_code("red"), **fields_of_draft)
        position = self.store.append(draft, self.clock.now_ms()).position
        return not_none(self.transactions.queue.find(position))

    def ops(self) -> bytes:
        return b"".join(record.body for record in self.records(OPS))

    def progress(self) -> tuple[int | None, int | None]:
        return self.offsets.get(GROUP, HALF, 0), self.offsets.get(GROUP, OPS, 0)


@pytest.fixture
def harness() -> Iterator[TransactionsHarness]:
    harness = TransactionsHarness()
    yield harness
    harness.close()


def test_a_commit_is_the_message_that_was_sent(harness: TransactionsHarness) -> None:
    half = harness.half(sys_flag=1)
    harness.transactions.commit(half)
    (record,) = harness.records("t", 2)
    assert (record.body, record.flag, record.reconsume_times, record.born_ms) == (b"m", 3, 1, 5)
    assert record.sys_flag == 1 | 8
    assert record.prepared_position == half.record.position
    assert decode_properties(record.properties) == {
        "TAGS": "red", "PGROUP": "g", "UNIQ_KEY": "m", "TRAN_MSG": "true",
    }  # fmt: skip
    red = hash_code("red")
    assert harness.store.read("t", 2, 0, wanted=lambda code: code == red).count == 1
    assert harness.transactions.current(half) is None


def test_bytes_that_are_not_utf_8_are_kept_in_all_copies(harness: TransactionsHarness) -> None:
    half = harness.half(extra="a\x01\udcb1\udcea\x02")
    again = harness.transactions.put_back(half, {"TRANSACTION_CHECK_TIMES": "1"})
    harness.transactions.commit(again)
    assert b"a\x01\xb1\xea\x02" in again.record.properties
    assert b"a\x01\xb1\xea\x02" in harness.records("t", 2)[0].properties


def test_a_commit_is_delivered_to_an_existing_queue(harness: TransactionsHarness) -> None:
    harness.transactions.commit(harness.half(b"1", queue_id=6))
    assert len(harness.records("t", 2)) == 1
    harness.transactions.commit(harness.half(b"2", queue_id=1, topic="gone"))
    assert harness.topics.get("gone") is not None
    assert len(harness.records("gone", 1)) == 1


def test_a_committed_message_may_be_delayed(harness: TransactionsHarness) -> None:
    harness.transactions.commit(harness.half(extra="DELAY\x013\x02"))
    assert harness.store.bounds("t", 2) == (0, 0)
    (record,) = harness.records("SCHEDULE_TOPIC_XXXX", 2)
    properties = decode_properties(record.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("t", "2")


def test_a_transaction_whose_end_cannot_be_stored_stays_open(
    harness: TransactionsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = harness.half()

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "append", failing(StoreFull("the disk is full")))
        with pytest.raises(StoreFull):
            harness.transactions.commit(half)
        with pytest.raises(StoreFull):
            harness.transactions.put_back(half, {})
        with pytest.raises(StoreFull):
            harness.transactions.give_up(half)
    assert harness.transactions.current(half) == half
    with pytest.raises(MessageIllegal):
        harness.transactions.put_back(half, {"a": "x" * 40_000})
    assert harness.transactions.current(half) == half


def test_a_half_message_that_was_put_back_stands_at_the_end(harness: TransactionsHarness) -> None:
    half = harness.half(extra="DELAY\x013\x02")
    harness.half(b"other")
    moved = harness.transactions.put_back(half, {"TRANSACTION_CHECK_TIMES": "1"})
    assert moved == harness.transactions.queue.at(2)
    assert moved.record.prepared_position == 0 == half.record.position
    assert moved.properties == half.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    assert moved.record.flag == 3
    assert harness.transactions.current(half) == moved
    again = harness.transactions.put_back(moved, {"TRANSACTION_CHECK_TIMES": "2"})
    assert harness.transactions.current(half) == again == harness.transactions.current(moved)
    harness.transactions.roll_back(again)
    assert harness.transactions.current(half) is None


def test_half_messages_given_up_are_kept_in_their_own_topic(harness: TransactionsHarness) -> None:
    half = harness.half(extra="TRANSACTION_CHECK_TIMES\x0115\x02")
    harness.transactions.give_up(half)
    (record,) = harness.records(GIVEN_UP)
    assert decode_properties(record.properties) == half.properties
    topic = not_none(harness.topics.get(GIVEN_UP))
    assert (topic.read_queue_nums, topic.perm) == (1, 6)
    harness.transactions.resume(record)
    resumed = not_none(harness.transactions.queue.at(1))
    assert resumed.properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert harness.transactions.current(resumed) == resumed


def test_op_messages_equal_those_of_apaches_broker(harness: TransactionsHarness) -> None:
    for number in range(3):
        harness.transactions.roll_back(harness.half(b"%d" % number))
    assert harness.ops() == b""
    harness.clock.jump(1)
    harness.transactions.step()
    (record,) = harness.records(OPS)
    assert (record.body, record.sys_flag, record.born_ms) == (b"0,1,2,", 0, harness.clock.now_ms())
    assert (record.born_host, record.store_host) == (HOST, HOST)
    assert decode_properties(record.properties) == {"TAGS": "d", "WAIT": "true"}
    assert harness.store.read(OPS, 0, 0, wanted=lambda code: code == 100).count == 1
    harness.transactions.step()
    assert len(harness.records(OPS)) == 1


def test_many_ends_are_written_at_once() -> None:
    harness = TransactionsHarness(transaction_op_size=10, host=HOST_V6)
    for number in range(12):
        harness.transactions.roll_back(harness.half(b"%d" % number))
    assert [record.body for record in harness.records(OPS)] == [b"0,1,2,3,4,", b"5,6,7,8,9,"]
    assert {record.sys_flag for record in harness.records(OPS)} == {16 | 32}
    harness.transactions.step()
    assert harness.ops().endswith(b"9,10,11,")
    harness.close()


def test_progress_says_what_is_ended_and_which_ops_are_needed(harness: TransactionsHarness) -> None:
    halves = [harness.half(b"%d" % number) for number in range(6)]
    harness.transactions.step()
    assert harness.progress() == (0, 0)
    harness.transactions.roll_back(halves[1])
    harness.transactions.step()
    assert harness.progress() == (0, 0)
    harness.transactions.roll_back(halves[0])
    harness.transactions.roll_back(halves[3])
    harness.transactions.step()
    assert harness.progress() == (2, 1)
    harness.transactions.roll_back(halves[2])
    harness.transactions.step()
    assert harness.progress() == (4, 3)
    assert len(harness.transactions.halves) == 0


def test_open_transactions_are_known_after_a_restart(harness: TransactionsHarness) -> None:
    halves = [harness.half(b"%d" % number) for number in range(8)]
    for number in (0, 1, 3, 6):
        harness.transactions.roll_back(halves[number])
        harness.transactions.step()
    restarted = harness.started()
    assert restarted.halves.start == 2
    assert [restarted.current(half) is None for half in halves] == [
        True, True, False, True, False, False, True, False,
    ]  # fmt: skip
    assert restarted.is_old(halves[7])
    harness.transactions = restarted
    assert not restarted.is_old(harness.half(b"new"))


@pytest.mark.parametrize("saved", [(100, 100), (-3, -3), (None, None), (0, 0)])
def test_progress_that_does_not_agree_with_the_queues_loses_nothing(
    harness: TransactionsHarness, saved: tuple[int | None, int | None]
) -> None:
    """A crash may take back messages that the progress speaks of."""
    for number in range(3):
        harness.half(b"%d" % number)
    harness.store.append(Draft(OPS, 0, b"0,7,900000000000000000,", b"TAGS\x01d\x02", 100), 5)
    for topic, offset in zip((HALF, OPS), saved, strict=True):
        if offset is not None:
            harness.offsets.commit(GROUP, topic, 0, offset)
    harness.transactions = harness.started()
    later = [harness.half(b"%d" % number) for number in range(3, 9)]
    assert all(harness.transactions.current(half) == half for half in later)
    assert len(harness.transactions.halves) <= 3


def test_ops_of_other_kinds_are_left_out(harness: TransactionsHarness) -> None:
    halves = [harness.half(b"%d" % number) for number in range(4)]
    harness.store.append(Draft(OPS, 0, b"0,", b"TAGS\x01r\x02", 114), 5)
    harness.store.append(Draft(OPS, 0, b"1", b"TAGS\x01d\x02", 100), 5)  # as version 4 writes it
    harness.store.append(Draft(OPS, 0, b"x,,2", b"TAGS\x01d\x02", 100), 5)
    restarted = harness.started()
    assert [restarted.current(half) is None for half in halves] == [False, True, True, False]


def test_an_op_message_with_another_tag_ends_nothing(harness: TransactionsHarness) -> None:
    halves = [harness.half(b"%d" % number) for number in range(3)]
    harness.store.append(Draft(OPS, 0, b"0,", b"TAGS\x01d\x02", 100), 5)
    harness.store.append(Draft(OPS, 0, b"1,", b"TAGS\x01\xff\x02", 100), 5)
    harness.store.append(Draft(OPS, 0, b"2,", b"TAGS\x01d\x02", 100), 5)
    restarted = harness.started()
    assert [restarted.current(half) is None for half in halves] == [True, False, True]
    assert harness.set_aside.total == 0


def test_op_messages_that_cannot_be_stored_are_logged_once_and_kept(
    harness: TransactionsHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 3)
    halves = [harness.half(b"%d" % number) for number in range(6)]

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "append", failing(StoreFull("the disk is full")))
        for half in halves[:3]:
            harness.transactions.roll_back(half)
            harness.transactions.step()
        with pytest.raises(StoreFull):
            harness.transactions.roll_back(halves[3])
        assert harness.transactions.current(halves[3]) == halves[3]
    assert caplog.text.count("cannot be stored") == 1
    harness.transactions.roll_back(halves[3])
    harness.transactions.step()
    assert harness.ops() == b"0,1,2,3,"


def test_other_settings_hold_at_once(harness: TransactionsHarness) -> None:
    harness.settings.change({"transaction_op_size": "1", "auto_create_topic": "false"}, 0)
    harness.transactions.commit(harness.half(topic="gone"))
    assert harness.ops() == b"0,"
    assert harness.topics.get("gone") is None
