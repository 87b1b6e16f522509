import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.broker.services.transactions.test_transactions import GIVEN_UP, Bank

from roquet.broker.services.transactions import checks as module
from roquet.broker.services.transactions.checks import TransactionChecks
from roquet.broker.services.transactions.half_messages import HalfMessage, HalfQueue
from roquet.broker.tables.clients import Clients
from roquet.model.errors import CallRefused
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.transaction import CheckTransactionState
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import decode


class Office(Bank):
    """A bank with those who ask."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.clients = Clients()
        self.checks = TransactionChecks(self.transactions, self.clients, self.clock, Random(1))

    def hire(self, peer: Any, group: str = "g") -> Any:
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
        halves, found = self.transactions.halves, []
        offset, end = halves.start, self.transactions.queue.bounds()[1]
        while (offset := halves.next_open(offset)) < end:
            half = self.transactions.queue.at(offset)
            found.append(half.record.body if half else b"?")
            offset += 1
        return found


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.store.close(0)


def asked(peer: Any) -> list[bytes]:
    return [decode(call.body).body for call in peer.told]


async def test_an_open_message_is_put_back_and_its_producer_asked(
    office: Office, peer: Any
) -> None:
    office.hire(peer)
    half = office.born()
    await office.checks.step()
    (call,) = peer.told
    assert isinstance(call, CheckTransactionState)
    moved = office.transactions.current(half)
    assert moved is not None
    assert (call.half_offset, call.position) == (1, moved.record.position)
    assert (call.msg_id, call.transaction_id) == ("m", "m")
    shown = decode(call.body)
    assert (shown.topic, shown.queue_id, shown.body, shown.flag) == ("t", 2, b"m", 3)
    assert decode_properties(shown.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert office.ops() == b"0,", "what was put back is ended where it was"
    assert office.progress() == (1, 1)


async def test_ended_ones_are_left_alone(office: Office, peer: Any) -> None:
    office.hire(peer)
    halves = [office.born(b"%d" % number) for number in range(5)]
    for number in (0, 2, 3):
        office.transactions.roll_back(halves[number])
    await office.checks.step()
    assert asked(peer) == [b"1", b"4"]


async def test_a_round_ends_at_the_first_that_is_too_young(office: Office, peer: Any) -> None:
    office.hire(peer)
    office.born(b"old")
    office.half(b"young", born_ms=office.clock.now_ms() - 5_000)
    office.half(b"old as well", born_ms=office.clock.now_ms() - 50_000)
    await office.checks.step()
    assert asked(peer) == [b"old"]
    office.clock.jump(2_000)
    await office.checks.step()
    assert asked(peer) == [b"old", b"young", b"old as well", b"old"]


async def test_one_that_wants_to_be_left_alone_does_not_hold_up_the_others(
    office: Office, peer: Any
) -> None:
    office.hire(peer)
    office.born(b"quiet", extra="CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02")
    office.born(b"other")
    await office.checks.step()
    assert asked(peer) == [b"other"]
    assert office.open() == [b"quiet", b"other"]
    (kept,) = [
        half
        for offset in range(2, 4)
        if (half := office.transactions.queue.at(offset)) and half.record.body == b"quiet"
    ]
    assert kept.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in kept.properties
    office.clock.jump(30_000)
    await office.checks.step()
    again = office.transactions.current(kept)
    assert again is not None
    assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0", "where it stood at first"
    office.clock.jump(100_000)
    await office.checks.step()
    assert asked(peer)[-2:].count(b"quiet") == 1


async def test_after_the_last_check_it_is_given_up(
    office: Office, peer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    office.hire(peer)
    office.born()
    for _ in range(20):
        await office.checks.step()
        office.clock.jump(30_000)
    assert len(peer.told) == 15
    (found,) = office.records(GIVEN_UP)
    assert decode_properties(found.properties)["TRANSACTION_CHECK_TIMES"] == "15"
    assert office.open() == []
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert "after 15 checks" in line


async def test_what_is_about_to_be_deleted_is_given_up(
    office: Office, peer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    office.hire(peer)
    office.born()
    office.clock.jump(72 * 3_600_000)
    await office.checks.step()
    assert peer.told == []
    assert len(office.records(GIVEN_UP)) == 1
    assert "after 0 checks: it is too old" in caplog.text


async def test_without_a_producer_it_is_counted_and_told_once(
    office: Office, peer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    office.born()
    for _ in range(3):
        await office.checks.step()
        office.clock.jump(30_000)
    assert caplog.text.count("no producer of group g") == 1
    office.hire(peer)
    await office.checks.step()
    (call,) = peer.told
    assert decode_properties(decode(call.body).properties)["TRANSACTION_CHECK_TIMES"] == "4"


async def test_nobody_is_asked_who_has_gone_or_takes_nothing(office: Office, new_peer: Any) -> None:
    gone, full, there = (office.hire(new_peer()) for _ in range(3))
    gone.closed = True
    full.is_full = True
    for number in range(10):
        office.born(b"%d" % number)
    await office.checks.step()
    assert (len(gone.told), len(full.told), len(there.told)) == (0, 0, 10)


async def test_all_producers_of_a_group_are_asked_in_turn(office: Office, new_peer: Any) -> None:
    peers = [office.hire(new_peer()) for _ in range(3)]
    office.hire(new_peer(), "other")
    for number in range(40):
        office.born(b"%d" % number)
    await office.checks.step()
    counts = [len(peer.told) for peer in peers]
    assert sum(counts) == 40
    assert min(counts) > 3


async def test_what_has_no_room_for_the_count_is_asked_about_where_it_stands(
    office: Office, peer: Any
) -> None:
    office.hire(peer)
    used = len(office.born(b"probe", extra="a\x01\x02").record.properties)
    drain = PROPERTIES_SIZE_MAX - used
    quiet = "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02"
    office.born(b"plain", extra=f"a\x01{'x' * drain}\x02")
    office.born(b"quiet", extra=f"a\x01{'x' * (drain - len(quiet))}\x02{quiet}")
    for times in (1, 2):
        await office.checks.step()
        assert sorted(asked(peer)) == sorted([b"probe", b"plain", b"quiet"] * times)
        office.clock.jump(10_000)
    assert office.records(GIVEN_UP) == []
    assert office.open() == [b"plain", b"quiet", b"probe"]
    office.clock.jump(73 * 3_600_000)
    await office.checks.step()
    found = office.records(GIVEN_UP)
    assert sorted(record.body for record in found) == [b"plain", b"probe", b"quiet"]


async def test_what_an_earlier_life_has_ended_is_not_asked_about(
    office: Office, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.hire(peer)
    office.born(b"ended")
    office.born(b"open")
    monkeypatch.setattr(HalfQueue, "was_settled", lambda _, half: half.record.body == b"ended")
    office.transactions.restore()
    await office.checks.step()
    assert asked(peer) == [b"open"]
    assert office.open() == [b"open"]


async def test_as_long_as_that_is_not_known_nobody_is_asked(
    office: Office, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.hire(peer)
    office.born()
    office.transactions.restore()

    def busy(*_: object) -> bool:
        raise CallRefused(2, "the key index is still being made")

    with monkeypatch.context() as patched:
        patched.setattr(HalfQueue, "was_settled", busy)
        await office.checks.step()
    assert peer.told == []
    await office.checks.step()
    assert asked(peer) == [b"m"]


async def test_what_cannot_be_read_is_told_and_passed(
    office: Office, peer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    office.hire(peer)
    for number in range(3):
        office.born(b"%d" % number)
    at = HalfQueue.at
    monkeypatch.setattr(HalfQueue, "at", lambda queue, n: None if n == 1 else at(queue, n))
    await office.checks.step()
    assert asked(peer) == [b"0", b"2"]
    assert "RMQ_SYS_TRANS_HALF_TOPIC/0/1/" in caplog.text
    assert office.set_aside.total == 1
    await office.checks.step()
    assert office.set_aside.total == 1, "it is ended, not looked at again"


async def test_what_retention_has_deleted_is_forgotten(
    office: Office, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.hire(peer)
    for number in range(3):
        office.born(b"%d" % number)
    monkeypatch.setattr(HalfQueue, "bounds", lambda _: (2, 3))
    await office.checks.step()
    assert asked(peer) == [b"2"]


async def test_a_round_ends_after_a_minute_and_goes_on_the_next_time(
    office: Office, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.hire(peer)
    for number in range(4):
        office.born(b"%d" % number)
    judge = TransactionChecks._judge

    def slow(checks: TransactionChecks, half: HalfMessage, round_ms: int) -> bool:
        office.clock.jump(25_000)
        return judge(checks, half, round_ms)

    monkeypatch.setattr(TransactionChecks, "_judge", slow)
    await office.checks.step()
    assert asked(peer) == [b"0", b"1", b"2"]
    monkeypatch.undo()
    await office.checks.step()
    assert asked(peer)[3] == b"3"


@in_virtual_time
async def test_others_have_their_turn_and_rounds_do_not_overlap() -> None:
    office = Office()
    for number in range(3 * module.TOGETHER):
        office.half(b"%d" % number, born_ms=office.clock.now_ms())
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    office.clock.jump(60_000)
    await asyncio.gather(office.checks.step(), office.checks.step())
    task.cancel()
    assert turns >= 3
    assert len(office.open()) == 3 * module.TOGETHER
    assert office.store.bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0)[1] == 6 * module.TOGETHER
    office.store.close(0)


async def test_much_to_remember_begins_a_round(
    office: Office, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.hire(peer)
    halves = [office.born(b"%d" % number) for number in range(10)]
    for half in halves[1:]:
        office.transactions.roll_back(half)
    await office.checks.relieve()
    assert peer.told == []
    monkeypatch.setattr(module, "OPEN_MAX", 5)
    await office.checks.relieve()
    assert asked(peer) == [b"0"]
    assert len(office.transactions.halves) <= 1
