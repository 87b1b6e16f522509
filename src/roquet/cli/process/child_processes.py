"""Children: processes that a command starts, listens to and ends, and never leaves behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Self

from roquet.cli.process.runtime import LIFELINE
from roquet.model.errors import RoquetError
from roquet.store.filesystem.private_files import open_private

START_TIMEOUT_S: Final = 30
"""For a line that says `ready`: a server needs less than one, on a machine that is not busy."""

STOP_TIMEOUT_S: Final = 30
"""A broker flushes before it goes."""

LOG_TAIL_LINES: Final = 5
"""Lines of a child's log that are shown when it died."""


class ChildProcessFailed(RoquetError):
    """A process ended as it should not have."""


class ChildProcess:
    """A process with a name: what it prints is read here, what it logs goes to a file."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.address = ""
        """Where it serves, once whoever started it has learnt that."""
        self._process = process
        self._log = log
        self._has_spoken = False

    @classmethod
    async def start(
        cls, name: str, module: str, *arguments: str, logs: Path, environ: Mapping[str, str] = {}
    ) -> Self:
        """`python -m module arguments`, in our own environment and some more."""
        log = logs / f"{name}.log"
        with _log_file(log) as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.PIPE,  # nothing is said; that it ends says enough
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1", LIFELINE: "1", **environ},
                start_new_session=True,  # Ctrl-C is ours alone: children end in good order
            )
        return cls(name, process, log)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.returncode is None

    async def lines(self) -> AsyncIterator[str]:
        """What it prints, until it ends."""
        output = self._process.stdout
        while output is not None:
            try:
                line = await output.readline()
            except ValueError:  # longer than anything that is worth reading
                continue
            if not line:
                return
            self._has_spoken = True
            yield line.decode("utf-8", "replace").rstrip("\n")

    async def wait_ready(self, words: str) -> str:
        """What follows these words in a line that it prints; `ChildProcessFailed` if never."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                async for line in self.lines():
                    _, found, after = line.partition(words)
                    if found:
                        return after.strip()
        except TimeoutError:
            raise ChildProcessFailed(
                f"{self.name} was not ready within {START_TIMEOUT_S} s"
            ) from None
        await self._process.wait()
        raise self.failure()

    async def wait_success(self) -> None:
        """Wait for its end, which must be a good one."""
        if await self.wait() != 0:
            raise self.failure()

    async def wait(self) -> int:
        """Wait for its end, whichever it is; its exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask it to end, and see it end well; one that has ended already is left in peace.

        One that has not said a word yet has not learned how to end well either.
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
        if code != 0 and self._has_spoken:
            raise self.failure()

    async def kill(self) -> None:
        """End it without a word."""
        self._send(getattr(signal, "SIGKILL", signal.SIGTERM))
        await self._process.wait()

    def failure(self) -> ChildProcessFailed:
        """What to tell of a child that ended badly: the last lines of its log."""
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
