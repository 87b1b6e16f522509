"""QuietTime: the clock jumps while nobody is at work, and never over something that is due."""

from roquet.model.queue import MessageQueue
from roquet.testing.clock import VirtualClock
from simulation.history import HandlingAttempt
from simulation.timed.history import TimedHistory
from simulation.timed.quiet_time import (
    CALM_MS,
    EARLY_MS,
    FIRST_JUMP_MS,
    JUMP_MS,
    LATE_MS,
    QuietTime,
)


def quiet(*dues: int) -> tuple[QuietTime, VirtualClock, TimedHistory]:
    clock = VirtualClock()
    history = TimedHistory(clock.monotonic_ms)
    history.dues = list(dues)
    clock.jump(10_000)
    return QuietTime(clock, history), clock, history


def test_it_is_calm_a_second_after_the_last_line_while_no_handler_runs() -> None:
    time, clock, history = quiet()
    assert time.is_calm
    history.say("something")
    assert not time.is_calm
    clock.jump(CALM_MS + 1)
    assert time.is_calm
    queue = MessageQueue("orders", "b", 0)
    history.begin(
        HandlingAttempt(
            consumer="c", group="g", name="m", queue=queue, offset=0, tries=0, began_ms=0
        )
    )
    clock.jump(60_000)
    assert not time.is_calm


def test_a_jump_ends_before_what_comes_next() -> None:
    time, clock, _ = quiet()
    time.skip(15_000)
    assert clock.monotonic_ms() == 15_000 - EARLY_MS
    time.skip(15_000)
    assert clock.monotonic_ms() == 15_000 - EARLY_MS


def test_a_jump_ends_before_what_is_due_and_waits_for_what_was() -> None:
    time, clock, _ = quiet(20_000)
    time.skip(90_000)
    assert clock.monotonic_ms() == 20_000 - EARLY_MS
    clock.jump(EARLY_MS + LATE_MS - 1)
    time.skip(90_000)
    assert clock.monotonic_ms() == 20_000 + LATE_MS - 1
    clock.jump(1)
    time.skip(90_000)
    assert clock.monotonic_ms() == 20_000 + LATE_MS + FIRST_JUMP_MS


def test_the_first_jump_is_shorter_than_those_that_follow_at_once() -> None:
    time, clock, _ = quiet()
    time.skip(1_000_000)
    assert clock.monotonic_ms() == 10_000 + FIRST_JUMP_MS
    clock.jump(250)
    time.skip(1_000_000)
    assert clock.monotonic_ms() == 10_250 + FIRST_JUMP_MS + JUMP_MS
