"""Intake: each message to the second that it waits for."""

from typing import TYPE_CHECKING, Any

import pytest

from roquet.broker.services.timer import intake
from roquet.model.errors import StoreFull
from roquet.store.timer.layout import CHECKPOINT
from roquet.wire.java_hash import hash_code

if TYPE_CHECKING:
    from tests.broker.services.conftest import Tower

TIMER = "rmq_sys_wheel_timer"
START = 1_700_000_000_000
HOUR_MS = 3_600_000


def test_a_message_is_noted_as_the_genuine_broker_does(tower: "Tower") -> None:
    tower.skip(352)
    stored = tower.send(b"one", {"TIMER_DELAY_MS": "2000"}).appended
    tower.settle()
    slot = tower.timers.slot(START + 2_000)
    assert slot is not None
    unit = tower.timers.unit(slot.last)
    assert unit is not None
    assert (unit.before, unit.magic, unit.write_ms, unit.slot_ms) == (-1, 1, START, START + 2_000)
    assert (unit.position, unit.size) == (stored.position, stored.size)
    assert unit.topic_hash == hash_code("orders")
    assert tower.timings.get("orders") == 1
    assert tower.timer.behind == 0


def test_a_step_takes_some_and_says_when_there_are_more(tower: "Tower") -> None:
    for number in range(100):
        tower.after(b"%d" % number, 5_000)
    assert tower.timer.behind == 100
    assert tower.step() == tower.clock.now_ms()
    assert tower.timer.behind == 36
    assert tower.settle() == START + 1_000
    assert tower.timer.behind == 0


def test_it_knows_until_when_all_is_taken_whatever_the_clock_does(tower: "Tower") -> None:
    timer_intake = tower.timer._intake
    tower.settle()
    assert timer_intake.taken_ms == START
    for _ in range(10 * intake.STEP_COUNT):
        tower.after(b"one", 60_000)
    tower.skip(100)
    found = []
    for skip in (10, 10, 10, -1_000, 10, 0):
        tower.step()
        found.append(timer_intake.taken_ms - START)
        tower.clock._start_ms += skip
    assert found == [0, 0, 0, 0, -870, -870]
    tower.settle()
    assert timer_intake.taken_ms == tower.clock.now_ms()


def test_nothing_is_on_the_disk_before_the_first_message(tower: "Tower") -> None:
    tower.send(b"plain")
    assert tower.step() is None
    tower.save()
    assert not any("timer" in str(path) for path in tower.files.contents)


