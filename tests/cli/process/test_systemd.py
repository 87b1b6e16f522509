import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.cli.process import systemd
from roquet.cli.process.runtime import LIFELINE


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket at which systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        monkeypatch.setenv(systemd.SOCKET, str(tmp_path / "notify"))
        yield listener


async def test_a_service_is_ready_alive_and_stopping(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(systemd.WATCHDOG, "40000")
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, stop.set)
    await systemd.serve_until(stop)
    assert manager.recv(100) == b"READY=1"
    assert manager.recv(100) == b"WATCHDOG=1"
    states = {manager.recv(100)}
    while b"STOPPING=1" not in states:
        states.add(manager.recv(100))
    assert states <= {b"WATCHDOG=1", b"STOPPING=1"}


async def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(systemd.SOCKET, raising=False)
    monkeypatch.setenv(systemd.WATCHDOG, "nonsense")
    stop = asyncio.Event()
    stop.set()
    await systemd.serve_until(stop)


def test_a_child_process_leaves_that_to_its_parent(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIFELINE, "1")
    systemd.notify("STOPPING=1")
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_a_socket_that_is_gone_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for address in ("/nonexistent/notify", "@roquet-nobody-listens"):
        monkeypatch.setenv(systemd.SOCKET, address)
        systemd.notify("READY=1")
    assert caplog.text.count("systemd cannot be told READY=1") == 2
