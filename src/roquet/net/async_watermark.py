"""AsyncWatermark: rules.watermark for coroutines, `await watermark.reach(offset, deadline_ms)`."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from roquet.log_records import logger
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.rules.watermark import Watermark

log = logger(__name__)

WAIT_MS_MAX: Final = 24 * 3600 * 1000
"""Longest wait in ms, a day: a later deadline was computed from the wrong clock."""


class Waiter(Protocol):
    """Waiter for a value: a future of a coroutine, or what costs less."""

    def done(self) -> bool:
        """Whether it waits no longer, for instance because it was cancelled."""

    def set_result(self, reached: bool, /) -> None:
        """End the wait: the value is reached, or will not be in time."""


class AsyncWatermark:
    """A number that only grows, and the coroutines that wait for it to reach a value.

    For the event loop's thread only. `advance` costs next to nothing while no coroutine waits.
    """

    __slots__ = ("_clock", "_rule", "_timer", "_timer_ms")

    def __init__(self, value: int = 0, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rule: Watermark[Waiter] = Watermark(value)
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    @property
    def value(self) -> int:
        """The current value."""
        return self._rule.value

    @property
    def waiting(self) -> int:
        """Waiting coroutines; a cancelled one counts until its deadline."""
        return len(self._rule)

    async def reach(self, target: int, deadline_ms: int) -> bool:
        """Wait until the value is at least `target`; False when the deadline came first.

        The deadline is a time of `clock.monotonic_ms()`.
        """
        if self._rule.value >= target:
            return True
        left_ms = deadline_ms - self._clock.monotonic_ms()
        assert left_ms <= WAIT_MS_MAX, "a deadline is a time of clock.monotonic_ms()"
        if left_ms <= 0:
            return False
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.add(target, deadline_ms, reached)
        return await reached

    def add(self, target: int, deadline_ms: int, waiter: Waiter) -> None:
        """Add a waiter for a value that is not reached yet; its wait is ended once."""
        self._rule.wait(target, deadline_ms, waiter)
        self._ring_at(deadline_ms)

    def advance(self, value: int) -> None:
        """Raise the value to `value`, and wake the coroutines that wait for it."""
        reached = self._rule.advance(value)
        if reached:
            _settle(reached, outcome=True)

    def release(self) -> None:
        """Wake all waiting coroutines, as if their deadlines had come."""
        _settle(self._rule.release(), outcome=False)

    def _ring_at(self, deadline_ms: int) -> None:
        """Set the timer for this deadline, unless it is set for an earlier one.

        It is not cancelled when all are woken earlier: one idle timeout is cheaper than a timer for
        every wait.
        """
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 1)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        _settle(self._rule.expire(self._clock.monotonic_ms()), outcome=False)
        deadline_ms = self._rule.next_deadline()
        if deadline_ms is not None:
            self._ring_at(deadline_ms)


def _settle(waiters: Iterable[Waiter], *, outcome: bool) -> None:
    """End the waits that were not cancelled."""
    for waiter in waiters:
        if not waiter.done():
            try:
                waiter.set_result(outcome)
            except Exception:  # the others must not wait for ever
                log.exception("a reply that was due is lost")
