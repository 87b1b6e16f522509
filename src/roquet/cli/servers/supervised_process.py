"""Supervised process: a child process that is started again, after a pause, when it has died."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.log_records import logger
from roquet.model.errors import RoquetError

log = logger(__name__)

PAUSE_MIN_S: Final = 1.0
"""Shortest pause before a process that died is restarted."""

PAUSE_MAX_S: Final = 30.0
"""Longest pause: each failure doubles it, so that a broken process keeps no core busy."""

STABLE_S: Final = 60.0
"""After so long a life the next pause is the shortest again."""

StartProcess = Callable[[], Coroutine[Any, Any, ChildProcess]]
Sleep = Callable[[float], Coroutine[Any, Any, None]]


class SupervisedProcess:
    """A process that is restarted, after a pause, whenever it has died."""

    def __init__(
        self, child: ChildProcess, start: StartProcess, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.child = child
        self._start = start
        self._sleep = sleep
        self.pause_s = PAUSE_MIN_S
        self.restarts = 0

    async def supervise(self) -> None:
        """Watch and restart the process until cancelled."""
        while True:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            async for _ in self.child.lines():
                pass
            await self.child.wait()
            if loop.time() - began_s >= STABLE_S:
                self.pause_s = PAUSE_MIN_S
            for line in str(self.child.failure()).splitlines():  # each is a log line of its own
                log.error("%s", line)
            log.error("%s is started again in %g s", self.child.name, self.pause_s)
            await self._again()

    async def _again(self) -> None:
        while True:
            await self._sleep(self.pause_s)
            self.pause_s = min(2 * self.pause_s, PAUSE_MAX_S)
            try:
                self.child = await self._start()
            except (ChildProcessFailed, OSError) as error:  # a full disk has no room for its log
                log.warning("%s: %s; tried again in %g s", self.child.name, error, self.pause_s)
            else:
                self.restarts += 1
                log.warning("%s is back at %s", self.child.name, self.child.address)
                return

    async def stop(self) -> None:
        """Stop it; an error is only logged, because other processes have to be stopped, too."""
        try:
            await self.child.stop()
        except RoquetError as error:
            log.warning("%s", error)


@asynccontextmanager
async def supervision() -> AsyncIterator[Callable[[SupervisedProcess], None]]:
    """A function that has a process supervised from its call on, until the block ends."""
    tasks: list[asyncio.Task[None]] = []
    try:
        yield lambda process: tasks.append(asyncio.create_task(process.supervise()))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def start_unless_stopped(start: StartProcess, stop: asyncio.Event) -> ChildProcess | None:
    """Start a process; None if it was not ready when a stop signal came, and is ended.

    A broker that reads its whole log takes long, and whoever waits for it may give up.
    """
    starting, stopping = asyncio.create_task(start()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    (child,) = await asyncio.gather(starting, return_exceptions=True)
    return None if isinstance(child, BaseException) else child


async def stop_all(processes: Sequence[SupervisedProcess]) -> None:
    """Stop processes, all at once."""
    await asyncio.gather(*(process.stop() for process in processes))
