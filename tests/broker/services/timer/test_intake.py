"""Intake: each message to the second that it waits for."""

from typing import Any

import pytest
from tests.broker.conftest import failing, not_none
from tests.broker.services.conftest import TimerHarness

from roquet.broker.services.delayed_delivery import STEP_COUNT
from roquet.broker.services.timer.deliveries import TimerDeliveries
from roquet.broker.services.timer.intake import TimerIntake
from roquet.model.errors import StoreFull
from roquet.store.timer.layout import CHECKPOINT, TimerUnit
from roquet.store.timer.timers import TimerStore
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record

TIMER = "rmq_sys_wheel_timer"
START = 1_700_000_000_000
HOUR_MS = 3_600_000


def test_a_message_is_put_on_the_wheel_like_by_apaches_broker(harness: TimerHarness) -> None:
    harness.skip(352)
    stored = harness.send(b"one", {"TIMER_DELAY_MS": "2000"}).appended
    harness.settle()
    slot = not_none(harness.timers.slot(START + 2_000))
    unit = not_none(harness.timers.unit(slot.last))
    assert (unit.before, unit.magic, unit.write_ms, unit.slot_ms) == (-1, 1, START, START + 2_000)
    assert (unit.position, unit.size) == (stored.position, stored.size)
    assert unit.topic_hash == hash_code("orders")
    assert harness.timings.get("orders") == 1
    assert harness.timer.behind == 0


def test_a_step_takes_some_and_says_when_there_are_more(harness: TimerHarness) -> None:
    harness.after_each(100, 5_000)
    assert harness.timer.behind == 100
    assert harness.step() == harness.clock.now_ms()
    assert harness.timer.behind == 36
    assert harness.settle() == START + 1_000
    assert harness.timer.behind == 0


def test_the_taken_time_never_exceeds_the_clock(harness: TimerHarness) -> None:
    timer_intake = TimerIntake(harness.parts, TimerDeliveries(harness.parts))
    timer_intake.step(harness.clock.now_ms())
    assert timer_intake.taken_ms == START
    for _ in range(10 * STEP_COUNT):
        harness.after(b"one", 60_000)
    harness.skip(100)
    taken_ms = []
    for skip in (10, 10, 10, -1_000, 10, 0):
        timer_intake.step(harness.clock.now_ms())
        taken_ms.append(timer_intake.taken_ms - START)
        harness.clock.shift_wall_time(skip)
    assert taken_ms == [0, 0, 0, 0, -870, -870]
    while harness.timer.behind:
        timer_intake.step(harness.clock.now_ms())
    assert timer_intake.taken_ms == harness.clock.now_ms()


def test_nothing_is_on_the_disk_before_the_first_message(harness: TimerHarness) -> None:
    harness.send(b"plain")
    assert harness.step() is None
    harness.save()
    assert not any("timer" in str(path) for path in harness.files.contents)


