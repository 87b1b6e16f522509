"""Pace: a limit of messages a second that several tasks share."""

from typing import Final

from roquet.net.clock import Clock

STEPS_PER_S: Final = 10
"""Requests per second at least, so that a rate does not become one burst per second."""

COUNT_MAX: Final = 1_000
"""Messages of one step without a rate."""


class Pace:
    """Delays tasks so that all together stay within a rate; lost time is not made up for."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        """`rate` in messages per second; None for no limit."""
        self._rate, self._clock = rate, clock
        self._due_ms: float = clock.monotonic_ms()

    @property
    def step(self) -> int:
        """Messages to read at a time."""
        return (
            COUNT_MAX
            if self._rate is None
            else max(1, min(COUNT_MAX, int(self._rate / STEPS_PER_S)))
        )

    async def wait(self, count: int) -> None:
        """Wait until the next `count` messages may be sent."""
        if self._rate is None:
            return
        now_ms = self._clock.monotonic_ms()
        begin_ms = max(self._due_ms, now_ms)
        self._due_ms = begin_ms + count * 1000 / self._rate
        if begin_ms > now_ms:
            await self._clock.sleep(int(begin_ms - now_ms))
