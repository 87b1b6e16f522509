"""The one place that reads the time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from roquet.model.errors import StoreFailed

log = logging.getLogger(__name__)


class Clock(Protocol):
    """What time it is, on the wall and on a stopwatch; and a pause."""

    def now_ms(self) -> int:
        """The wall's time in ms since the epoch: for what is stored or shown. It may jump."""

    def monotonic_ms(self) -> int:
        """A time that only grows, in ms: for deadlines and durations. Its zero means nothing."""

    async def sleep(self, ms: int) -> None:
        """Return after so many milliseconds."""


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SYSTEM_CLOCK"

    def now_ms(self) -> int:
        """The wall's time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """A time that only grows, in ms."""
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, ms: int) -> None:
        """Return after so many milliseconds."""
        await asyncio.sleep(ms / 1000)


SYSTEM_CLOCK: Final = SystemClock()


Step = Callable[[int], Awaitable[object] | object]
"""What a loop does each time: plain or async, given `now_ms`."""


Interval = int | Callable[[], int]
"""So many milliseconds, or who knows how many it are now."""


async def every(interval_ms: Interval, step: Step, clock: Clock = SYSTEM_CLOCK) -> None:
    """Run a step after each interval, for ever: `create_task(every(10_000, step, clock))`.

    A step that raises is logged with its traceback, the same kind of error only once until the
    step succeeds again; and the loop goes on. Of a disk that failed the store itself has told.
    """
    complained: set[type[Exception]] = set()
    while True:
        pause_ms = interval_ms() if callable(interval_ms) else interval_ms
        await clock.sleep(pause_ms)
        try:
            outcome = step(clock.now_ms())
            if isinstance(outcome, Awaitable):
                await outcome
        except StoreFailed:
            continue
        except Exception as error:
            if type(error) not in complained:
                complained.add(type(error))
                log.exception("%s failed; it is tried again every %d ms", _name(step), pause_ms)
        else:
            complained.clear()


def _name(step: Step) -> str:
    """What to call a step in the log: also a `partial` has a function inside."""
    function = getattr(step, "func", step)
    return f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
