"""Event loop, which is uvloop where it is installed, and the process that a client belongs to."""

import asyncio
import os
from asyncio import get_running_loop
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from roquet.model.errors import UsageError

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop."""
    try:  # here: clients that run on an application's loop do not need it
        import uvloop
    except ImportError:  # without the extra `server`, and on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class OwnLoop:
    """The event loop that a client belongs to: its connections and tasks live in no other."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Belong to the running loop from the first call on; UsageError anywhere else."""
        try:
            running = get_running_loop()
        except RuntimeError:  # another thread, or before `asyncio.run`
            running = None
        else:
            if running is self._loop:  # each send comes here
                return
        if running is None or self._loop is not None:
            is_over = self._loop is not None and self._loop.is_closed()
            raise UsageError(
                f"this client belongs to another event loop{', which is closed' if is_over else ''}"
                ": make a client in each `asyncio.run`, thread or test, or use"
                " roquet.client.blocking, whose clients serve any thread"
            )
        self._loop = running


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
