"""Virtual time: a clock that jumps, and an event loop that runs by it.

@in_virtual_time
async def test_a_silent_peer_is_forgotten(): ...      # two minutes pass in a millisecond
"""

import asyncio
import inspect
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from functools import wraps
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from roquet.model.errors import UsageError
from roquet.testing.network import Network
from roquet.testing.virtual_timers import VirtualCallback, VirtualTimer, VirtualTimers

P = ParamSpec("P")
T = TypeVar("T")

START_MS: Final = 1_700_000_000_000
"""Wall time at which a virtual clock starts: 14 November 2023."""

STUCK_S: Final = 2.0
"""Real seconds that a loop with nothing due waits for another thread before it fails."""

LOOP_ITSELF: Final = 1
"""File descriptors that a loop has registered for itself: the one by which threads wake it."""


class VirtualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._elapsed_us = 0  # a whole number: a year's worth of floats would not add up

    def now_ms(self) -> int:
        """Wall time in ms since the epoch."""
        return self._start_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Elapsed time in ms."""
        return self._elapsed_us // 1_000

    def elapsed_s(self) -> float:
        """Elapsed time in seconds, as event loops count."""
        return self._elapsed_us / 1_000_000

    def jump(self, ms: float) -> None:
        """Move the clock forward, by a microsecond at least."""
        self._elapsed_us += max(round(ms * 1_000), 1)

    def shift_wall_time(self, ms: int) -> None:
        """Set wall time forward by `ms`, or back if negative; elapsed time stays as it is."""
        self._start_ms += ms

    async def sleep(self, ms: int) -> None:
        """Return after `ms` virtual milliseconds."""
        await asyncio.sleep(ms / 1000)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer that is due, with a network in memory.

    Work for executors runs on the loop's own thread. Everything that happens depends on
    the program and the seed alone.
    """

    # Parts of asyncio's loops that their types leave out.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _selector: selectors.BaseSelector
    _process_events: Callable[[list[tuple[selectors.SelectorKey, int]]], None]

    def __init__(self, seed: int = 0) -> None:
        self.clock = VirtualClock()
        super().__init__(_JumpingSelector(self.clock))
        # asyncio's default, a nanosecond, is lost in the floats of a year: timers would never run.
        self._clock_resolution = 1e-6
        self.network = Network(self, Random(seed))
        self.executor_ms: dict[str, int] = {}
        """Ms that work for executors takes on slow hosts; none elsewhere."""
        self.executor_share: Callable[[], float] = lambda: 1.0
        """Gives the share of that time after which the work is done; its caller gets the result
        at the end."""
        self.timers = VirtualTimers()

    def time(self) -> float:
        """The virtual clock's time."""
        return self.clock.elapsed_s()

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> VirtualTimer:
        """Call a function at a time, those of one time in the order of these calls."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        timer = VirtualTimer(when, callback, args, self, context)
        self.timers.push(timer)
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> VirtualTimer:
        """Call a function after some seconds."""
        return self.call_at(self.clock.elapsed_s() + delay, callback, *args, context=context)

    @property
    def ready(self) -> deque[asyncio.Handle]:
        """Callbacks of the next turn; while a turn runs those that are left of it come first."""
        return self._ready

    def _call_soon(
        self, callback: Callable[..., Any], args: Sequence[Any], context: Context | None
    ) -> VirtualCallback:
        handle = VirtualCallback(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _timer_handle_cancelled(self, timer: VirtualTimer) -> None:
        if timer.is_scheduled:
            self.timers.note_cancelled()

    def _run_once(self) -> None:
        """Run one turn: what is ready; only if nothing is, the clock jumps to the next timer.

        asyncio's own turn does as much, and half of a simulation's time would be spent in it.
        """
        ready, timers = self._ready, self.timers
        when = timers.next_when()
        if not (ready or self._stopping):
            timeout = None if when is None else max(0.0, when - self.clock.elapsed_s())
            self._process_events(self._selector.select(timeout))
        end = self.clock.elapsed_s() + self._clock_resolution
        if when is not None and when < end:
            ready.extend(timers.pop_due(end))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Listen on the network in memory, as `asyncio` does on sockets."""
        return await self.network.create_server(*args, **options)

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect through the network in memory, as `asyncio` does through sockets."""
        return await self.network.create_connection(*args, **options)

    def run_in_executor(  # type: ignore[override]
        self, _: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call the function on this thread: at once, or on a slow host after a while."""
        future: asyncio.Future[T] = self.create_future()
        delay_s = self.executor_ms.get(Network.this_host(), 0) / 1000
        work_s = delay_s * self.executor_share() if delay_s else 0

        def work() -> None:
            done: asyncio.Future[T] = self.create_future()
            _complete(done, func, *args)
            self.call_later(delay_s - work_s, _pass_on, done, future)

        if work_s < delay_s:
            self.call_later(work_s, work)
        elif delay_s:
            self.call_later(delay_s, _complete, future, func, *args)
        else:
            _complete(future, func, *args)
        return future


def _pass_on(done: asyncio.Future[T], future: asyncio.Future[T]) -> None:
    """Give a future the result of another one, even if nobody waits for it any more."""
    error = done.exception()
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())


def _complete(future: asyncio.Future[T], func: Callable[..., T], *args: Any) -> None:
    """Give a future the result of a function, even if nobody waits for it any more."""
    try:
        result = func(*args)
    except Exception as error:
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of sleeping."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """File descriptors that are ready now; if none is, the clock jumps."""
        if timeout is None or len(self.get_map()) > LOOP_ITSELF:
            ready = super().select(STUCK_S if timeout is None else 0)
            if ready:
                return ready
        if timeout is None:
            raise RuntimeError("everyone waits, and nothing is due: this would last for ever")
        if timeout:
            self._clock.jump(timeout * 1000)
        return []


def run(main: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run a coroutine to its end in virtual time. The seed decides the network's delays."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Decorate a coroutine function as a plain test function that runs in virtual time."""
    if not inspect.iscoroutinefunction(test):
        raise UsageError(f"in_virtual_time decorates an `async def`, not {test!r:.100}")

    @wraps(test)
    def plain(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return plain


def this_loop() -> VirtualLoop:
    """The running virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "this is not virtual time"
    return loop
