"""Guarded etcd: an etcd that ends when the process that wants it ends, however that happens.

    parent ──pipe──▶ python -m roquet.cli.process.guarded_etcd HOST:PORT etcd … ──▶ etcd

It says "ready at HOST:PORT" once etcd answers there. A stop signal, or the end of the pipe that
comes with the parent's, is passed on; the exit code is etcd's. On Linux etcd ends, too, when the
guard itself is killed.
"""

import asyncio
import ctypes
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.net.address import split_address

STOP_TIMEOUT_S: Final = 20
"""Until an etcd that was told to stop is killed; shorter than the parent waits."""

POLL_S: Final = 0.05
"""Between two questions whether it is ready."""

PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""

HEALTH: Final = b"GET /health HTTP/1.0\r\n\r\n"


async def guard(address: str, command: Sequence[str]) -> int:
    """Run an etcd that serves at an address until it ends or a stop signal comes.

    Returns its exit code; 0 after a stop signal.
    """
    stop = runtime.stop_signal()
    if await _health(address) is not None:
        output.echo(
            f"{address} is in use: stop the other process, or choose another port", err=True
        )
        return 1
    program = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        preexec_fn=_ask_for_parents_death if sys.platform == "linux" else None,
    )
    stopped = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(program.wait())
    ready = asyncio.create_task(_say_ready(address))
    try:
        await asyncio.wait((stopped, ended), return_when=asyncio.FIRST_COMPLETED)
        return 0 if stop.is_set() else await ended
    finally:
        ready.cancel()
        stopped.cancel()
        await _end(program)


def _ask_for_parents_death() -> None:
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)


async def _end(program: asyncio.subprocess.Process) -> None:
    if program.returncode is not None:
        return
    with suppress(ProcessLookupError):
        program.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await program.wait()
    except TimeoutError:
        program.kill()
        await program.wait()


async def _say_ready(address: str) -> None:
    while b"true" not in (await _health(address) or b""):  # noqa: ASYNC110 - it is asked
        await asyncio.sleep(POLL_S)
    output.echo(f"etcd ready at {address}")


async def _health(address: str) -> bytes | None:
    """The answer of whoever listens at an address; None when nobody does."""
    try:
        reader, writer = await asyncio.open_connection(*split_address(address))
    except OSError:
        return None
    try:
        writer.write(HEALTH)
        async with asyncio.timeout(1):
            return await reader.read()
    except (OSError, TimeoutError):
        return b""
    finally:
        writer.close()


async def _main(address: str, command: Sequence[str]) -> None:
    if code := await guard(address, command):
        sys.exit(code)


if __name__ == "__main__":
    runtime.run(_main(sys.argv[1], sys.argv[2:]))
