"""Background tasks of a client: supervised loops, and a pause that can be cut short."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from roquet.log_records import logger
from roquet.model.errors import NotFound, RoquetError, UsageError
from roquet.net.clock import Clock
from roquet.net.loop import OwnLoop

log = logger(__name__)

RESTART_PAUSE_MS: Final = 1_000
"""Pause before a failed loop is started again, since it may fail again at once."""


class BackgroundTasks:
    """Tasks with one owner, which cancels them at its end and logs the error of one that fails."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_cancelled = False
        self._own_loop = OwnLoop()
        self.on_killed: Callable[[str], object] | None = None
        """Called with the name of a supervised loop that somebody else has cancelled."""

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a background task; UsageError in a loop that is not the others'."""
        try:
            self._own_loop.check()
        except UsageError:
            work.close()
            raise
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._is_cancelled:
            task.cancel()
        return task

    def supervise(
        self, work: Callable[[], Coroutine[Any, Any, None]], name: str, clock: Clock
    ) -> asyncio.Task[Any]:
        """Run a loop as a background task; restart it when it fails, and log the first failure."""
        return self.start(self._supervised(work, name, clock), name)

    async def _supervised(
        self, work: Callable[[], Coroutine[Any, Any, None]], name: str, clock: Clock
    ) -> None:
        is_said = False
        while True:
            try:
                await work()
            except asyncio.CancelledError:
                if not self._is_cancelled and self.on_killed is not None:
                    self.on_killed(name)
                raise
            except Exception:
                if not is_said:
                    log.exception("%s failed and goes on; this is said once", name)
                is_said = True
                await clock.sleep(RESTART_PAUSE_MS)
            else:
                return

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended with an error", task.get_name(), exc_info=error)

    @property
    def is_idle(self) -> bool:
        """Whether no task runs."""
        return not self._tasks

    def cancel(self) -> None:
        """Cancel all tasks except the calling one, and those that are started from now on."""
        self._is_cancelled = True
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self._is_cancelled = True
        await cancel_and_wait(*self._tasks)


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended; their results and errors are dropped."""
    ending = [task for task in tasks if task is not asyncio.current_task()]
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


class Wakeup:
    """A pause that can be cut short."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """End the current wait, or else the next one."""
        self._event.set()

    async def wait(self, ms: int) -> bool:
        """Wait for so many milliseconds, or until woken; True when woken."""
        try:
            async with asyncio.timeout(ms / 1000):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class ErrorLogThrottle:
    """Logs the first of many failures in a row, and the recovery after them."""

    def __init__(self, what: str, patience: int = 0) -> None:
        self._what = what
        self._patience = patience
        """Number of failures in a row that are not logged."""
        self._failures = 0
        self.failure: str | None = None
        """The latest failure since the last success, as a text."""

    def report(self, error: object) -> None:
        """Count a failure; the first one above the patience is logged.

        So is each new error that is a bug, with its traceback. NotFound says what is waited for.
        """
        self._failures += 1
        before, self.failure = self.failure, f"{self._what}: {error}"
        if isinstance(error, NotFound):
            self.failure = str(error)
        bug = None
        if isinstance(error, Exception) and not isinstance(error, RoquetError):
            bug = error
        if self._failures == self._patience + 1 or (bug and self.failure != before):
            log.warning("%s; trying again, this is said once", self.failure, exc_info=bug)

    def clear(self) -> None:
        """Note a success; logged if failures were."""
        if self._failures > self._patience:
            log.info("%s: works again", self._what)
        self._failures, self.failure = 0, None
