"""Half-open connections: thousands that begin a handshake, or say nothing, and go no further.

A broker with TLS serves others meanwhile, over connections that they open among those.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.servers import DevServer
from roquet.client import Producer, ProducerConfig, Tls
from roquet.net.channel import Channel, Security
from roquet.net.clock import SYSTEM_CLOCK
from roquet.wire.calls.route import GetAllTopics

pytestmark = pytest.mark.attack

CERTIFICATES = Path(__file__).parents[1] / "certificates"
TLS = Tls(ca=CERTIFICATES / "ca.pem", check_host=False)
COUNTS = {"short": 600, "full": 10_000}
AT_ONCE = 100
WAIT_MS_MAX = 8_000
"""For a good client: some seconds of a busy machine, less than what an attacker is given."""

MEMORY_MAX = 400 * 1024 * 1024
"""More memory than this for half-open connections would be a way to fill a machine."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """Process id and name server's port of our servers, which take both kinds of connections."""
    monkeypatch.setenv("ROQUET_TLS_CERT", str(CERTIFICATES / "server.pem"))
    monkeypatch.setenv("ROQUET_TLS_KEY", str(CERTIFICATES / "server.key"))
    monkeypatch.setenv("ROQUET_TLS_MODE", "permissive")
    monkeypatch.setenv("ROQUET_TLS_CA", str(CERTIFICATES / "ca.pem"))
    monkeypatch.setenv("ROQUET_TLS_CHECK_HOST", "false")
    with DevServer(tmp_path, "--memory", "--advertise", "127.0.0.1") as server:
        yield server.pid, server.port


def hello() -> bytes:
    """What a client of TLS says first."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        TLS.context().wrap_bio(received, sent, server_hostname="127.0.0.1").do_handshake()
    return sent.read()


class Attackers:
    """Connections that stay half open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._said = (b"", b"\x16", b"\x16\x03\x01\x02", hello(), b"\0\0\0")
        self.sockets: list[socket.socket] = []

    async def open(self, count: int) -> None:
        for _ in range(0, count, AT_ONCE):
            await asyncio.gather(*(self._open() for _ in range(AT_ONCE)))

    async def _open(self) -> None:
        loop, one = asyncio.get_running_loop(), socket.socket()
        one.setblocking(False)
        self.sockets.append(one)
        with suppress(OSError):
            await loop.sock_connect(one, ("127.0.0.1", self._port))
            await loop.sock_sendall(one, self._said[len(self.sockets) % len(self._said)])

    def close(self) -> None:
        for one in self.sockets:
            one.close()


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    (line,) = [text for text in status.splitlines() if text.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def ask(port: int, tls: Tls | None) -> None:
    """Open a connection and have a request answered."""
    security = Security(context=tls.context() if tls else None)
    timeout_ms = WAIT_MS_MAX
    async with await Channel.connect(
        "127.0.0.1", port, security=security, timeout_ms=timeout_ms
    ) as channel:
        await channel.call(GetAllTopics(), timeout_ms)


async def test_half_open_connections_leave_the_servers_serving(
    served: tuple[int, int], depth: Literal["short", "full"], record_property: Any
) -> None:
    pid, port = served
    config = ProducerConfig(tls=TLS, send_timeout_ms=WAIT_MS_MAX)
    attackers, before = Attackers(port), (memory(pid), descriptors(pid))
    async with Producer(f"127.0.0.1:{port}", config=config) as producer:
        assert (await producer.send("orders", b"before")).ok
        attack = asyncio.create_task(attackers.open(COUNTS[depth]))
        slowest_ms, asked, sent = 0, 0, 0
        while not attack.done() or not asked:
            for tls in (TLS, None):
                began = SYSTEM_CLOCK.monotonic_ms()
                await ask(port, tls)
                slowest_ms, asked = max(slowest_ms, SYSTEM_CLOCK.monotonic_ms() - began), asked + 1
            assert (await producer.send("orders", b"among them")).ok
            sent += 1
        await attack
        grown = memory(pid) - before[0]
        attackers.close()
        async with asyncio.timeout(30):
            while descriptors(pid) > before[1] + 20:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        await ask(port, TLS)
    row = {"connections": f"{COUNTS[depth]:,}", "asked": asked, "sent": sent}
    record_property("half-open", row | {"slowest ms": slowest_ms, "MB grown": grown >> 20})
    assert slowest_ms < WAIT_MS_MAX
    assert grown < MEMORY_MAX