@pytest.mark.parametrize("text", [None, "x", "-5", "9" * 30])
def test_a_message_without_a_time_does_not_hold_up_the_others(
    tower: "Tower", text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    tower.after(b"one", 1_000)
    (record,) = tower.records(TIMER)
    spoilt = {"REAL_TOPIC": "orders"} | ({} if text is None else {"TIMER_OUT_MS": text})
    tower.put.reappend(record, topic=TIMER, queue_id=0, properties=spoilt, reconsume_times=0)
    tower.after(b"two", 1_000)
    tower.wait(1_000)
    assert tower.bodies() == [b"one", b"two"]
    assert "a timed message has no delivery time" in caplog.text
    assert tower.set_aside.total == 1


def test_a_message_whose_second_is_over_comes_at_once(tower: "Tower") -> None:
    tower.after(b"first", 60_000)
    tower.settle()
    tower.after(b"late", 1_000)
    tower.skip(60_500)
    tower.timers.advance_to(START + 59_000)
    tower.settle()
    assert tower.bodies() == [b"late", b"first"]
    assert tower.properties()[0]["TIMER_ENQUEUE_MS"] == str(2**63 - 1)


def test_what_comes_too_late_to_take_another_back_is_told(
    tower: "Tower", caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    tower.after(b"one", 60_000)
    tower.settle()
    tower.recall(b"gone", START + 5_000)
    tower.skip(30_000)
    tower.timers.advance_to(START + 30_000)
    tower.settle()
    assert "came too late to take another back" in caplog.text
    assert tower.bodies() == []


def test_a_clock_that_was_set_back_by_more_than_a_window_loses_nothing(
    new_tower: "type[Tower]",
) -> None:
    tower = new_tower(retention_ms=3 * HOUR_MS)
    tower.after(b"one", 1_000)
    tower.wait(10 * HOUR_MS)
    tower.clock._start_ms -= 10 * HOUR_MS
    tower.after(b"two", 1_000)
    tower.wait(10 * HOUR_MS + 5_000)
    assert tower.bodies() == [b"one", b"two"]


def test_another_retention_has_messages_wait_in_shorter_ways(new_tower: "type[Tower]") -> None:
    tower = new_tower(retention_ms=3 * HOUR_MS)
    tower.after(b"one", 2 * HOUR_MS)
    tower.settle()
    fault = tower.timer.retention_fault(2 * HOUR_MS)
    assert fault is not None
    assert "for longer than 7200000 ms of retention" in fault
    assert tower.timer.retention_fault(3 * HOUR_MS) is None
    tower.timer.configure(HOUR_MS)
    tower.after(b"two", 3 * HOUR_MS)
    tower.wait(2 * HOUR_MS)
    assert tower.timer.retention_fault(HOUR_MS) is None
    tower.wait(HOUR_MS)
    assert tower.bodies() == [b"one", b"two"]
    assert int(tower.properties()[1]["TIMER_ROLL_TIMES"]) >= 4


def test_a_clock_that_was_set_back_makes_nothing_early(tower: "Tower") -> None:
    tower.after(b"first", 60_000)
    tower.wait(60_500)
    assert tower.bodies() == [b"first"]
    tower.clock._start_ms -= 30_000
    tower.after(b"second", 2_000)
    wanted = tower.clock.now_ms() + 2_000
    tower.wait(40_000)
    assert tower.bodies() == [b"first", b"second"]
    assert tower.records()[1].stored_ms >= wanted


def test_no_place_is_given_away_before_its_delivery_is_saved(new_tower: "type[Tower]") -> None:
    tower = new_tower(slots=256)
    tower.after(b"old", 10_000)
    tower.settle()
    tower.save()
    tower.stop()
    tower.skip(250_000)
    tower.open()
    tower.after(b"new", 16_000)
    at = tower.step()
    assert at is not None
    assert tower.bodies() == []
    tower.settle()
    assert tower.bodies() == [b"old"]
    assert tower.timer.behind == 1
    tower.save()
    tower.settle()
    assert tower.timer.behind == 0
    tower.wait(16_000)
    assert tower.bodies() == [b"old", b"new"]


def test_a_full_disk_holds_up_and_loses_nothing(
    tower: "Tower", monkeypatch: pytest.MonkeyPatch
) -> None:
    tower.after(b"one", 1_000)

    def full(*_: object) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(tower.timers, "add", full)
    with pytest.raises(StoreFull):
        tower.step()
    monkeypatch.undo()
    tower.wait(1_000)
    assert tower.bodies() == [b"one"]


def test_wheel_and_log_that_are_gone_are_made_again_without_what_was_delivered(
    tower: "Tower",
) -> None:
    tower.after(b"delivered", 1_000)
    tower.after(b"waiting", 60_000)
    tower.wait(5_000)
    tower.stop()
    for path in [path for path in tower.files.contents if path.parts[2].startswith("timer")]:
        tower.files.remove(path)
    tower.open()
    assert tower.timer.behind == 2
    tower.wait(60_000)
    assert tower.bodies() == [b"delivered", b"waiting"]


def test_a_genuine_checkpoint_that_trails_its_wheel_loses_nothing(tower: "Tower") -> None:
    for number in range(5):
        tower.after(b"%d" % number, 30_000)
    tower.settle()
    tower.save()
    path = next(path for path in tower.files.contents if path.name == "timercheck")
    page = memoryview(tower.files.contents[path])
    page[:] = CHECKPOINT.pack(START, 2 * 52, 4, 4, 0, 0, 0).ljust(4096, b"\0")
    tower.kill()
    tower.wait(30_000)
    assert tower.bodies() == [b"%d" % number for number in range(5)]


def test_progress_beyond_the_topic_begins_within_it(tower: "Tower") -> None:
    tower.timers.advance_offset(10**9)
    tower.step()
    tower.after(b"one", 1_000)
    tower.wait(1_000)
    assert tower.bodies() == [b"one"]


def test_a_message_whose_second_is_weeks_over_is_delivered_and_stops_no_other(
    tower: "Tower",
) -> None:
    """The clock was set back for a moment: the timers followed it, and one message was sent."""
    tower.after(b"before", 1_000)
    tower.wait(2_000)
    tower.clock._start_ms -= 30 * 24 * HOUR_MS
    for _ in range(9):
        tower.step()
        tower.save()
    tower.send(b"meanwhile", {"TIMER_DELAY_MS": "5000"})
    tower.clock._start_ms += 30 * 24 * HOUR_MS
    tower.after(b"after", 3_000)
    tower.wait(5_000)
    assert sorted(tower.bodies()) == [b"after", b"before", b"meanwhile"]
    assert tower.set_aside.total == 0
    tower.restart()
    tower.after(b"last", 1_000)
    tower.wait(2_000)
    assert len(tower.bodies()) == 4


def test_one_message_that_cannot_be_taken_is_set_aside_and_the_disk_is_waited_for(
    tower: "Tower", monkeypatch: pytest.MonkeyPatch
) -> None:
    add = type(tower.timers).add
    errors: list[Exception] = [StoreFull("full"), ValueError("odd")]

    def stumble(timers: Any, unit: Any) -> int:
        if errors:
            raise errors.pop(0)
        return add(timers, unit)

    monkeypatch.setattr(type(tower.timers), "add", stumble)
    for body in (b"one", b"two"):
        tower.after(body, 1_000)
    with pytest.raises(StoreFull):
        tower.step()
    assert (tower.timers.offset, tower.set_aside.total) == (0, 0)
    tower.wait(2_000)
    assert tower.bodies() == [b"two"]
    assert tower.set_aside.total == 1
    (kept,) = tower.records("rmq_sys_roquet_set_aside")
    tower.set_aside.retry(kept)
    tower.wait(2_000)
    assert tower.bodies() == [b"two", b"one"]
