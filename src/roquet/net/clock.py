"""The one place that reads the time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from roquet.log_records import logger
from roquet.model.errors import StoreFailed

log = logger(__name__)


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

JUMP_MS: Final = 60_000
"""A wall clock that gains or loses so much at once has jumped; clocks that are set right by less
are believed at once."""

TRUST_MS: Final = 10_000
"""A jump that has lasted so long is meant: somebody has set the clock."""

LOOK_MS: Final = 1_000
"""Between two looks whether the wall clock has jumped: asking both clocks each time costs more."""


class SteadyClock:
    """A wall clock whose jumps are believed only when they last.

    A clock that is set weeks back or ahead for a moment leaves no trace: meanwhile the time goes
    on as the stopwatch has it. A process that was suspended sees a jump as well, since its
    stopwatch stood still, and catches up after `TRUST_MS`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms = clock.now_ms()
        self._ahead_ms = self._looked_ms - clock.monotonic_ms()
        """What the believed wall clock shows more than the stopwatch."""
        self._doubted_ms = 0
        self._doubted_since_ms: int | None = None
        """By the stopwatch, when the wall clock began to show something else."""

    def now_ms(self) -> int:
        """The wall's time in ms since the epoch, without its short jumps."""
        now_ms = self._clock.now_ms()
        if 0 <= now_ms - self._looked_ms < LOOK_MS:
            return now_ms
        return self._look(now_ms)

    def monotonic_ms(self) -> int:
        """A time that only grows, in ms."""
        return self._clock.monotonic_ms()

    async def sleep(self, ms: int) -> None:
        """Return after so many milliseconds."""
        await self._clock.sleep(ms)

    def _look(self, now_ms: int) -> int:
        """Compare both clocks; gives the time that is believed."""
        stopwatch_ms = self._clock.monotonic_ms()
        ahead_ms = now_ms - stopwatch_ms
        jumped_ms = ahead_ms - self._ahead_ms
        if abs(jumped_ms) > JUMP_MS and not self._has_lasted(ahead_ms, jumped_ms, stopwatch_ms):
            return stopwatch_ms + self._ahead_ms
        self._doubted_since_ms = None
        self._looked_ms, self._ahead_ms = now_ms, ahead_ms
        return now_ms

    def _has_lasted(self, ahead_ms: int, jumped_ms: int, stopwatch_ms: int) -> bool:
        """Whether a jump is meant; one that comes on top of another begins anew."""
        is_known = abs(ahead_ms - self._doubted_ms) <= JUMP_MS
        if self._doubted_since_ms is None or not is_known:
            self._doubted_ms, self._doubted_since_ms = ahead_ms, stopwatch_ms
            log.warning(
                "the clock jumped by %d s; that is believed when it has lasted for %d s",
                jumped_ms // 1_000, TRUST_MS // 1_000,
            )  # fmt: skip
        return stopwatch_ms - self._doubted_since_ms >= TRUST_MS


PeriodicStep = Callable[[int], Awaitable[object] | object]
"""What a loop does each time: plain or async, given `now_ms`."""


IntervalMs = int | Callable[[], int]
"""So many milliseconds, or who knows how many it are now."""


async def every(interval_ms: IntervalMs, step: PeriodicStep, clock: Clock = SYSTEM_CLOCK) -> None:
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


def _name(step: PeriodicStep) -> str:
    """What to call a step in the log: also a `partial` has a function inside."""
    function = getattr(step, "func", step)
    return f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
