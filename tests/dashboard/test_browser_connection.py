import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from roquet.dashboard import server as dashboard_server
from roquet.dashboard.browser_connection import BrowserConnection
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import serve_dashboard
from roquet.net.address import split_address

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
    monkeypatch.setattr(BrowserConnection, "request_s", 0.1)
    async with serve_dashboard(SETTINGS) as url, connected(url) as (reader, writer):
        for _ in range(4):
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = [h for h in head.split(b"\r\n") if h.startswith(b"content-length")]
            await reader.readexactly(int(length.partition(b":")[2]))
            await asyncio.sleep(0.06)


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
