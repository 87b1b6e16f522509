"""Event loop, which is uvloop where it is installed, and the process that a client belongs to."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from threading import get_ident
from typing import Any, Final, TypeVar

from roquet.model.errors import UsageError

T = TypeVar("T")

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    from uvloop import new_event_loop
except ImportError:  # Windows has no uvloop
    from asyncio import new_event_loop


class OwnLoop:
    """The event loop that a client belongs to: its connections and tasks live in no other."""

    __slots__ = ("_is_running", "_loop", "_thread")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_running: Callable[[], bool] = bool
        self._thread = 0

    def check(self) -> None:
        """Belong to the running loop from the first call on; UsageError anywhere else.

        The loop that runs in its own thread is the running one. To ask for that one instead costs a
        system call before Python 3.12, and each send comes here.
        """
        if self._thread != get_ident() or not self._is_running():
            self._begin()

    def _begin(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # another thread, or before `asyncio.run`
            running = None
        if running is None or self._loop not in (None, running):
            is_over = self._loop is not None and self._loop.is_closed()
            raise UsageError(
                f"this client belongs to another event loop{', which is closed' if is_over else ''}"
                ": make a client in each `asyncio.run`, thread or test, or use"
                " roquet.client.blocking, whose clients serve any thread"
            )
        self._loop, self._is_running = running, running.is_running
        self._thread = get_ident()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


class CurrentProcess:
    """The process that runs this code; a forked child gets its own id at once."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """Read the process id again."""
        self.pid = os.getpid()


CURRENT_PROCESS: Final = CurrentProcess()

if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=CURRENT_PROCESS.note)
