import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.cli.process import runtime
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.cli.servers import supervisor
from roquet.cli.servers.supervisor import SupervisedProcess
from roquet.client.producer import Producer
from roquet.model.errors import UsageError

Serving = tuple[asyncio.subprocess.Process, int]
"""`roquet serve`, and the port of its name server."""


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
    assert max(starts.pauses) == supervisor.PAUSE_MAX_S
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


async def test_a_stop_signal_during_the_start_starts_no_further_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop, names = asyncio.Event(), FakeChild("namesrv")
    monkeypatch.setattr(runtime, "stop_signal", lambda: stop)

    class StoppedWhileStarting(supervisor.ServerProcesses):
        async def namesrv(self) -> ChildProcess:
            stop.set()
            return names

        async def broker(self, name: str) -> ChildProcess:
            raise AssertionError("no broker is begun")

    await supervisor.run_servers(
        StoppedWhileStarting(brokers=1, port=1, namesrv_port=2, data=tmp_path)
    )
    assert names.end.is_set()


def supervised(child: FakeChild, starts: ScriptedStarts) -> SupervisedProcess:
    """A supervised process whose child is a fake."""
    return SupervisedProcess(child, starts.start, starts.sleep)


def free_ports() -> tuple[int, int]:
    """For a first broker and a name server, with room for a second broker."""
    with socket.socket() as one, socket.socket() as other, socket.socket() as names:
        while True:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + supervisor.PORT_STEP))
                names.bind(("127.0.0.1", 0))
                return port, names.getsockname()[1]


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """Two brokers and a name server, processes that a process looks after."""
    port, namesrv_port = free_ports()
    command = ["-m", "roquet", "serve", "--brokers", "2", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--namesrv-port", str(namesrv_port), "--data", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            lines = [(await process.stdout.readline()).decode().split() for _ in range(4)]
            assert [line[0] for line in lines] == ["name", "broker-a", "broker-b", "ready"]
            assert lines[0][-1] == f"127.0.0.1:{namesrv_port}"
            assert lines[1][-1] == f"127.0.0.1:{port}", "brokers listen where they are told to"
            yield process, namesrv_port
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_two_brokers_serve_and_one_that_is_killed_comes_back(
    serving: Serving, tmp_path: Path
) -> None:
    process, namesrv_port = serving
    assert process.stderr is not None
    (victim,) = {pid for pid in _children(process.pid) if "broker-b" in _command(pid)}
    os.kill(victim, signal.SIGKILL)
    while b"broker-b is back" not in (line := await process.stderr.readline()):
        assert line
    async with Producer(f"127.0.0.1:{namesrv_port}") as producer:
        assert (await producer.send("orders", b"x")).ok
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert _names(tmp_path) == ["broker-a", "broker-b", "logs", "namesrv"]


@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_no_process_is_left_when_the_supervisor_is_killed(serving: Serving) -> None:
    process, _ = serving
    left = _children(process.pid)
    assert len(left) == 3
    process.kill()
    await process.wait()
    while any(map(_is_alive, left)):  # noqa: ASYNC110 - nobody tells us of others' children
        await asyncio.sleep(0.02)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _children(pid: int) -> set[int]:
    children_file = Path(f"/proc/{pid}/task/{pid}/children")
    if not children_file.exists():
        pytest.skip("this system does not tell whose child is whose")
    return {int(child) for child in children_file.read_text().split()}


def _is_alive(pid: int) -> bool:
    try:
        return bool(_command(pid))  # empty for one that only waits to be forgotten
    except FileNotFoundError:
        return False


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_wrong_use_is_an_error() -> None:
    runner = CliRunner()
    with pytest.raises(UsageError, match="need ports up to 65535"):
        runner.invoke(app, ["serve", "--brokers", "3", "--port", "65520"], catch_exceptions=False)
    with pytest.raises(UsageError, match="a host alone"):
        runner.invoke(app, ["serve", "--advertise", "here:1"], catch_exceptions=False)
    for option in ("--port", "--namesrv-port"):
        with pytest.raises(UsageError, match="fixed ones"):
            runner.invoke(app, ["serve", option, "0"], catch_exceptions=False)
    assert runner.invoke(app, ["serve", "--brokers", "0"]).exit_code == 2
