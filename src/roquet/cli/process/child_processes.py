"""Child processes: started by a command, which reads their output and always ends them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from roquet.cli.process.runtime import LIFELINE
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.store.filesystem.private_files import open_private

START_TIMEOUT_S: Final = 30
"""Usual limit for the line that says `ready`: a server takes under a second unless the machine is
busy."""

STOP_TIMEOUT_S: Final = 30
"""A broker flushes before it ends."""

LOG_TAIL_LINES: Final = 5
"""Last lines of a failed child's log that are shown."""


class ChildProcessFailed(RoquetError):
    """A child process failed, or did not start or stop in time."""


class ChildProcess:
    """A named process whose stdout is read here, and whose stderr goes to a log file."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.address = ""
        """The address that it serves; set by the caller of `wait_ready`."""
        self._process = process
        self._log = log
        self._has_printed = False

    @classmethod
    async def start(
        cls, name: str, module: str, *arguments: str, logs: Path, environ: Mapping[str, str] = {}
    ) -> Self:
        """Start `python -m module arguments`, with `environ` added to the environment."""
        log = logs / f"{name}.log"
        with _log_file(log) as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.PIPE,  # its end says that we are gone
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1", LIFELINE: "1", **environ},
                start_new_session=True,  # Ctrl-C reaches only us
            )
        return cls(name, process, log)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def lines(self) -> AsyncIterator[str]:
        """Lines of its stdout, until it ends."""
        output = self._process.stdout
        while output is not None:
            try:
                line = await output.readline()
            except ValueError:  # a line longer than the buffer is skipped
                continue
            if not line:
                return
            self._has_printed = True
            yield line.decode("utf-8", "replace").rstrip("\n")

    def write_line(self, text: str) -> None:
        """Write a short line to its stdin."""
        stdin = self._process.stdin
        assert stdin is not None, "`start` makes a pipe of it"
        stdin.write(f"{text}\n".encode())

    async def wait_ready(self, words: str, timeout_s: float | None = None) -> str:
        """Wait for a line with these words, START_TIMEOUT_S by default; returns the rest of it.

        Raises ChildProcessFailed when it ends or takes too long before.
        """
        limit_s = START_TIMEOUT_S if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                async for line in self.lines():
                    _, separator, after = line.partition(words)
                    if separator:
                        return after.strip()
        except TimeoutError:
            raise ChildProcessFailed(f"{self.name} was not ready within {limit_s} s") from None
        await self._process.wait()
        raise self.failure()

    async def wait_success(self) -> None:
        """Wait for its end. Raises ChildProcessFailed unless the exit code is 0."""
        if await self.wait() != 0:
            raise self.failure()

    async def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Send SIGTERM and wait. Raises ChildProcessFailed when it fails or takes too long.

        A process that has not printed a line yet handles no signals: its exit code is ignored.
        """
        if not self.is_running:
            return
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                code = await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise ChildProcessFailed(
                f"{self.name} did not stop within {STOP_TIMEOUT_S} s"
            ) from None
        if code != 0 and self._has_printed:
            raise self.failure()

    async def kill(self) -> None:
        """Send SIGKILL and wait."""
        self._send(getattr(signal, "SIGKILL", signal.SIGTERM))
        await self._process.wait()

    def freeze(self) -> None:
        """Send SIGSTOP: it runs no further, and its connections stay open."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: it runs on where it was."""
        self._send(signal.SIGCONT)

    def failure(self) -> ChildProcessFailed:
        """The error of a child that failed, with the last lines of its log."""
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        tail = "\n  ".join(text.strip().splitlines()[-LOG_TAIL_LINES:])
        return ChildProcessFailed(
            f"{self.name} ended with code {self._process.returncode}:\n  {tail}"
        )

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


def _log_file(path: Path) -> BinaryIO:
    return open(path, "ab", opener=open_private)


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
