"""Clocks and loops around steps."""

import asyncio
import logging
import time
from functools import partial

import pytest

from roquet.model.errors import StoreFailed
from roquet.net.clock import SYSTEM_CLOCK, every
from roquet.testing.clock import START_MS, in_virtual_time, this_loop


async def test_the_system_clock_is_the_machines() -> None:
    before, wall = SYSTEM_CLOCK.monotonic_ms(), SYSTEM_CLOCK.now_ms()
    assert abs(wall - time.time_ns() // 1_000_000) < 1_000
    await SYSTEM_CLOCK.sleep(2)
    assert SYSTEM_CLOCK.monotonic_ms() - before >= 1


@in_virtual_time
async def test_a_step_runs_after_each_interval_and_is_told_the_time() -> None:
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


def test_a_disk_that_failed_is_not_told_of_by_every_loop(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def step(now_ms: int) -> None:
        calls.append(now_ms)
        raise StoreFailed("the store has told of it")

    @in_virtual_time
    async def scene() -> None:
        task = asyncio.create_task(every(100, step, this_loop().clock))
        await this_loop().clock.sleep(350)
        assert not task.done()
        task.cancel()

    scene()
    assert len(calls) == 3
    assert not caplog.records
