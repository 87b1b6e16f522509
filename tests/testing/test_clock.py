"""Virtual time: it jumps to the next timer, and repeats for a seed."""

import asyncio
import socket
import threading
import time

import pytest

from roquet.model.errors import UsageError
from roquet.testing.clock import START_MS, VirtualClock, in_virtual_time, run, this_loop

pytestmark = pytest.mark.virtual_time


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock()
    assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS, 0)
    clock.jump(86_400_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS + 86_400_000, 86_400_000)


def test_wall_time_that_is_set_leaves_elapsed_time_alone() -> None:
    clock = VirtualClock()
    clock.jump(5_000)
    clock.shift_wall_time(-3_600_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS + 5_000 - 3_600_000, 5_000)


def test_a_year_passes_at_once_and_in_order() -> None:
    async def scene() -> list[tuple[int, int]]:
        clock, seen = this_loop().clock, list[tuple[int, int]]()

        async def tick(pause_ms: int) -> None:
            for _ in range(3):
                await clock.sleep(pause_ms)
                seen.append((clock.monotonic_ms(), pause_ms))

        await asyncio.gather(tick(3_600_000), tick(5_000_000))
        await clock.sleep(365 * 86_400_000)
        return seen

    began = time.perf_counter()
    assert run(scene()) == [
        (3_600_000, 3_600_000),
        (5_000_000, 5_000_000),
        (7_200_000, 3_600_000),
        (10_000_000, 5_000_000),
        (10_800_000, 3_600_000),
        (15_000_000, 5_000_000),
    ]
    assert time.perf_counter() - began < 10


async def test_asyncios_own_timeouts_live_by_the_clock() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3_600):
            await asyncio.Event().wait()
    assert this_loop().clock.monotonic_ms() == 3_600_000


async def test_work_for_a_thread_is_done_here_and_takes_no_time() -> None:
    assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 / 0)
    assert this_loop().clock.monotonic_ms() == 0


async def test_ready_callbacks_run_before_due_timers() -> None:
    loop = this_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.send(b"here")
        assert await loop.sock_recv(ours, 10) == b"here"
    assert loop.clock.monotonic_ms() == 0


def test_waiting_for_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.testing.clock.STUCK_S", 0.01)

    async def scene() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="would last for ever"):
        run(scene())


def test_outside_virtual_time_there_is_no_virtual_loop() -> None:
    async def scene() -> None:
        this_loop()

    with pytest.raises(AssertionError, match="not virtual time"):
        asyncio.run(scene())


@pytest.mark.parametrize(("share", "done_ms"), [(0.0, 0), (0.5, 350), (1.0, 700)])
async def test_on_a_slow_host_work_for_a_thread_takes_its_time(share: float, done_ms: int) -> None:
    loop = this_loop()
    loop.executor_ms["slow"], loop.executor_share = 700, lambda: share
    with loop.network.host("slow"):
        assert await asyncio.to_thread(loop.clock.monotonic_ms) == done_ms, "when it was done"
        assert loop.clock.monotonic_ms() == 700
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        for work in (lambda: 7, lambda: 1 / 0):
            loop.run_in_executor(None, work).cancel()  # it is done all the same
    await asyncio.sleep(1)
    assert await asyncio.to_thread(lambda: 8) == 8
    assert loop.clock.monotonic_ms() == 2_400


def test_only_a_coroutine_function_runs_in_virtual_time() -> None:
    with pytest.raises(UsageError, match="decorates an `async def`"):
        in_virtual_time(print)  # type: ignore[arg-type]
