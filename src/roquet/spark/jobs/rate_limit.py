"""Pace: so many messages a second and no more, also after a stop."""

from collections.abc import Callable
from typing import Final

from roquet.net.clock import SYSTEM_CLOCK

STEPS_PER_S: Final = 10
"""Requests of a second: a rate is kept in small steps, not in one burst a second."""


class RowRateLimit:
    """Waits before each step; what was missed while a broker was away is not made up for."""

    def __init__(
        self,
        rate: float | None,
        pause: Callable[[int], object],
        now_ms: Callable[[], float] = SYSTEM_CLOCK.monotonic_ms,
    ) -> None:
        """`rate` in messages a second; None is as fast as it goes."""
        self._rate = rate
        self._pause, self._now_ms = pause, now_ms
        self._due_ms = now_ms()

    @property
    def step(self) -> int | None:
        """Messages that go together at most; None leaves it to others."""
        return None if self._rate is None else max(1, int(self._rate / STEPS_PER_S))

    def wait(self, count: int) -> None:
        """Return when the next `count` messages may go."""
        if self._rate is None:
            return
        left_ms = self._due_ms - self._now_ms()
        if left_ms >= 1:
            self._pause(int(left_ms))
        self._due_ms = max(self._due_ms, self._now_ms()) + count * 1000 / self._rate
