"""Rate limit: at most so many rows per second, without catching up after a pause."""

from collections.abc import Callable
from typing import Final

from roquet.net.clock import SYSTEM_CLOCK

STEPS_PER_S: Final = 10
"""Requests per second at least, so that a rate does not become one burst per second."""


class RowRateLimit:
    """Delays each request; time that was lost while a broker was unavailable is not made up for."""

    def __init__(
        self,
        rate: float | None,
        pause: Callable[[int], object],
        now_ms: Callable[[], float] = SYSTEM_CLOCK.monotonic_ms,
    ) -> None:
        """`rate` in messages per second, None for no limit; `pause` sleeps for milliseconds."""
        self._rate = rate
        self._pause, self._now_ms = pause, now_ms
        self._due_ms = now_ms()

    @property
    def step(self) -> int | None:
        """Messages that one request may carry; None for no limit."""
        return None if self._rate is None else max(1, int(self._rate / STEPS_PER_S))

    def wait(self, count: int) -> None:
        """Wait until the next `count` messages may be sent."""
        if self._rate is None:
            return
        left_ms = self._due_ms - self._now_ms()
        if left_ms >= 1:
            self._pause(int(left_ms))
        self._due_ms = max(self._due_ms, self._now_ms()) + count * 1000 / self._rate
