"""What was sent while the clock was ahead comes after its delay, and nothing comes early."""

from random import Random

import pytest
from tests.broker.services.conftest import TimerHarness

from roquet.model.errors import StoreFull
from roquet.store.timer.wheel import SLOTS_PER_STEP

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def _delayed(harness: TimerHarness, body: bytes, delay_ms: int) -> None:
    harness.send(body, {"TIMER_DELAY_MS": str(delay_ms)})


def _set(harness: TimerHarness, by_ms: int) -> None:
    """Set the wall clock; the stopwatch goes on."""
    harness.clock.shift_wall_time(by_ms)


def _settle(harness: TimerHarness) -> None:
    """Steps and saves, as the loops do them, until the timer has followed the clock."""
    while (at := harness.step()) is not None:
        harness.save()
        if at > harness.clock.now_ms() and not harness.timer.is_going_back:
            return


@pytest.fixture
def harness() -> TimerHarness:
    """A timer that has work, under a right clock."""
    harness = TimerHarness()
    harness.after(b"first", 500)
    harness.wait(2_000)
    return harness


@pytest.mark.parametrize("ahead", [2 * 60_000, 6 * HOUR_MS], ids=str)
@pytest.mark.parametrize("delay", [5_000, 2 * DAY_MS + HOUR_MS], ids=str)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_delay_that_began_while_the_clock_was_ahead_lasts_no_longer(
    harness: TimerHarness, ahead: int, delay: int, restarted: bool
) -> None:
    _set(harness, ahead)
    harness.wait(1_000)
    _delayed(harness, b"delayed", delay)
    harness.wait(1_000)
    _set(harness, -ahead)
    if restarted:
        harness.restart()
    late_ms = 1_000 if restarted else 0  # what passed meanwhile is not known to the next process
    wanted = harness.clock.now_ms() + delay - 1_000
    harness.wait(delay - 1_000 - 1)
    assert harness.bodies() == [b"first"]
    for _ in range(20 + late_ms // 100):
        harness.wait(100)
    assert harness.bodies() == [b"first", b"delayed"]
    assert harness.records()[1].stored_ms >= wanted
    harness.wait(ahead + delay)
    assert len(harness.bodies()) == 2
    assert harness.timer.behind == harness.timings.total == 0


def test_a_delivery_time_is_the_senders_whatever_the_clock_was(harness: TimerHarness) -> None:
    at = harness.clock.now_ms() + 3 * HOUR_MS
    _set(harness, HOUR_MS)
    harness.wait(1_000)
    harness.send(b"told", {"TIMER_DELIVER_MS": str(at)})
    harness.wait(1_000)
    _set(harness, -HOUR_MS)
    harness.wait(at - harness.clock.now_ms() - 1)
    assert harness.bodies() == [b"first"]
    harness.wait(2)
    assert harness.bodies() == [b"first", b"told"]


def test_a_clock_that_is_wrongly_set_back_for_a_while_brings_nothing_early(
    harness: TimerHarness,
) -> None:
    _delayed(harness, b"delayed", HOUR_MS)
    wanted = harness.clock.now_ms() + HOUR_MS
    harness.wait(1_000)
    _set(harness, -DAY_MS)
    harness.wait(5 * 60_000)
    _set(harness, DAY_MS)
    harness.wait(wanted - harness.clock.now_ms() - 1)
    assert harness.bodies() == [b"first"]
    harness.wait(2)
    assert harness.bodies() == [b"first", b"delayed"]


def test_messages_before_the_leap_and_after_it_wait_as_they_should(harness: TimerHarness) -> None:
    """Those of one second on the wheel, too."""
    _delayed(harness, b"before", 3 * HOUR_MS)
    before = harness.clock.now_ms() + 3 * HOUR_MS
    harness.wait(1_000)
    _set(harness, HOUR_MS)
    harness.wait(1_000)
    _delayed(harness, b"ahead", before - harness.clock.now_ms())
    ahead = before - HOUR_MS
    _set(harness, -HOUR_MS)
    _delayed(harness, b"after", 30_000)  # before the timer has seen it
    harness.wait(30_001)
    assert harness.bodies() == [b"first", b"after"]
    harness.wait(ahead - harness.clock.now_ms() - 1)
    assert len(harness.bodies()) == 2
    harness.wait(2_001)
    assert harness.bodies()[2:] == [b"ahead"]
    harness.wait(before - harness.clock.now_ms() - 1)
    assert len(harness.bodies()) == 3
    harness.wait(2)
    assert b"before" in harness.bodies()


def test_a_recall_finds_a_message_that_was_written_again(harness: TimerHarness) -> None:
    _set(harness, HOUR_MS)
    harness.wait(1_000)
    for body in (b"early", b"late"):
        _delayed(harness, body, 20 * 60_000)
    deliver_ms = harness.clock.now_ms() + 20 * 60_000
    harness.wait(1_000)
    harness.recall(b"early", deliver_ms)
    harness.wait(1_000)
    _set(harness, -HOUR_MS)
    harness.wait(1_000)
    harness.recall(b"late", deliver_ms)
    harness.wait(3 * HOUR_MS)
    assert harness.bodies() == [b"first"]


def test_many_messages_are_written_again_in_small_steps(harness: TimerHarness) -> None:
    _set(harness, DAY_MS)
    harness.wait(1_000)
    for number in range(300):
        _delayed(harness, b"%d" % number, 600_000 + number * 700)
    harness.wait(1_000)
    _set(harness, -DAY_MS)
    steps = 0
    while harness.timer.behind or not steps:
        harness.step()
        harness.save()
        steps += 1
    assert steps > 300 // 64 + 200 // SLOTS_PER_STEP
    harness.wait(600_000 + 300 * 700 + 2_000)
    assert sorted(map(int, harness.bodies()[1:])) == list(range(300))


def test_a_full_disk_is_waited_for_and_brings_nothing_twice(
    harness: TimerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set(harness, HOUR_MS)
    harness.wait(1_000)
    for number in range(20):
        _delayed(harness, b"%d" % number, 600_000)
    harness.wait(1_000)
    _set(harness, -HOUR_MS)
    again, left = harness.ingest.reappend, 5

    def full(*args: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreFull("no room")
        return again(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(harness.ingest, "reappend", full)
    with pytest.raises(StoreFull):
        harness.settle()
    left = 1_000
    harness.wait(HOUR_MS * 3)
    assert sorted(map(int, harness.bodies()[1:])) == list(range(20))


@pytest.mark.parametrize("seed", range(3))
def test_kills_and_leaps_lose_nothing_and_keep_no_message_for_hours(seed: int) -> None:
    harness, random, ahead = TimerHarness(), Random(seed), 0
    sent = []
    for number in range(60):
        sent.append(b"%d" % number)
        _delayed(harness, sent[-1], random.randrange(1, 900_000))
        for _ in range(random.randrange(12)):
            at = harness.step()
            if at is not None and at > harness.clock.now_ms():
                harness.skip(random.randrange(1, 4_000))
        if random.random() < 0.4:
            harness.save()
        if random.random() < 0.2:
            _set(harness, -ahead if ahead else 6 * HOUR_MS)
            ahead = 0 if ahead else 6 * HOUR_MS
            _settle(harness)
        if random.random() < 0.1:
            harness.kill()
    _set(harness, -ahead)
    harness.wait(1_000_000 + 60_000)
    missing = set(sent) - set(harness.bodies())
    assert not missing
