import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.cli.process import child_processes
from roquet.cli.process.child_processes import (
    ChildProcess,
    ChildProcessFailed,
    SupervisedProcess,
    start_unless_stopped,
    stop_all,
)

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


async def test_a_child_gets_lines_on_its_stdin(start: Starts) -> None:
    child = await start("print(input() + ' ' + input())")
    child.write_line("begin")
    child.write_line("now")
    assert [line async for line in child.lines()] == ["begin now"]
    await child.wait_success()


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


class FakeChild(ChildProcess):
    """A child process that ends when a test says so."""

    def __init__(self, name: str = "broker-a") -> None:
        self.name = name
        self.address = "127.0.0.1:1"
        self.end = asyncio.Event()
        self.fails_to_stop = False

    async def lines(self) -> AsyncIterator[str]:
        yield "a line"

    async def wait(self) -> int:
        await self.end.wait()
        return -9

    async def stop(self) -> None:
        if self.fails_to_stop:
            raise ChildProcessFailed(f"{self.name} did not stop")
        self.end.set()

    def failure(self) -> ChildProcessFailed:
        return ChildProcessFailed(f"{self.name} ended with code -9")


class ScriptedStarts:
    """Outcomes of starts, in turn: a child or an error; keeps the pauses between them."""

    def __init__(self, *outcomes: FakeChild | Exception) -> None:
        self._outcomes = list(outcomes)
        self.pauses: list[float] = []

    async def start(self) -> ChildProcess:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


async def test_a_dead_process_is_restarted_after_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, third = FakeChild(), FakeChild(), FakeChild()
    starts = ScriptedStarts(second, ChildProcessFailed("no disk"), third)
    it = supervised(first, starts)
    task = asyncio.create_task(it.supervise())
    first.end.set()
    await until(lambda: it.child is second)
    second.end.set()
    await until(lambda: it.child is third)
    assert starts.pauses == [1, 2, 4]
    assert it.restarts == 2
    assert caplog.messages[:2] == [
        "broker-a ended with code -9",
        "broker-a is started again in 1 s",
    ]
    assert "no disk; tried again in 4 s" in caplog.text
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_failed_start_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    first, second = FakeChild(), FakeChild()
    it = supervised(first, ScriptedStarts(OSError(28, "No space left on device"), second))
    task = asyncio.create_task(it.supervise())
    first.end.set()
    await until(lambda: it.child is second)
    assert "broker-a: [Errno 28] No space left on device; tried again in 2 s" in caplog.text
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_pauses_have_a_maximum() -> None:
    last = FakeChild()
    starts = ScriptedStarts(*(ChildProcessFailed("no disk") for _ in range(8)), last)
    first = FakeChild()
    it = supervised(first, starts)
    task = asyncio.create_task(it.supervise())
    first.end.set()
    await until(lambda: it.child is last)
    assert max(starts.pauses) == child_processes.PAUSE_MAX_S
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_process_that_does_not_stop_does_not_keep_others_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = FakeChild()
    child.fails_to_stop = True
    await supervised(child, ScriptedStarts()).stop()
    assert "broker-a did not stop" in caplog.text


def supervised(child: FakeChild, starts: ScriptedStarts) -> SupervisedProcess:
    """A supervised process whose child is a fake."""
    return SupervisedProcess(child, starts.start, starts.sleep)


async def test_all_are_stopped_at_once() -> None:
    children = FakeChild("a"), FakeChild("b")
    await stop_all([supervised(child, ScriptedStarts()) for child in children])
    assert all(child.end.is_set() for child in children)


async def test_a_start_that_takes_long_is_given_up_at_a_stop_signal() -> None:
    stop, ended = asyncio.Event(), list[str]()

    async def slow() -> ChildProcess:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("its process")
            raise
        raise AssertionError

    starting = asyncio.create_task(start_unless_stopped(slow, stop))
    await asyncio.sleep(0)
    stop.set()
    assert await starting is None
    assert ended == ["its process"]


async def test_a_start_that_is_over_counts_in_spite_of_a_stop_signal() -> None:
    stop, child = asyncio.Event(), FakeChild()
    stop.set()
    assert await start_unless_stopped(ScriptedStarts(child).start, stop) is child
    failing = ScriptedStarts(ChildProcessFailed("no port"))
    with pytest.raises(ChildProcessFailed):
        await start_unless_stopped(failing.start, asyncio.Event())
