"""`roquet serve` with three controllers: they share a real etcd, and any process may be killed."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from random import randrange

import pytest
from tests.cli.servers.test_supervisor import SERVED

from harness.ports import free_port
from roquet.client.producer import Producer

pytestmark = pytest.mark.interop

LINES = 5
"""A name server, etcd and three controllers."""


def children(pid: int) -> list[int]:
    """A process, and all that it has started."""
    own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in own for below in children(int(child)))]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


def is_one(victim: str, pid: int) -> bool:
    """Whether a process is etcd, its guard, or the kind of server that it was told to be."""
    program, *arguments = command(pid).split("\0")
    return (
        program.endswith(victim)
        if victim == "/etcd"
        else any(victim in one for one in arguments[:4])
    )


async def test_a_cluster_of_three_controllers_survives_the_kill_of_any_process(
    tmp_path: Path,
) -> None:
    if shutil.which("etcd") is None:
        pytest.skip("no etcd on PATH: tools/install/servers.sh installs Debian's etcd-server")
    port, namesrv_port = free_port(*SERVED), free_port()
    arguments = ["--replicas", "2", "--controllers", "3", "--host", "127.0.0.1"]
    arguments += ["--controller-port", str(randrange(8_000, 9_800)), "--port", str(port)]
    arguments += ["--namesrv-port", str(namesrv_port), "--data", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "roquet", "serve", *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "1000"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            printed = [(await process.stdout.readline()).decode() for _ in range(LINES + 4)]
            assert [line.split()[0] for line in printed[:LINES]] == [
                "name", "etcd", "controller", "controller", "controller",
            ]  # fmt: skip
            assert (await process.stdout.readline()).startswith(b"ready")
            seen = set(children(process.pid))
            async with Producer(f"127.0.0.1:{namesrv_port}") as producer:
                for victim in ("controller", "/etcd", "broker", "guarded_etcd"):
                    assert (await producer.send("orders", victim.encode())).ok
                    everyone = children(process.pid)
                    os.kill(
                        next(pid for pid in everyone[1:] if is_one(victim, pid)), signal.SIGKILL
                    )
                    await asyncio.sleep(10)
                    assert (await producer.send("orders", b"after")).ok
                    seen |= set(children(process.pid))
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert [pid for pid in seen if command(pid)] == [], "no process is left"
