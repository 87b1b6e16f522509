"""Clock: the only module that reads the time; `every` runs a step at intervals."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from roquet.log_records import logger
from roquet.model.errors import StoreFailed

log = logger(__name__)

UNTIMED: Final = -1
"""In place of a monotonic time that was not read: reading costs more than counting."""


class Clock(Protocol):
    """A wall clock, a monotonic clock and a sleep."""

    def now_ms(self) -> int:
        """Wall-clock time in ms since the epoch: for what is stored or shown. It may jump."""

    def monotonic_ms(self) -> int:
        """Monotonic time in ms: for deadlines and durations. Its zero means nothing."""

    async def sleep(self, ms: int) -> None:
        """Return after `ms` milliseconds."""


def boottime(clock: Clock) -> Callable[[], int]:
    """Monotonic time in ms for leases: another machine's clock goes on while this one sleeps.

    A clock that has no such time is taken for one whose machine never sleeps.
    """
    boottime_ms: Callable[[], int] = getattr(clock, "boottime_ms", clock.monotonic_ms)
    return boottime_ms


_BOOTTIME: Final[int | None] = getattr(
    time, "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME", None
)
"""Id of the system's clock that counts sleep; `time.monotonic` asks one that does not."""


class SystemClock:
    """The clock of the machine."""

    __slots__ = ("_boottime_id",)

    def __init__(self, boottime_id: int | None = _BOOTTIME) -> None:
        """Take the id of the system's clock that counts sleep; None: it has none."""
        self._boottime_id = boottime_id

    def __repr__(self) -> str:
        return "SYSTEM_CLOCK"

    def now_ms(self) -> int:
        """Wall-clock time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time in ms."""
        return time.monotonic_ns() // 1_000_000

    def boottime_ms(self) -> int:
        """Monotonic time in ms that counts the machine's sleep, where the system has it."""
        if self._boottime_id is None:
            return self.monotonic_ms()
        return time.clock_gettime_ns(self._boottime_id) // 1_000_000

    async def sleep(self, ms: int) -> None:
        """Return after `ms` milliseconds."""
        await asyncio.sleep(ms / 1000)


SYSTEM_CLOCK: Final = SystemClock()


def clock_of_loop(clock: Clock = SYSTEM_CLOCK) -> Clock:
    """The clock of the running event loop if it has one, as in virtual time, else the system's.

    A clock that is not the system's was chosen, and stays.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # blocking clients are made where none runs
        return clock
    return getattr(loop, "clock", clock) if clock is SYSTEM_CLOCK else clock


JUMP_MS: Final = 60_000
"""A change of the wall clock against the monotonic one by more ms than this is a jump; smaller
corrections are accepted at once."""

TRUST_MS: Final = 10_000
"""A jump that has lasted for this many ms is accepted: somebody has set the clock."""

LOOK_MS: Final = 1_000
"""Ms between two checks for a jump: reading both clocks every time costs more."""


class SteadyClock:
    """A wall clock that ignores jumps until they have lasted for `TRUST_MS`.

    A clock that is set weeks back or ahead for a moment leaves no trace: meanwhile time advances
    with the monotonic clock. A process that was suspended sees a jump as well, since its monotonic
    clock stood still, and catches up after `TRUST_MS`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic_ms = clock.monotonic_ms
        """Monotonic time in ms. It is read for every request, so it is no method of this class."""
        self._boottime_ms = boottime(clock)
        self._looked_ms = clock.now_ms()
        self._ahead_ms = self._looked_ms - clock.monotonic_ms()
        """Accepted wall-clock time minus monotonic time."""
        self._doubted_ms = 0
        self._doubted_since_ms: int | None = None
        """Monotonic time at which the pending jump was first seen; None without one."""

    def now_ms(self) -> int:
        """Wall-clock time in ms since the epoch, without short jumps."""
        now_ms = self._clock.now_ms()
        if 0 <= now_ms - self._looked_ms < LOOK_MS:
            return now_ms
        return self._compare(now_ms)

    def boottime_ms(self) -> int:
        """Monotonic time in ms that counts the machine's sleep."""
        return self._boottime_ms()

    async def sleep(self, ms: int) -> None:
        """Return after `ms` milliseconds."""
        await self._clock.sleep(ms)

    def _compare(self, now_ms: int) -> int:
        """Compare both clocks; returns the accepted time."""
        stopwatch_ms = self._clock.monotonic_ms()
        ahead_ms = now_ms - stopwatch_ms
        jumped_ms = ahead_ms - self._ahead_ms
        if abs(jumped_ms) > JUMP_MS and not self._has_lasted(ahead_ms, jumped_ms, stopwatch_ms):
            return stopwatch_ms + self._ahead_ms
        self._doubted_since_ms = None
        self._looked_ms, self._ahead_ms = now_ms, ahead_ms
        return now_ms

    def _has_lasted(self, ahead_ms: int, jumped_ms: int, stopwatch_ms: int) -> bool:
        """Whether a jump has lasted long enough; a different jump starts the wait again."""
        is_known = abs(ahead_ms - self._doubted_ms) <= JUMP_MS
        if self._doubted_since_ms is None or not is_known:
            self._doubted_ms, self._doubted_since_ms = ahead_ms, stopwatch_ms
            log.warning(
                "the clock jumped by %d s; the jump is accepted once it has lasted for %d s",
                jumped_ms // 1_000, TRUST_MS // 1_000,
            )  # fmt: skip
        return stopwatch_ms - self._doubted_since_ms >= TRUST_MS


PeriodicStep = Callable[[int], Awaitable[object] | object]
"""One step of a loop, plain or async; its argument is `now_ms`."""


IntervalMs = int | Callable[[], int]
"""Milliseconds, or a function that returns how many they are now."""


async def every(interval_ms: IntervalMs, step: PeriodicStep, clock: Clock = SYSTEM_CLOCK) -> None:
    """Run a step after each interval, forever: `create_task(every(10_000, step, clock))`.

    A step that raises is logged with its traceback, each type of error once until the step
    succeeds again, and the loop goes on. StoreFailed is not logged: the store itself logs it.
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
    """Name of a step for the log; a `partial` is named for its function."""
    function = getattr(step, "func", step)
    return f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
