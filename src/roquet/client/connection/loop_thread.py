"""LoopThread: an event loop in a thread of its own, for the blocking client."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from roquet.model.errors import UsageError
from roquet.net.loop import new_event_loop

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own."""

    _one: "LoopThread | None" = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_event_loop()
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
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller has given up, for example after Ctrl-C
            raise
