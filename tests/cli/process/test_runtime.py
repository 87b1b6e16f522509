import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roquet.cli.process import runtime
from roquet.cli.process.runtime import LIFELINE
from roquet.model.errors import ConfigError
from roquet.observe.log_levels import apply_log_levels
from roquet.observe.log_lines import JsonFormatter, LineFilter, PrintableFormatter


@pytest.mark.skipif(sys.platform == "win32", reason="signals are another thing there")
@pytest.mark.parametrize("number", runtime.STOP_SIGNALS)
def test_a_signal_sets_the_stop_event(number: signal.Signals) -> None:
    before = {n: signal.getsignal(n) for n in runtime.STOP_SIGNALS}
    stopped = []

    async def serve() -> None:
        stop = runtime.stop_signal()
        os.kill(os.getpid(), number)
        async with asyncio.timeout(5):
            await stop.wait()
        stopped.append(number)
        assert signal.getsignal(number) is signal.SIG_DFL, "a second one ends the process"

    try:
        if number is signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):  # which is 130, in the end
                runtime.run(serve())
        else:
            runtime.run(serve())
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
    assert stopped == [number]


@pytest.mark.skipif(sys.platform == "win32", reason="its loop cannot watch a pipe like that")
def test_a_child_stops_when_its_parent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    monkeypatch.setenv(runtime.LIFELINE, "1")
    monkeypatch.setattr(sys, "stdin", os.fdopen(ours))
    before = {n: signal.getsignal(n) for n in runtime.STOP_SIGNALS}

    async def serve() -> None:
        stop = runtime.stop_signal()
        os.write(theirs, b"a word means nothing")
        await asyncio.sleep(0.05)
        assert not stop.is_set()
        os.close(theirs)
        async with asyncio.timeout(5):
            await stop.wait()

    try:
        runtime.run(serve())
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
        sys.stdin.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are another thing there")
def test_work_runs_until_it_ends_or_a_signal_comes() -> None:
    before = {n: signal.getsignal(n) for n in runtime.STOP_SIGNALS}
    shown: list[int] = []

    async def work(pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        raise ConfigError("it has ended")

    async def serve() -> None:
        with pytest.raises(ConfigError, match="it has ended"):
            await runtime.until_stopped(work(0.05), lambda: shown.append(1), 0.01)
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await runtime.until_stopped(work(60))

    try:
        runtime.run(serve())
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
    assert len(shown) > 1


def test_the_log_goes_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **settings: seen.append(settings))
    runtime.log_to_stderr(verbose=False)
    runtime.log_to_stderr(verbose=True)
    assert [settings["level"] for settings in seen] == [logging.WARNING, logging.INFO]
    (handler,) = seen[0]["handlers"]
    assert handler.stream is sys.stderr
    assert isinstance(handler.formatter, PrintableFormatter)
    assert [type(line_filter) for line_filter in handler.filters] == [LineFilter]


def test_the_environment_says_the_form_of_the_log_and_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **settings: seen.append(settings))
    monkeypatch.setenv(runtime.LOG_FORMAT, "json")
    monkeypatch.setenv(runtime.LOG_LEVELS, "roquet.net:ERROR")
    try:
        runtime.log_to_stderr(verbose=False)
        assert logging.getLogger("roquet.net").level == logging.ERROR
    finally:
        apply_log_levels("")
    assert isinstance(seen[0]["handlers"][0].formatter, JsonFormatter)
    monkeypatch.setenv(runtime.LOG_FORMAT, "xml")
    with pytest.raises(ConfigError, match="neither text nor json"):
        runtime.log_to_stderr(verbose=False)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket at which systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        monkeypatch.setenv(runtime.SOCKET, str(tmp_path / "notify"))
        yield listener


async def test_a_service_is_ready_alive_and_stopping(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(runtime.WATCHDOG, "40000")
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, stop.set)
    await runtime.serve_until(stop)
    assert manager.recv(100) == b"READY=1"
    assert manager.recv(100) == b"WATCHDOG=1"
    states = {manager.recv(100)}
    while b"STOPPING=1" not in states:
        states.add(manager.recv(100))
    assert states <= {b"WATCHDOG=1", b"STOPPING=1"}


async def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runtime.SOCKET, raising=False)
    monkeypatch.setenv(runtime.WATCHDOG, "nonsense")
    stop = asyncio.Event()
    stop.set()
    await runtime.serve_until(stop)


def test_a_child_process_leaves_that_to_its_parent(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIFELINE, "1")
    runtime.notify("STOPPING=1")
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_a_socket_that_is_gone_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for address in ("/nonexistent/notify", "@roquet-nobody-listens"):
        monkeypatch.setenv(runtime.SOCKET, address)
        runtime.notify("READY=1")
    assert caplog.text.count("systemd cannot be told READY=1") == 2


async def test_a_server_without_uvloop_says_how_to_be_faster(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()
    stop.set()
    await runtime.serve_until(stop)
    assert caplog.text == ""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    await runtime.serve_until(stop)
    assert "pip install 'roquet[server]'" in caplog.text
