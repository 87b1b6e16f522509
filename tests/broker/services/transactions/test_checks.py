import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, failing, not_none
from tests.broker.services.transactions.test_transactions import GIVEN_UP, TransactionsHarness

from roquet.broker.services.transactions import checks as module
from roquet.broker.services.transactions.checks import TransactionChecks
from roquet.broker.services.transactions.half_messages import HalfMessage, HalfQueue
from roquet.broker.tables.clients import Clients
from roquet.model.errors import CallRefused
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.testing.clock import in_virtual_time
from roquet.wire.call import Call
from roquet.wire.calls.transaction import CheckTransactionState
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import decode


class ChecksHarness(TransactionsHarness):
    """A bank with those who ask."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.clients = Clients()
        self.peer = FakePeer()
        self.checks = TransactionChecks(self.transactions, self.clients, self.clock, Random(1))

    def hire(self, peer: FakePeer | None = None, group: str = "g") -> FakePeer:
        """Connect a producer, `peer` of this harness if no other."""
        peer = peer or self.peer
        data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name=group)])
        self.clients.beat(peer, data)
        return peer

    def born(self, body: bytes = b"m", **fields: Any) -> HalfMessage:
        """A half message, ten seconds before now."""
        half = self.half(body, born_ms=self.clock.now_ms(), **fields)
        self.clock.jump(10_000)
        return half

    def open(self) -> list[bytes]:
        """The bodies of those that nobody has ended, in their order."""
        halves, bodies = self.transactions.halves, []
        offset, end = halves.start, self.transactions.queue.bounds()[1]
        while (offset := halves.next_open(offset)) < end:
            half = self.transactions.queue.at(offset)
            bodies.append(half.record.body if half else b"?")
            offset += 1
        return bodies


@pytest.fixture
def harness() -> Iterator[ChecksHarness]:
    harness = ChecksHarness()
    yield harness
    harness.store.close(0)


def asked(peer: FakePeer) -> list[bytes]:
    return [decode(call.body).body for call in peer.told]


async def test_an_open_message_is_put_back_and_its_producer_asked(harness: ChecksHarness) -> None:
    harness.hire()
    half = harness.born()
    await harness.checks.step()
    (call,) = harness.peer.told
    assert isinstance(call, CheckTransactionState)
    moved = not_none(harness.transactions.current(half))
    assert (call.half_offset, call.position) == (1, moved.record.position)
    assert (call.msg_id, call.transaction_id) == ("m", "m")
    shown = decode(call.body)
    assert (shown.topic, shown.queue_id, shown.body, shown.flag) == ("t", 2, b"m", 3)
    assert decode_properties(shown.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert harness.ops() == b"0,", "what was put back is ended where it was"
    assert harness.progress() == (1, 1)


async def test_ended_transactions_are_not_checked(harness: ChecksHarness) -> None:
    harness.hire()
    halves = [harness.born(b"%d" % number) for number in range(5)]
    for number in (0, 2, 3):
        harness.transactions.roll_back(halves[number])
    await harness.checks.step()
    assert asked(harness.peer) == [b"1", b"4"]


async def test_a_round_ends_at_the_first_that_is_too_young(harness: ChecksHarness) -> None:
    harness.hire()
    harness.born(b"old")
    harness.half(b"young", born_ms=harness.clock.now_ms() - 5_000)
    harness.half(b"old as well", born_ms=harness.clock.now_ms() - 50_000)
    await harness.checks.step()
    assert asked(harness.peer) == [b"old"]
    harness.clock.jump(2_000)
    await harness.checks.step()
    assert asked(harness.peer) == [b"old", b"young", b"old as well", b"old"]


async def test_a_half_message_immune_to_checks_delays_no_others(harness: ChecksHarness) -> None:
    harness.hire()
    harness.born(b"quiet", extra="CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02")
    harness.born(b"other")
    await harness.checks.step()
    assert asked(harness.peer) == [b"other"]
    assert harness.open() == [b"quiet", b"other"]
    (kept,) = [
        half
        for offset in range(2, 4)
        if (half := harness.transactions.queue.at(offset)) and half.record.body == b"quiet"
    ]
    assert kept.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in kept.properties
    harness.clock.jump(30_000)
    await harness.checks.step()
    again = not_none(harness.transactions.current(kept))
    assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0", "where it stood at first"
    harness.clock.jump(100_000)
    await harness.checks.step()
    assert asked(harness.peer)[-2:].count(b"quiet") == 1


async def test_a_half_message_is_given_up_after_the_last_check(
    harness: ChecksHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.hire()
    harness.born()
    for _ in range(20):
        await harness.checks.step()
        harness.clock.jump(30_000)
    assert len(harness.peer.told) == 15
    (record,) = harness.records(GIVEN_UP)
    assert decode_properties(record.properties)["TRANSACTION_CHECK_TIMES"] == "15"
    assert harness.open() == []
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert "after 15 checks" in line


async def test_a_half_message_about_to_expire_is_given_up(
    harness: ChecksHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.hire()
    harness.born()
    harness.clock.jump(72 * 3_600_000)
    await harness.checks.step()
    assert harness.peer.told == []
    assert len(harness.records(GIVEN_UP)) == 1
    assert "after 0 checks: it is too old" in caplog.text


async def test_a_group_without_producers_is_counted_and_logged_once(
    harness: ChecksHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.born()
    for _ in range(3):
        await harness.checks.step()
        harness.clock.jump(30_000)
    assert caplog.text.count("no producer of group g") == 1
    harness.hire()
    await harness.checks.step()
    (call,) = harness.peer.told
    assert decode_properties(decode(call.body).properties)["TRANSACTION_CHECK_TIMES"] == "4"


async def test_closed_and_full_connections_are_not_asked(harness: ChecksHarness) -> None:
    gone, full, there = (harness.hire(FakePeer()) for _ in range(3))
    gone.closed = True
    full.is_full = True
    for number in range(10):
        harness.born(b"%d" % number)
    await harness.checks.step()
    assert (len(gone.told), len(full.told), len(there.told)) == (0, 0, 10)


async def test_all_producers_of_a_group_are_asked_in_turn(harness: ChecksHarness) -> None:
    peers = [harness.hire(FakePeer()) for _ in range(3)]
    harness.hire(FakePeer(), "other")
    for number in range(40):
        harness.born(b"%d" % number)
    await harness.checks.step()
    counts = [len(peer.told) for peer in peers]
    assert sum(counts) == 40
    assert min(counts) > 3


async def test_without_room_for_the_count_it_is_checked_in_place(harness: ChecksHarness) -> None:
    harness.hire()
    used = len(harness.born(b"probe", extra="a\x01\x02").record.properties)
    drain = PROPERTIES_SIZE_MAX - used
    quiet = "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02"
    harness.born(b"plain", extra=f"a\x01{'x' * drain}\x02")
    harness.born(b"quiet", extra=f"a\x01{'x' * (drain - len(quiet))}\x02{quiet}")
    for times in (1, 2):
        await harness.checks.step()
        assert sorted(asked(harness.peer)) == sorted([b"probe", b"plain", b"quiet"] * times)
        harness.clock.jump(10_000)
    assert harness.records(GIVEN_UP) == []
    assert harness.open() == [b"plain", b"quiet", b"probe"]
    harness.clock.jump(73 * 3_600_000)
    await harness.checks.step()
    records = harness.records(GIVEN_UP)
    assert sorted(record.body for record in records) == [b"plain", b"probe", b"quiet"]


async def test_a_transaction_ended_before_a_restart_is_not_checked(
    harness: ChecksHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.hire()
    harness.born(b"ended")
    harness.born(b"open")
    monkeypatch.setattr(HalfQueue, "was_settled", lambda _, half: half.record.body == b"ended")
    harness.transactions.restore()
    await harness.checks.step()
    assert asked(harness.peer) == [b"open"]
    assert harness.open() == [b"open"]


async def test_nothing_is_checked_until_the_key_index_has_caught_up(
    harness: ChecksHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.hire()
    harness.born()
    harness.transactions.restore()

    with monkeypatch.context() as patched:
        patched.setattr(
            HalfQueue, "was_settled", failing(CallRefused(2, "the key index is still being made"))
        )
        await harness.checks.step()
    assert harness.peer.told == []
    await harness.checks.step()
    assert asked(harness.peer) == [b"m"]


async def test_an_unreadable_half_message_is_logged_and_skipped(
    harness: ChecksHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness.hire()
    for number in range(3):
        harness.born(b"%d" % number)
    at = HalfQueue.at
    monkeypatch.setattr(HalfQueue, "at", lambda queue, n: None if n == 1 else at(queue, n))
    await harness.checks.step()
    assert asked(harness.peer) == [b"0", b"2"]
    assert "RMQ_SYS_TRANS_HALF_TOPIC/0/1/" in caplog.text
    assert harness.set_aside.total == 1
    await harness.checks.step()
    assert harness.set_aside.total == 1, "it is ended, not looked at again"


async def test_half_messages_deleted_by_retention_are_forgotten(
    harness: ChecksHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.hire()
    for number in range(3):
        harness.born(b"%d" % number)
    monkeypatch.setattr(HalfQueue, "bounds", lambda _: (2, 3))
    await harness.checks.step()
    assert asked(harness.peer) == [b"2"]


async def test_a_round_ends_after_a_minute_and_continues_the_next_time(
    harness: ChecksHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.hire()
    for number in range(4):
        harness.born(b"%d" % number)
    oneway = harness.peer.oneway

    def slow_oneway(call: Call[Any]) -> None:
        harness.clock.jump(25_000)
        oneway(call)

    monkeypatch.setattr(harness.peer, "oneway", slow_oneway)
    await harness.checks.step()
    assert asked(harness.peer) == [b"0", b"1", b"2"]
    monkeypatch.undo()
    await harness.checks.step()
    assert asked(harness.peer)[3] == b"3"


@in_virtual_time
async def test_other_tasks_run_during_a_round_and_rounds_do_not_overlap() -> None:
    harness = ChecksHarness()
    for number in range(3 * module.TOGETHER):
        harness.half(b"%d" % number, born_ms=harness.clock.now_ms())
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    harness.clock.jump(60_000)
    await asyncio.gather(harness.checks.step(), harness.checks.step())
    task.cancel()
    assert turns >= 3
    assert len(harness.open()) == 3 * module.TOGETHER
    assert harness.store.bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0)[1] == 6 * module.TOGETHER
    harness.store.close(0)


async def test_much_to_remember_begins_a_round(
    harness: ChecksHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.hire()
    halves = [harness.born(b"%d" % number) for number in range(10)]
    for half in halves[1:]:
        harness.transactions.roll_back(half)
    await harness.checks.relieve()
    assert harness.peer.told == []
    monkeypatch.setattr(module, "OPEN_MAX", 5)
    await harness.checks.relieve()
    assert asked(harness.peer) == [b"0"]
    assert len(harness.transactions.halves) <= 1


async def test_a_half_message_is_shown_only_to_producers_that_may_see_its_topic(
    harness: ChecksHarness, caplog: pytest.LogCaptureFixture
) -> None:
    spy, own = harness.hire(FakePeer()), FakePeer()
    may_see = [(own, "t")]
    harness.checks = TransactionChecks(
        harness.transactions, harness.clients, harness.clock, Random(1),
        lambda peer, topic: (peer, topic) in may_see,
    )  # fmt: skip
    harness.born()
    await harness.checks.step()
    assert "no producer of group g" in caplog.text
    harness.hire(own)
    for _ in range(5):
        harness.clock.jump(30_000)
        await harness.checks.step()
    assert (len(own.told), len(spy.told)) == (5, 0)
