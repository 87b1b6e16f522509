"""A guarded etcd, played by a small program that answers questions for its health."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.ports import free_port
from roquet.cli.process.runtime import LIFELINE

FAKE = """
import http.server, os, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"health":"true"}')
open(sys.argv[2], "w").write(str(os.getpid()))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")


@asynccontextmanager
async def guarded(
    folder: Path, port: int, *program: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "roquet.cli.process.guarded_etcd", f"127.0.0.1:{port}", *program,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, LIFELINE: "1"}, cwd=folder,
    )  # fmt: skip
    try:
        async with asyncio.timeout(30):
            yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def fake(port: int) -> list[str]:
    return [sys.executable, "-c", FAKE, str(port), "pid"]


@pytest.mark.parametrize("end", ["signal", "parent"])
async def test_it_says_when_it_answers_and_ends_with_its_parent(end: str, tmp_path: Path) -> None:
    port = free_port()
    async with guarded(tmp_path, port, *fake(port)) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert await process.stdout.readline() == f"etcd ready at 127.0.0.1:{port}\n".encode()
        if end == "signal":
            process.terminate()
        else:
            process.stdin.close()
        assert await process.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_its_death_is_the_guards(tmp_path: Path) -> None:
    port = free_port()
    async with guarded(tmp_path, port, *fake(port)) as process:
        assert process.stdout is not None
        await process.stdout.readline()
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        assert await process.wait() != 0


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async with await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0
    ) as server:
        port = server.sockets[0].getsockname()[1]
        async with guarded(tmp_path, port, "etcd") as process:
            _, errors = await process.communicate()
            assert errors.decode().startswith(f"127.0.0.1:{port} is in use: stop the other process")
            assert process.returncode == 1
