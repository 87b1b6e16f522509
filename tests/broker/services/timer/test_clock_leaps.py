"""What was sent while the clock was ahead comes after its delay, and nothing comes early."""

from random import Random
from typing import TYPE_CHECKING

import pytest

from roquet.model.errors import StoreFull
from roquet.store.timer.wheel import SLOTS_PER_STEP

if TYPE_CHECKING:
    from tests.broker.services.conftest import Tower

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def _delayed(tower: "Tower", body: bytes, delay_ms: int) -> None:
    tower.send(body, {"TIMER_DELAY_MS": str(delay_ms)})


def _set(tower: "Tower", by_ms: int) -> None:
    """Set the wall clock; the stopwatch goes on."""
    tower.clock._start_ms += by_ms


def _settle(tower: "Tower") -> None:
    """Steps and saves, as the loops do them, until the timer has followed the clock."""
    while (at := tower.step()) is not None:
        tower.save()
        if at > tower.clock.now_ms() and tower.timer._way_back is None:
            return


@pytest.fixture
def running(new_tower: "type[Tower]") -> "Tower":
    """A timer that has work, under a right clock."""
    tower = new_tower()
    tower.after(b"first", 500)
    tower.wait(2_000)
    return tower


@pytest.mark.parametrize("ahead", [2 * 60_000, 6 * HOUR_MS], ids=str)
@pytest.mark.parametrize("delay", [5_000, 2 * DAY_MS + HOUR_MS], ids=str)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_delay_that_began_while_the_clock_was_ahead_lasts_no_longer(
    running: "Tower", ahead: int, delay: int, restarted: bool
) -> None:
    tower = running
    _set(tower, ahead)
    tower.wait(1_000)
    _delayed(tower, b"delayed", delay)
    tower.wait(1_000)
    _set(tower, -ahead)
    if restarted:
        tower.restart()
    late_ms = 1_000 if restarted else 0  # what passed meanwhile is not known to the next process
    wanted = tower.clock.now_ms() + delay - 1_000
    tower.wait(delay - 1_000 - 1)
    assert tower.bodies() == [b"first"]
    for _ in range(20 + late_ms // 100):
        tower.wait(100)
    assert tower.bodies() == [b"first", b"delayed"]
    assert tower.records()[1].stored_ms >= wanted
    tower.wait(ahead + delay)
    assert len(tower.bodies()) == 2
    assert tower.timer.behind == tower.timings.total == 0


def test_a_delivery_time_is_the_senders_whatever_the_clock_was(running: "Tower") -> None:
    tower = running
    at = tower.clock.now_ms() + 3 * HOUR_MS
    _set(tower, HOUR_MS)
    tower.wait(1_000)
    tower.send(b"told", {"TIMER_DELIVER_MS": str(at)})
    tower.wait(1_000)
    _set(tower, -HOUR_MS)
    tower.wait(at - tower.clock.now_ms() - 1)
    assert tower.bodies() == [b"first"]
    tower.wait(2)
    assert tower.bodies() == [b"first", b"told"]


def test_a_clock_that_is_wrongly_set_back_for_a_while_brings_nothing_early(
    running: "Tower",
) -> None:
    tower = running
    _delayed(tower, b"delayed", HOUR_MS)
    wanted = tower.clock.now_ms() + HOUR_MS
    tower.wait(1_000)
    _set(tower, -DAY_MS)
    tower.wait(5 * 60_000)
    _set(tower, DAY_MS)
    tower.wait(wanted - tower.clock.now_ms() - 1)
    assert tower.bodies() == [b"first"]
    tower.wait(2)
    assert tower.bodies() == [b"first", b"delayed"]


def test_messages_of_before_the_leap_and_of_after_it_wait_as_they_should(
    running: "Tower",
) -> None:
    """Those of one second on the wheel, too."""
    tower = running
    _delayed(tower, b"before", 3 * HOUR_MS)
    before = tower.clock.now_ms() + 3 * HOUR_MS
    tower.wait(1_000)
    _set(tower, HOUR_MS)
    tower.wait(1_000)
    _delayed(tower, b"ahead", before - tower.clock.now_ms())
    ahead = before - HOUR_MS
    _set(tower, -HOUR_MS)
    _delayed(tower, b"after", 30_000)  # before the timer has seen it
    tower.wait(30_001)
    assert tower.bodies() == [b"first", b"after"]
    tower.wait(ahead - tower.clock.now_ms() - 1)
    assert len(tower.bodies()) == 2
    tower.wait(2_001)
    assert tower.bodies()[2:] == [b"ahead"]
    tower.wait(before - tower.clock.now_ms() - 1)
    assert len(tower.bodies()) == 3
    tower.wait(2)
    assert b"before" in tower.bodies()


def test_what_takes_a_message_back_finds_it_where_it_waits_now(running: "Tower") -> None:
    tower = running
    _set(tower, HOUR_MS)
    tower.wait(1_000)
    for body in (b"early", b"late"):
        _delayed(tower, body, 20 * 60_000)
    deliver_ms = tower.clock.now_ms() + 20 * 60_000
    tower.wait(1_000)
    tower.recall(b"early", deliver_ms)
    tower.wait(1_000)
    _set(tower, -HOUR_MS)
    tower.wait(1_000)
    tower.recall(b"late", deliver_ms)
    tower.wait(3 * HOUR_MS)
    assert tower.bodies() == [b"first"]


def test_many_messages_are_written_again_in_small_steps(running: "Tower") -> None:
    tower = running
    _set(tower, DAY_MS)
    tower.wait(1_000)
    for number in range(300):
        _delayed(tower, b"%d" % number, 600_000 + number * 700)
    tower.wait(1_000)
    _set(tower, -DAY_MS)
    steps = 0
    while tower.timer.behind or not steps:
        tower.step()
        tower.save()
        steps += 1
    assert steps > 300 // 64 + 200 // SLOTS_PER_STEP
    tower.wait(600_000 + 300 * 700 + 2_000)
    assert sorted(map(int, tower.bodies()[1:])) == list(range(300))


def test_a_full_disk_is_waited_for_and_brings_nothing_twice(
    running: "Tower", monkeypatch: pytest.MonkeyPatch
) -> None:
    tower = running
    _set(tower, HOUR_MS)
    tower.wait(1_000)
    for number in range(20):
        _delayed(tower, b"%d" % number, 600_000)
    tower.wait(1_000)
    _set(tower, -HOUR_MS)
    again, left = tower.put.reappend, 5

    def full(*args: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreFull("no room")
        return again(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(tower.put, "reappend", full)
    with pytest.raises(StoreFull):
        tower.settle()
    left = 1_000
    tower.wait(HOUR_MS * 3)
    assert sorted(map(int, tower.bodies()[1:])) == list(range(20))


@pytest.mark.parametrize("seed", range(3))
def test_kills_and_leaps_lose_nothing_and_keep_no_message_for_hours(
    new_tower: "type[Tower]", seed: int
) -> None:
    tower, random, ahead = new_tower(), Random(seed), 0
    sent = []
    for number in range(60):
        sent.append(b"%d" % number)
        _delayed(tower, sent[-1], random.randrange(1, 900_000))
        for _ in range(random.randrange(12)):
            at = tower.step()
            if at is not None and at > tower.clock.now_ms():
                tower.skip(random.randrange(1, 4_000))
        if random.random() < 0.4:
            tower.save()
        if random.random() < 0.2:
            _set(tower, -ahead if ahead else 6 * HOUR_MS)
            ahead = 0 if ahead else 6 * HOUR_MS
            _settle(tower)
        if random.random() < 0.1:
            tower.kill()
    _set(tower, -ahead)
    tower.wait(1_000_000 + 60_000)
    missing = set(sent) - set(tower.bodies())
    assert not missing
