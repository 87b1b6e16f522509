"""Timers of a virtual loop: in the order of time and of their calls, and gone when cancelled."""

import asyncio

import pytest

from roquet.testing.clock import this_loop
from roquet.testing.virtual_timers import CANCELLED_MIN

pytestmark = pytest.mark.virtual_time


async def test_timers_of_one_moment_run_in_the_order_of_their_calls() -> None:
    loop, seen = this_loop(), list[int]()
    for number in range(50):
        loop.call_at(2.0 if number % 2 else 1.0, seen.append, number)
    await asyncio.sleep(3)
    assert seen == [*range(0, 50, 2), *range(1, 50, 2)]


async def test_a_cancelled_timer_does_not_run() -> None:
    loop, seen = this_loop(), list[int]()
    loop.call_later(1, seen.append, 1).cancel()
    loop.call_later(3, seen.append, 3)
    await asyncio.sleep(4)
    assert seen == [3]
    assert len(loop.timers) == 0


async def test_a_heap_of_cancelled_timers_is_emptied_before_they_are_due() -> None:
    loop = this_loop()
    for _ in range(10 * CANCELLED_MIN):
        loop.call_later(3_600, _nothing).cancel()
    assert len(loop.timers) <= 2 * CANCELLED_MIN


async def test_removed_timers_are_those_that_are_meant_in_the_order_of_their_calls() -> None:
    loop = this_loop()
    first, other, last = (loop.call_later(delay, _nothing) for delay in (9, 5, 1))
    assert loop.timers.remove(lambda timer: timer is not other) == [first, last]
    assert loop.timers.next_when() == other.when()
    loop.timers.push(first)
    other.cancel()
    assert loop.timers.next_when() == first.when()
    assert loop.timers.remove(lambda _: True) == [first]
    assert loop.timers.next_when() is None


def _nothing() -> None:
    """Do nothing."""
