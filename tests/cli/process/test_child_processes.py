import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from roquet.cli.process import child_processes
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed

SERVER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("hello")
print("server ready at 127.0.0.1:7", flush=True)
time.sleep(60)
"""

BROKEN = """
import sys
print("the disk is full", file=sys.stderr)
sys.exit(3)
"""

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("server ready at nowhere", flush=True)
time.sleep(60)
"""

Starts = Callable[[str], Awaitable[ChildProcess]]


@pytest.fixture
def start(tmp_path: Path) -> Starts:
    async def started(code: str) -> ChildProcess:
        (tmp_path / "some_child.py").write_text(code)
        environ = {"PYTHONPATH": str(tmp_path)}
        return await ChildProcess.start("child", "some_child", logs=tmp_path, environ=environ)

    return started


async def test_a_server_reports_its_address_and_stops_on_request(start: Starts) -> None:
    child = await start(SERVER)
    assert await child.wait_ready("ready at ") == "127.0.0.1:7"
    assert child.is_running
    await child.stop()
    assert not child.is_running
    await child.stop()


async def test_a_frozen_child_stops_once_it_is_thawed(start: Starts) -> None:
    child = await start(SERVER)
    await child.wait_ready("ready at ")
    child.freeze()
    stopping = asyncio.create_task(child.stop())
    await asyncio.sleep(0.1)
    assert not stopping.done()
    assert child.is_running
    child.thaw()
    await stopping
    assert not child.is_running


async def test_a_child_that_dies_is_quoted(start: Starts) -> None:
    child = await start(BROKEN)
    with pytest.raises(ChildProcessFailed, match=r"child ended with code 3:\s+the disk is full"):
        await child.wait_ready("ready at ")
    with pytest.raises(ChildProcessFailed, match="the disk is full"):
        await child.wait_success()


async def test_the_wait_for_a_child_that_is_never_ready_has_a_limit(
    start: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "START_TIMEOUT_S", 0.5)
    child = await start(SERVER)
    with pytest.raises(ChildProcessFailed, match=r"not ready within 0\.5 s"):
        await child.wait_ready("never said")
    await child.kill()


async def test_a_child_that_does_not_stop_is_killed_and_reported(
    start: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "STOP_TIMEOUT_S", 0.2)
    child = await start(STUBBORN)
    await child.wait_ready("ready at ")
    with pytest.raises(ChildProcessFailed, match="did not stop"):
        await child.stop()
    assert not child.is_running


async def test_a_child_that_fails_while_it_stops_is_a_failure(start: Starts) -> None:
    child = await start(SERVER.replace("sys.exit(0)", "sys.exit(4)"))
    await child.wait_ready("ready at ")
    with pytest.raises(ChildProcessFailed, match="ended with code 4"):
        await child.stop()


async def test_a_child_that_has_not_begun_yet_may_just_die(start: Starts) -> None:
    child = await start("import time; time.sleep(60)")
    await child.stop()
    assert not child.is_running


async def test_a_line_that_is_too_long_is_skipped(start: Starts) -> None:
    child = await start("print('x' * 200_000)\nprint('server ready at home')")
    assert await child.wait_ready("ready at ") == "home"
    await child.wait_success()


async def test_the_output_of_a_child_is_read_to_its_end(start: Starts) -> None:
    child = await start("print('one')\nprint('two')")
    assert [line async for line in child.lines()] == ["one", "two"]
    await child.wait_success()
