"""A clock that jumps, and an event loop that lives by it.

@in_virtual_time
async def test_a_silent_peer_is_forgotten(): ...      # two minutes pass in a millisecond
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from roquet.testing.network import Network

P = ParamSpec("P")
T = TypeVar("T")

START_MS: Final = 1_700_000_000_000
"""What a virtual clock's wall shows at first: 14 November 2023."""

STUCK_S: Final = 2.0
"""How long, in real seconds, a loop with nothing due waits for another thread to stir it."""


class VirtualClock:
    """A clock that stands still until someone moves it."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._elapsed_us = 0  # a whole number: a year's worth of floats would not add up

    def now_ms(self) -> int:
        """The wall's time in ms since the epoch."""
        return self._start_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """The time that has passed, in ms."""
        return self._elapsed_us // 1_000

    def elapsed_s(self) -> float:
        """The same in seconds, as event loops count."""
        return self._elapsed_us / 1_000_000

    def jump(self, ms: float) -> None:
        """Let time pass, a microsecond at least."""
        self._elapsed_us += max(round(ms * 1_000), 1)

    async def sleep(self, ms: int) -> None:
        """Return after so many virtual milliseconds."""
        await asyncio.sleep(ms / 1000)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next thing due, with a network in memory.

    Work for other threads is done on this one, at once. Everything that happens depends on the
    program and on the seed alone.
    """

    def __init__(self, seed: int = 0) -> None:
        self.clock = VirtualClock()
        super().__init__(_JumpingSelector(self.clock))
        # asyncio's nanosecond is lost in the floats of a year: what is due would never be run.
        self._clock_resolution = 1e-6
        self.network = Network(self, Random(seed))

    def time(self) -> float:
        """The virtual clock's time."""
        return self.clock.elapsed_s()

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Listen on the network in memory."""
        return await self.network.create_server(*args, **options)

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect through the network in memory."""
        return await self.network.create_connection(*args, **options)

    def run_in_executor(  # type: ignore[override]
        self, _: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do it here and now."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _JumpingSelector(selectors.SelectSelector):
    """A selector that never sleeps: it moves the clock instead."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; when nothing is, time jumps."""
        ready = super().select(STUCK_S if timeout is None else 0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("everyone waits, and nothing is due: this would last for ever")
        if timeout > 0:
            self._clock.jump(timeout * 1000)
        return ready


def run(main: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a plain function, for pytest, of a coroutine function that lives in virtual time."""

    @wraps(test)
    def plain(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return plain


def this_loop() -> VirtualLoop:
    """The virtual loop that runs us."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "this is not virtual time"
    return loop
