"""Senders of Apache's Java client under faults: see tests/interop/LedgerProducer.java.

A library of `kill_master.py`.
"""

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path

from harness import genuine, java_client
from harness.ledger import TOPIC, Ledger

READY_SECONDS_MAX = 90
"""A cold JVM on a busy machine that compiles its program first."""
END_SECONDS_MAX = 60
"""Sends in flight end within their timeout; then the process ends."""


def missing() -> str | None:
    """One line that says why there is no Java client here; None when there is one."""
    if lack := genuine.missing():
        return lack
    try:
        genuine.jars()
    except (OSError, subprocess.SubprocessError) as error:
        return f"Apache's Java client cannot be fetched: {error}"
    return None


def body_of(queue_id: int, number: int) -> bytes:
    """The body that Java sends, of 0 to 399 bytes after its number."""
    return b"%d:%d:" % (queue_id, number) + b"j" * (number * 37 % 400)


class JavaSenders:
    """A JVM with one sender for each of some queues, until the block ends."""

    def __init__(self, namesrv: str, queues: range, ledger: Ledger, home: Path) -> None:
        self.acknowledged = 0
        self._arguments = [namesrv, TOPIC, str(queues.start), str(queues.stop)]
        self._ledger = ledger
        self._home = home
        self._ready = asyncio.Event()
        self._child: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]

    async def __aenter__(self) -> "JavaSenders":
        self._home.mkdir(parents=True, exist_ok=True)
        command = java_client.command(self._home, "LedgerProducer.java", genuine.VERSION)
        with (self._home / "stderr").open("wb") as errors:
            self._child = await asyncio.create_subprocess_exec(
                *command,
                *self._arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "HOME": str(self._home)},
            )
        self._reading = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await self._ready.wait()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let sends in flight end, so that every acknowledgement is in the ledger."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS_MAX):
                await self._child.wait()
        await self._end()
        if not self.acknowledged:
            raise AssertionError(f"nothing that Java sent was acknowledged: see {self._home}")

    async def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        await self._child.wait()
        await self._reading

    async def _read(self) -> None:
        """Note what Java says until it ends; its client's own lines are passed over."""
        assert self._child.stdout is not None
        async for line in self._child.stdout:
            match line.decode(errors="replace").split():
                case ["ready"]:
                    self._ready.set()
                case ["sends", queue_id, number]:
                    queue = int(queue_id)
                    self._ledger.sent[queue].add(body_of(queue, int(number)))
                case ["stored", queue_id, number, offset]:
                    queue = int(queue_id)
                    self._ledger.acknowledge(queue, int(offset), body_of(queue, int(number)))
                    self.acknowledged += 1
                case ["failed", *_]:
                    self._ledger.failures += 1
                case _:
                    pass
