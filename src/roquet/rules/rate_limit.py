"""Rate limit: how long each request of a sender waits, so that all of them keep to a rate."""

from typing import Final

STEPS_PER_S: Final = 10
"""Requests per second at least, so that a rate does not become one burst per second."""


class RateLimit:
    """Messages per second at most. Time that was lost is not made up for."""

    def __init__(self, rate: float | None) -> None:
        """`rate` in messages per second; None for no limit."""
        self._rate = rate
        self._due_ms = 0.0

    @property
    def step(self) -> int | None:
        """Messages that one request may carry; None for no limit."""
        return None if self._rate is None else max(1, int(self._rate / STEPS_PER_S))

    def delay_ms(self, count: int, now_ms: float) -> int:
        """How long to wait before the next `count` messages, which are sent then.

        `now_ms` is that of a monotonic clock.
        """
        if self._rate is None:
            return 0
        begin_ms = max(self._due_ms, now_ms)
        self._due_ms = begin_ms + count * 1000 / self._rate
        return int(begin_ms - now_ms)