@pytest.mark.parametrize("text", [None, "x", "-5", "9" * 30])
def test_a_message_without_a_time_does_not_hold_up_the_others(
    harness: TimerHarness, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    harness.after(b"one", 1_000)
    (record,) = harness.records(TIMER)
    spoilt = {"REAL_TOPIC": "orders"} | ({} if text is None else {"TIMER_OUT_MS": text})
    harness.ingest.reappend(record, topic=TIMER, properties=spoilt)
    harness.after(b"two", 1_000)
    harness.wait(1_000)
    assert harness.bodies() == [b"one", b"two"]
    assert "a timed message has no delivery time" in caplog.text
    assert harness.set_aside.total == 1


def test_a_message_whose_second_is_over_comes_at_once(harness: TimerHarness) -> None:
    harness.after(b"first", 60_000)
    harness.settle()
    harness.after(b"late", 1_000)
    harness.skip(60_500)
    harness.timers.advance_to(START + 59_000)
    harness.settle()
    assert harness.bodies() == [b"late", b"first"]
    assert harness.properties()[0]["TIMER_ENQUEUE_MS"] == str(2**63 - 1)


def test_a_late_recall_is_logged(harness: TimerHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    harness.after(b"one", 60_000)
    harness.settle()
    harness.recall(b"gone", START + 5_000)
    harness.skip(30_000)
    harness.timers.advance_to(START + 30_000)
    harness.settle()
    assert "came too late to take another back" in caplog.text
    assert harness.bodies() == []


def test_a_clock_that_was_set_back_by_more_than_a_window_loses_nothing() -> None:
    harness = TimerHarness(retention_ms=3 * HOUR_MS)
    harness.after(b"one", 1_000)
    harness.wait(10 * HOUR_MS)
    harness.clock.shift_wall_time(-10 * HOUR_MS)
    harness.after(b"two", 1_000)
    harness.wait(10 * HOUR_MS + 5_000)
    assert harness.bodies() == [b"one", b"two"]


def test_another_retention_has_messages_wait_in_shorter_ways() -> None:
    harness = TimerHarness(retention_ms=3 * HOUR_MS)
    harness.after(b"one", 2 * HOUR_MS)
    harness.settle()
    fault = not_none(harness.timer.retention_fault(2 * HOUR_MS))
    assert "for longer than 7200000 ms of retention" in fault
    assert harness.timer.retention_fault(3 * HOUR_MS) is None
    harness.timer.configure(HOUR_MS)
    harness.after(b"two", 3 * HOUR_MS)
    harness.wait(2 * HOUR_MS)
    assert harness.timer.retention_fault(HOUR_MS) is None
    harness.wait(HOUR_MS)
    assert harness.bodies() == [b"one", b"two"]
    assert int(harness.properties()[1]["TIMER_ROLL_TIMES"]) >= 4


def test_a_clock_that_was_set_back_makes_nothing_early(harness: TimerHarness) -> None:
    harness.after(b"first", 60_000)
    harness.wait(60_500)
    assert harness.bodies() == [b"first"]
    harness.clock.shift_wall_time(-30_000)
    harness.after(b"second", 2_000)
    wanted = harness.clock.now_ms() + 2_000
    harness.wait(40_000)
    assert harness.bodies() == [b"first", b"second"]
    assert harness.records()[1].stored_ms >= wanted


def test_a_message_of_a_second_left_behind_gets_another_in_the_log(harness: TimerHarness) -> None:
    """Replicas take what waits for an earlier second than their master's for delivered."""
    harness.after(b"first", 60_000)
    harness.wait(60_500)
    harness.clock.shift_wall_time(-30_000)
    harness.after(b"second", 2_000)
    harness.settle()
    stored, again = (
        int(decode_properties(record.properties)["TIMER_OUT_MS"])
        for record in harness.records(TIMER)[1:]
    )
    assert stored < harness.timers.read_ms == again
    harness.wait(40_000)
    assert harness.bodies() == [b"first", b"second"]


def test_no_slot_is_reused_before_its_delivery_is_saved() -> None:
    harness = TimerHarness(slots=256)
    harness.after(b"old", 10_000)
    harness.settle()
    harness.save()
    harness.stop()
    harness.skip(250_000)
    harness.open()
    harness.after(b"new", 16_000)
    assert harness.step() is not None
    assert harness.bodies() == []
    harness.settle()
    assert harness.bodies() == [b"old"]
    assert harness.timer.behind == 1
    harness.save()
    harness.settle()
    assert harness.timer.behind == 0
    harness.wait(16_000)
    assert harness.bodies() == [b"old", b"new"]


def test_a_full_disk_loses_nothing(harness: TimerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.after(b"one", 1_000)

    monkeypatch.setattr(harness.timers, "add", failing(StoreFull("no room")))
    with pytest.raises(StoreFull):
        harness.step()
    monkeypatch.undo()
    harness.wait(1_000)
    assert harness.bodies() == [b"one"]


def test_a_lost_wheel_is_made_again_without_what_was_delivered(harness: TimerHarness) -> None:
    harness.after(b"delivered", 1_000)
    harness.after(b"waiting", 60_000)
    harness.wait(5_000)
    harness.stop()
    for path in [path for path in harness.files.contents if path.parts[2].startswith("timer")]:
        harness.files.remove(path)
    harness.open()
    assert harness.timer.behind == 2
    harness.wait(60_000)
    assert harness.bodies() == [b"delivered", b"waiting"]


def test_an_apache_checkpoint_that_trails_its_wheel_loses_nothing(harness: TimerHarness) -> None:
    bodies = harness.after_each(5, 30_000)
    harness.settle()
    harness.save()
    path = next(path for path in harness.files.contents if path.name == "timercheck")
    page = memoryview(harness.files.contents[path])
    page[:] = CHECKPOINT.pack(START, 2 * 52, 4, 4, 0, 0, 0).ljust(4096, b"\0")
    harness.kill()
    harness.wait(30_000)
    assert harness.bodies() == bodies


def test_progress_beyond_the_topic_begins_within_it(harness: TimerHarness) -> None:
    harness.timers.advance_offset(10**9)
    harness.step()
    harness.after(b"one", 1_000)
    harness.wait(1_000)
    assert harness.bodies() == [b"one"]


def test_a_message_whose_second_is_weeks_over_is_delivered_and_stops_no_other(
    harness: TimerHarness,
) -> None:
    """The clock was set back for a moment: the timers followed it, and one message was sent."""
    harness.after(b"before", 1_000)
    harness.wait(2_000)
    harness.clock.shift_wall_time(-30 * 24 * HOUR_MS)
    for _ in range(9):
        harness.step()
        harness.save()
    harness.send(b"meanwhile", {"TIMER_DELAY_MS": "5000"})
    harness.clock.shift_wall_time(30 * 24 * HOUR_MS)
    harness.after(b"after", 3_000)
    harness.wait(5_000)
    assert sorted(harness.bodies()) == [b"after", b"before", b"meanwhile"]
    assert harness.set_aside.total == 0
    harness.restart()
    harness.after(b"last", 1_000)
    harness.wait(2_000)
    assert len(harness.bodies()) == 4


def test_one_message_that_cannot_be_taken_is_set_aside_and_the_disk_is_waited_for(
    harness: TimerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = type(harness.timers).add
    errors: list[Exception] = [StoreFull("full"), ValueError("odd")]

    def stumble(timers: TimerStore, unit: TimerUnit) -> int:
        if errors:
            raise errors.pop(0)
        return add(timers, unit)

    monkeypatch.setattr(type(harness.timers), "add", stumble)
    for body in (b"one", b"two"):
        harness.after(body, 1_000)
    with pytest.raises(StoreFull):
        harness.step()
    assert (harness.timers.offset, harness.set_aside.total) == (0, 0)
    harness.wait(2_000)
    assert harness.bodies() == [b"two"]
    assert harness.set_aside.total == 1
    (kept,) = harness.records("rmq_sys_roquet_set_aside")
    harness.set_aside.retry(kept)
    harness.wait(2_000)
    assert harness.bodies() == [b"two", b"one"]


def test_a_replica_leaves_its_master_what_cannot_wait_on_the_wheel(harness: TimerHarness) -> None:
    harness.send(b"never", {"TIMER_DELIVER_MS": str(START + 60_000)})
    timer_intake = TimerIntake(harness.parts, TimerDeliveries(harness.parts))
    harness.timers.follow(1, START + 120_000)
    assert timer_intake.follow(1, START)
    assert harness.timers.slot(START + 60_000) is None
    assert harness.timers.offset == 1


def test_a_replica_waits_for_a_place_on_the_wheel() -> None:
    harness = TimerHarness(slots=60)
    harness.after(b"far", 3_600_000)
    timer_intake = TimerIntake(harness.parts, TimerDeliveries(harness.parts))
    harness.timers.follow(1, START)
    harness.timers.add(TimerUnit(1, START, START, 0, 100, 0))
    assert timer_intake.follow(1, START)
    assert harness.timers.offset == 0


def test_what_was_delivered_at_once_comes_again_and_not_what_waits(harness: TimerHarness) -> None:
    harness.skip(500)
    for number in range(100):
        harness.after(b"now %d" % number, 1)
    harness.after(b"later", 5_000)
    harness.skip(100)
    harness.settle()
    before = len(harness.records("orders"))
    assert before == 100
    again = [record.body for record in taken_again(harness, 60)[before:]]
    assert again == [b"now %d" % number for number in range(60, 100)]
    assert len(taken_again(harness, 101)) == before + 40


def taken_again(harness: TimerHarness, offset: int, reached_ms: int = 0) -> list[Record]:
    """Let a new master take its former messages from an offset on; gives all that is delivered."""
    timer_intake = TimerIntake(harness.parts, TimerDeliveries(harness.parts))
    harness.timers.untaken, harness.timers.reached_ms = offset, reached_ms
    while harness.timers.untaken is not None:
        timer_intake.take_overdue(harness.clock.now_ms())
    return harness.records("orders")


def test_a_message_confirmed_after_its_second_is_delivered_again(harness: TimerHarness) -> None:
    harness.after(b"first", 60_000)
    harness.settle()
    harness.after(b"confirmed late", 3_000)
    harness.skip(5_000)
    harness.timers.advance_to(START + 5_000)
    harness.settle()
    assert harness.bodies() == [b"confirmed late"]
    assert len(taken_again(harness, 0)) == 1, "the wheel would deliver it, for all that is known"
    assert len(taken_again(harness, 0, START + 5_000)) == 2
    harness.timers.follow(0, START + 4_000)
    assert len(taken_again(harness, 0)) == 3, "the wheel goes on behind its second"


def test_undeliverable_untaken_messages_are_set_aside(harness: TimerHarness) -> None:
    harness.after(b"one", 1)
    (record,) = harness.records(TIMER)
    good = decode_properties(record.properties)
    for spoilt in (
        good | {"REAL_TOPIC": TIMER},
        good | {"TIMER_OUT_MS": "x"},
        good | {"TIMER_OUT_MS": "9" * 18},
    ):
        harness.ingest.reappend(record, topic=TIMER, properties=spoilt)
    harness.skip(1_000)
    harness.after(b"two", 1)
    harness.wait(2_000)
    assert harness.set_aside.total == 3
    taken_again(harness, 0, START + 2_000)
    assert harness.bodies() == [b"one", b"two"] * 2
    assert harness.set_aside.total == 6


def test_a_full_disk_delivers_no_untaken_message_twice(
    harness: TimerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.after_each(3, 1)
    harness.wait(2_000)
    timer_intake = TimerIntake(harness.parts, TimerDeliveries(harness.parts))
    harness.timers.untaken, harness.timers.reached_ms = 0, START
    reappend, full = harness.ingest.reappend, [False, True, False, False]

    def stumble(*args: Any, **more: Any) -> Any:
        if full.pop(0):
            raise StoreFull("no room")
        return reappend(*args, **more)

    monkeypatch.setattr(harness.ingest, "reappend", stumble)
    with pytest.raises(StoreFull):
        timer_intake.take_overdue(harness.clock.now_ms())
    assert harness.timers.untaken == 1
    while harness.timers.untaken is not None:
        timer_intake.take_overdue(harness.clock.now_ms())
    assert harness.bodies() == [b"0", b"1", b"2"] * 2
