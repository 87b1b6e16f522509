"""Coroutines that wait for a number."""

import asyncio

import pytest

from roquet.net.async_watermark import AsyncWatermark
from roquet.net.router import ReplyWhen
from roquet.testing.clock import VirtualClock, this_loop
from roquet.wire.calls.route import ValueReply

pytestmark = pytest.mark.virtual_time


def new_mark(value: int = 0) -> tuple[AsyncWatermark, VirtualClock]:
    clock = this_loop().clock
    return AsyncWatermark(value, clock=clock), clock


async def test_a_target_already_reached_is_not_waited_for() -> None:
    mark, clock = new_mark(5)
    assert await mark.reach(5, deadline_ms=0)
    assert clock.monotonic_ms() == 0


async def test_each_waiter_goes_on_when_its_own_target_is_reached() -> None:
    mark, clock = new_mark()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(mark.reach(target, 10_000)) for target in (3, 1, 2)]
        await clock.sleep(100)
        mark.advance(2)
        await clock.sleep(1)
        assert [task.done() for task in waiting] == [False, True, True]
        mark.advance(1)
        mark.advance(9)
    assert [task.result() for task in waiting] == [True, True, True]
    assert clock.monotonic_ms() == 101
    assert mark.value == 9


async def test_the_deadline_ends_the_wait() -> None:
    mark, clock = new_mark()

    async def wait(deadline_ms: int) -> tuple[bool, int]:
        return await mark.reach(1, deadline_ms), clock.monotonic_ms()

    results = await asyncio.gather(*map(wait, (3_000, 1_000, 2_000, -5)))
    assert results == [(False, 3_000), (False, 1_000), (False, 2_000), (False, 0)]
    assert mark.waiting == 0


async def test_a_wakeup_without_waiters_does_no_harm() -> None:
    mark, clock = new_mark()
    first = asyncio.create_task(mark.reach(1, 1_000))
    await clock.sleep(1)
    mark.advance(1)
    assert await first
    second = asyncio.create_task(mark.reach(2, 5_000))
    await clock.sleep(2_000)
    assert not second.done()
    mark.advance(2)
    assert await second


async def test_a_cancelled_waiter_is_skipped() -> None:
    mark, clock = new_mark()
    gone, stays = (asyncio.create_task(mark.reach(1, 1_000)) for _ in range(2))
    await clock.sleep(1)
    gone.cancel()
    await clock.sleep(1)
    mark.advance(1)
    assert await stays
    assert gone.cancelled()


async def test_a_release_ends_all_waits_before_their_target() -> None:
    mark, clock = new_mark()
    waiting = [asyncio.create_task(mark.reach(target, 9_000)) for target in (1, 2)]
    await clock.sleep(1)
    mark.release()
    assert await asyncio.gather(*waiting) == [False, False]
    assert clock.monotonic_ms() == 1


async def test_a_waiter_that_fails_does_not_keep_others_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty:
        def done(self) -> bool:
            return False

        def set_result(self, reached: bool, /) -> None:
            raise OSError("no transport")

    mark, clock = new_mark()
    mark.add(1, 1_000, Faulty())
    other = asyncio.create_task(mark.reach(1, 1_000))
    await clock.sleep(1)
    mark.advance(1)
    assert await other
    assert "no transport" in caplog.text


async def test_a_deadline_off_the_walls_clock_is_a_mistake() -> None:
    mark, clock = new_mark()
    with pytest.raises(AssertionError, match="monotonic"):
        await mark.reach(1, clock.now_ms() + 1_000)


async def wait_longer() -> ValueReply:
    await asyncio.sleep(1)
    return ValueReply(value="late")


@pytest.mark.parametrize(
    ("value", "expected", "at_ms"), [(5, "soon", 200), (4, "late", 1_500), (9, "soon", 200)]
)
async def test_it_is_awaited_until_the_number_has_grown_or_the_deadline(
    value: int, expected: str, at_ms: int
) -> None:
    clock = this_loop().clock
    mark = AsyncWatermark(3, clock=clock)
    reply = ReplyWhen(
        mark, 5, 0, 500, lambda reached: ValueReply(value="soon") if reached else wait_longer()
    )
    waiting = asyncio.ensure_future(reply)
    await clock.sleep(200)
    mark.advance(value)
    assert await waiting == ValueReply(value=expected)
    assert clock.monotonic_ms() == at_ms
