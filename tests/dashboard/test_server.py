import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from roquet.dashboard import server as dashboard_server
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import BrowserConnection, serve_dashboard
from roquet.model.errors import ConfigError
from roquet.net.address import split_address
from roquet.net.tls import ServerTls
from roquet.testing.cluster import cluster

CERTIFICATES = Path(__file__).parent.parent / "certificates"


async def test_a_dashboard_listens_until_its_end() -> None:
    async with cluster(brokers=1) as running:
        settings = DashboardConfig(name_servers=running.namesrv_addr, port=0)
        async with serve_dashboard(settings) as url, httpx.AsyncClient() as client:
            response = await client.get(f"{url}brokers")
            assert response.status_code == 200
            assert "server" not in response.headers
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)


async def test_a_port_that_is_taken_is_said_so() -> None:
    async with cluster(brokers=1) as running:
        _, port = split_address(running.namesrv_addr)
        settings = DashboardConfig(name_servers=running.namesrv_addr, port=port)
        with pytest.raises(ConfigError, match=f"--port {port}: .*another one"):
            async with serve_dashboard(settings):
                pass


async def test_with_a_certificate_it_speaks_tls_alone() -> None:
    tls = ServerTls(cert=CERTIFICATES / "server.pem", key=CERTIFICATES / "server.key")
    settings = DashboardConfig(name_servers="127.0.0.1:9", port=0, tls=tls)
    trusting = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    async with serve_dashboard(settings) as url, httpx.AsyncClient(verify=trusting) as client:
        response = await client.get(f"{url}login")
        assert "__Host-roquet=" in response.headers["set-cookie"]
        assert "Secure" in response.headers["set-cookie"]
        with pytest.raises(httpx.TransportError):
            await client.get(url.replace("https", "http"))


async def test_a_renewed_certificate_is_shown_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.dashboard.server.RELOAD_MS", 10)

    def renew(name: str, *suffixes: str) -> None:
        for suffix in suffixes:
            (tmp_path / f"own.{suffix}").write_bytes(
                (CERTIFICATES / f"{name}.{suffix}").read_bytes()
            )

    def shown(port: int) -> bytes:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))

    def own(name: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert((CERTIFICATES / f"{name}.pem").read_text())

    renew("server", "pem", "key")
    tls = ServerTls(cert=tmp_path / "own.pem", key=tmp_path / "own.key")
    settings = DashboardConfig(name_servers="127.0.0.1:9", port=0, tls=tls)
    async with serve_dashboard(settings) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        assert await asyncio.to_thread(shown, port) == own("server")
        renew("elsewhere", "pem")
        await asyncio.sleep(0.05)
        assert await asyncio.to_thread(shown, port) == own("server"), "its key is not there yet"
        renew("elsewhere", "key")
        await asyncio.sleep(0.05)
        assert await asyncio.to_thread(shown, port) == own("elsewhere")


REQUEST = b"GET /login HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
SETTINGS = DashboardConfig(name_servers="127.0.0.1:9", port=0)


def _place(url: str) -> tuple[str, int]:
    return split_address(url.removeprefix("http://").rstrip("/"))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*_place(url))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _status(url: str) -> bytes:
    async with connected(url) as (reader, writer):
        writer.write(REQUEST)
        return await reader.readline()


async def test_connections_without_a_request_keep_nobody_out_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BrowserConnection, "request_s", 0.1)
    monkeypatch.setattr(dashboard_server, "CONNECTIONS_MAX", 2)
    async with (
        serve_dashboard(SETTINGS) as url,
        connected(url) as (silent, _),
        connected(url) as (begun, writer),
    ):
        writer.write(REQUEST[:9])
        assert b"503" in await _status(url)
        for reader in (silent, begun):
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(1), 1) == b""
        assert b"200" in await _status(url)


async def test_a_browser_that_goes_on_asking_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrowserConnection, "request_s", 0.5)
    async with serve_dashboard(SETTINGS) as url, connected(url) as (reader, writer):
        for _ in range(4):
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = [h for h in head.split(b"\r\n") if h.startswith(b"content-length")]
            await reader.readexactly(int(length.partition(b":")[2]))
            await asyncio.sleep(0.2)


async def test_a_stream_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 2**16
                await asyncio.sleep(0)
        finally:
            ended.set()

    def endless(_dashboard: object) -> object:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await StreamingResponse(lines())(scope, receive, send)

        return app

    monkeypatch.setattr(BrowserConnection, "unread_s", 0.1)
    monkeypatch.setattr(dashboard_server, "application", endless)
    async with serve_dashboard(SETTINGS) as url, connected(url) as (_, writer):
        writer.write(REQUEST)
        await asyncio.wait_for(ended.wait(), 3)
