"""LoopThread: an event loop in a thread of its own, for the blocking client."""

import asyncio
import concurrent.futures.thread  # not to be loaded once the main thread has ended
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakSet

from roquet.model.errors import UsageError
from roquet.net.loop import new_event_loop

T = TypeVar("T")

SIGNAL_S: Final = 1.0
"""Seconds after which a wait looks for signals that came just before it began."""

_OURS: Final = ("roquet.client.", "contextlib")
"""Modules between a user's line and a wait; contextlib's is between for a transaction's block."""


class LoopThread:
    """An event loop in a thread of its own."""

    _one: "LoopThread | None" = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_event_loop()
        self._warned: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """Event loops in which a blocking wait was warned of."""
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="roquet-loop", daemon=True
        )
        self._thread.start()

    @classmethod
    def shared(cls) -> "LoopThread":
        """The loop thread of this process; a forked child gets its own."""
        with cls._lock:
            if cls._one is None or cls._one.pid != os.getpid():
                cls._one = cls()
            return cls._one

    @classmethod
    def is_here(cls) -> bool:
        """Whether this is the thread of the shared loop, where blocking clients do their work."""
        return cls._one is not None and cls._one._thread is threading.current_thread()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and block until it has ended."""
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("this is the event loop's thread: use the async client there")
        if self.pid != os.getpid():
            work.close()
            raise UsageError("this client was made before a fork: make a new one in the child")
        loop = _running_loop()
        # Notebooks have a loop anyway.
        if loop and loop not in self._warned and "ipykernel" not in sys.modules:
            self._warned.add(loop)
            warnings.warn(
                "a blocking client waits in a coroutine, and stops everything else of its event"
                " loop: use roquet.client there, or a thread (asyncio.to_thread)",
                RuntimeWarning,
                stacklevel=_users_level(),
            )
        # Cheaper than `asyncio.run_coroutine_threadsafe`, which makes two futures besides the task.
        tasks: list[asyncio.Task[T]] = []
        ended = threading.Lock()
        ended.acquire()

        def start() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(lambda _: ended.release())

        try:
            self.loop.call_soon_threadsafe(start)
            # A signal just before a wait does not end it: what it raises comes after one step.
            while not ended.acquire(timeout=SIGNAL_S):
                pass
        except BaseException:  # the caller has given up, for example after Ctrl-C
            self.loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise
        try:
            return tasks[0].result()
        except asyncio.CancelledError:  # which is for coroutines
            raise concurrent.futures.CancelledError from None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _users_level() -> int:
    """The `stacklevel` for a warning of the caller: the first line outside of this package."""
    frame, level = inspect.currentframe(), 0
    while frame and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, level = frame.f_back, level + 1
    return level
