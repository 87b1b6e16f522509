"""Clocks and loops around steps."""

import asyncio
import logging
import time
from functools import partial

import pytest

from roquet.model.errors import StoreFailed
from roquet.net.clock import SYSTEM_CLOCK, SteadyClock, SystemClock, boottime, every
from roquet.testing.clock import START_MS, in_virtual_time, this_loop


async def test_the_system_clock_is_the_machines() -> None:
    before, wall = SYSTEM_CLOCK.monotonic_ms(), SYSTEM_CLOCK.now_ms()
    assert abs(wall - time.time_ns() // 1_000_000) < 1_000
    await SYSTEM_CLOCK.sleep(2)
    assert SYSTEM_CLOCK.monotonic_ms() - before >= 1


@in_virtual_time
async def test_a_step_runs_after_each_interval_and_gets_the_time() -> None:
    told: list[int] = []
    clock = this_loop().clock
    task = asyncio.create_task(every(10_000, told.append, clock))
    await clock.sleep(35_000)
    task.cancel()
    assert told == [START_MS + 10_000, START_MS + 20_000, START_MS + 30_000]


@in_virtual_time
async def test_a_step_may_take_its_time() -> None:
    clock, ends = this_loop().clock, list[int]()

    async def step(now_ms: int) -> None:
        await clock.sleep(500)
        ends.append(clock.monotonic_ms())

    task = asyncio.create_task(every(1_000, step, clock))
    await clock.sleep(3_100)
    task.cancel()
    assert ends == [1_500, 3_000]


@pytest.mark.parametrize(("errors", "lines"), [("vvvv", 1), ("vkvk", 2), ("v.v.", 2), ("....", 0)])
def test_a_failing_step_is_logged_once_per_kind_until_it_succeeds(
    errors: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    kinds: dict[str, type[Exception]] = {"v": ValueError, "k": KeyError}

    def step(script: list[str], now_ms: int) -> None:
        if error := kinds.get(script.pop(0)):
            raise error("broken")

    @in_virtual_time
    async def scene() -> None:
        clock = this_loop().clock
        task = asyncio.create_task(every(100, partial(step, list(errors)), clock))
        await clock.sleep(len(errors) * 100 + 50)
        assert not task.done()
        task.cancel()

    with caplog.at_level(logging.ERROR):
        scene()
    assert len(caplog.records) == lines
    assert all("step failed" in r.message and r.exc_info for r in caplog.records)


@in_virtual_time
async def test_an_interval_may_change_while_it_runs() -> None:
    clock, told, interval = this_loop().clock, list[int](), [10_000]
    task = asyncio.create_task(every(lambda: interval[0], told.append, clock))
    await clock.sleep(15_000)
    interval[0] = 1_000
    await clock.sleep(7_500)
    task.cancel()
    assert [at - START_MS for at in told] == [10_000, 20_000, 21_000, 22_000]


class SetClock:
    """A wall clock that somebody sets, beside a stopwatch."""

    def __init__(self) -> None:
        self.stopwatch_ms, self.ahead_ms = 0, START_MS

    def now_ms(self) -> int:
        return self.stopwatch_ms + self.ahead_ms

    def monotonic_ms(self) -> int:
        return self.stopwatch_ms

    async def sleep(self, ms: int) -> None:
        self.stopwatch_ms += ms


DAY_MS = 86_400_000


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, -30 * DAY_MS, 61_000, -61_000])
async def test_a_short_jump_leaves_no_trace(jump_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    wall = SetClock()
    steady = SteadyClock(wall)
    wall.ahead_ms += jump_ms
    for _ in range(99):
        await steady.sleep(100)
        assert steady.now_ms() == START_MS + steady.monotonic_ms()
    wall.ahead_ms -= jump_ms
    await steady.sleep(100)
    assert steady.now_ms() == START_MS + steady.monotonic_ms()
    assert caplog.text.count("the clock jumped by") == 1


async def test_a_clock_jump_that_lasts_is_believed() -> None:
    wall = SetClock()
    steady = SteadyClock(wall)
    wall.ahead_ms += 30 * DAY_MS
    assert steady.now_ms() == START_MS
    await steady.sleep(9_999)
    assert steady.now_ms() == START_MS + 9_999
    await steady.sleep(1)
    assert steady.now_ms() == START_MS + 10_000 + 30 * DAY_MS


async def test_a_jump_on_top_of_another_begins_anew() -> None:
    wall = SetClock()
    steady = SteadyClock(wall)
    wall.ahead_ms += DAY_MS
    steady.now_ms()
    await steady.sleep(9_000)
    wall.ahead_ms += DAY_MS
    assert steady.now_ms() == START_MS + 9_000
    await steady.sleep(9_000)
    assert steady.now_ms() == START_MS + 18_000
    await steady.sleep(1_000)
    assert steady.now_ms() == START_MS + 19_000 + 2 * DAY_MS


async def test_a_clock_that_is_set_right_by_little_is_believed_at_once() -> None:
    wall = SetClock()
    steady = SteadyClock(wall)
    for step_ms in (500, -2_000, 30_000, -59_000):
        wall.ahead_ms += step_ms
        assert steady.now_ms() == wall.now_ms()


@in_virtual_time
async def test_a_failed_disk_is_not_logged_by_every_loop(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def step(now_ms: int) -> None:
        calls.append(now_ms)
        raise StoreFailed("the store has told of it")

    task = asyncio.create_task(every(100, step, this_loop().clock))
    await this_loop().clock.sleep(350)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(calls) == 3
    assert not caplog.records


class SleptClock(SetClock):
    """A machine that slept, which only one of its clocks has counted."""

    def boottime_ms(self) -> int:
        return self.stopwatch_ms + 60_000


def test_the_time_of_a_lease_goes_on_while_the_machine_sleeps() -> None:
    assert boottime(SleptClock())() == 60_000
    assert boottime(SteadyClock(SleptClock()))() == 60_000


def test_a_clock_that_cannot_sleep_needs_no_other() -> None:
    clock = SetClock()
    assert boottime(clock)() == 0
    assert boottime(SteadyClock(clock))() == 0


def test_the_systems_clock_for_leases_only_grows() -> None:
    read = boottime(SYSTEM_CLOCK)
    assert read() <= read()


def test_a_system_without_a_clock_that_counts_sleep_has_the_monotonic_one() -> None:
    clock = SystemClock(None)
    before = clock.monotonic_ms()
    assert before <= boottime(clock)() <= clock.monotonic_ms()
