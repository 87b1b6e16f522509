"""Host clock: wrong by as much as it is set, fast by as much as it drifts."""

from roquet.testing.clock import START_MS, VirtualClock, in_virtual_time, this_loop
from simulation.replicated.host_clock import HostClock


def test_a_wall_clock_may_be_wrong_and_elapsed_time_is_not() -> None:
    true = VirtualClock()
    clock = HostClock(true)
    clock.ahead_ms = -5_000
    true.jump(1_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS - 4_000, 1_000)


def test_a_fast_clock_counts_more_than_passes() -> None:
    true = VirtualClock()
    fast, slow = HostClock(true, 5), HostClock(true, -5)
    true.jump(100_000)
    assert (fast.monotonic_ms(), slow.monotonic_ms()) == (100_500, 99_500)


@in_virtual_time
async def test_who_sleeps_by_a_fast_clock_wakes_early() -> None:
    clock = HostClock(this_loop().clock, 5)
    await clock.sleep(100_500)
    assert 100_000 <= this_loop().clock.monotonic_ms() <= 100_001
    assert clock.monotonic_ms() >= 100_499
