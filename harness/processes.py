"""Processes with their output in a file: awaited, frozen, stopped, killed, and started again.

with Process([*ROQUET, "dev"], folder / "dev.log", ready="ready") as server:
    server.kill()
    server.start()
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from roquet.cli.process.runtime import LIFELINE
from roquet.model.errors import RoquetError

SOURCE: Final = str(Path(__file__).resolve().parent.parent / "src")
ROQUET: Final = (sys.executable, "-m", "roquet")

START_SECONDS_MAX: Final = 90
"""A cold JVM on a busy machine of two cores takes about ten seconds."""
STOP_SECONDS_MAX: Final = 30
"""A broker flushes before it ends."""
LOOK_S: Final = 0.005
TAIL_LINES: Final = 20
"""Last lines of its output that are shown of a process that failed."""


class ProcessFailed(RoquetError):
    """A process ended by itself, or did not become ready in time."""


class Process:
    """A process that can be started again and again; as a context, while the block runs."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        ready: str = "",
        home: Path | None = None,
        environ: Mapping[str, str] = {},
    ) -> None:
        """`ready` is a text of its output once it serves; `home` stands for the user's directory.

        `environ` is added to the environment.
        """
        self.command = list(command)
        self.log = log
        self._ready = ready
        self._home = home
        self._environ = environ
        self._child: subprocess.Popen[bytes] | None = None
        """None before it was started, and after it was stopped or killed."""
        self._code = 0
        """Exit code of the last run that was stopped or killed."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it is ready. Raises ProcessFailed."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it; it may not be ready when this returns. Earlier output is in `LOG.NUMBER`."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists():  # what a killed process has left may still write to it
            earlier = len([*self.log.parent.glob(f"{self.log.name}.*")])
            self.log.rename(f"{self.log}.{earlier + 1}")
        with self.log.open("wb") as sink:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,  # its end says that we are gone
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._own_environment(), **self._environ},
                start_new_session=LIFELINE in self._environ,  # Ctrl-C reaches only us
            )

    def _own_environment(self) -> dict[str, str]:
        """Variables for this checkout's Python and, with a home, for Java."""
        path = filter(None, (SOURCE, os.environ.get("PYTHONPATH")))
        own = {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
        if self._home is not None:
            (self._home / "conf").mkdir(parents=True, exist_ok=True)
            own |= dict.fromkeys(("HOME", "ROCKETMQ_HOME"), str(self._home))
            own["JAVA_TOOL_OPTIONS"] = f"-Duser.home={self._home}"
        return own

    def wait_ready(self, text: str | None = None, log: Path | None = None) -> None:
        """Wait until its output, or another log of it, holds a text. Raises ProcessFailed."""
        wanted, log = self._ready if text is None else text, log or self.log
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (log.exists() and wanted in log.read_text("utf-8", "replace")):
            if not self.is_running:
                raise self.failure(f"ended with code {self.wait()}")
            if time.monotonic() > deadline:
                raise self.failure(f"was not ready within {START_SECONDS_MAX} s")
            time.sleep(LOOK_S)

    @property
    def child(self) -> "subprocess.Popen[bytes]":
        """The running process."""
        assert self._child is not None, f"{self.log.stem} is not started"
        return self._child

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.pid

    @property
    def output(self) -> str:
        """Its output since it was started the last time."""
        return self.log.read_text("utf-8", "replace")

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def check(self) -> None:
        """Raise ProcessFailed when it has ended without being stopped or killed."""
        if self._child is not None and not self.is_running:
            raise self.failure(f"ended with code {self.wait()}")

    def failure(self, what: str) -> ProcessFailed:
        """An error with the last lines of its output."""
        tail = "\n  ".join(self.output.strip().splitlines()[-TAIL_LINES:])
        return ProcessFailed(f"{self.log.stem} {what}:\n  {tail}")

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end; returns the exit code. Raises subprocess.TimeoutExpired."""
        return self._code if self._child is None else self._child.wait(seconds)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.child.send_signal(number)

    def freeze(self) -> None:
        """Send SIGSTOP: it runs no further, and its connections stay open."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: it runs on where it was."""
        self.signal(signal.SIGCONT)

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL when that is not heard; returns the exit code."""
        if self._child is not None:
            stop(self._child)
        return self.kill()

    def kill(self) -> int:
        """Send SIGKILL if it runs, and reap it; returns the exit code."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            assert child.stdin is not None
            child.stdin.close()
            self._code = child.wait()
        return self._code


def stop(child: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM to a process that runs, and SIGKILL when that is not heard."""
    child.terminate()
    try:
        child.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
