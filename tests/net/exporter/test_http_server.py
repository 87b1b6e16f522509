import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.model.errors import ConfigError
from roquet.net.exporter.http_server import (
    CONNECTIONS_MAX,
    REQUEST_SIZE_MAX,
    HttpPage,
    HttpServer,
)

HOST = "127.0.0.1"


async def pieces() -> AsyncIterator[bytes]:
    yield b"one\n"
    yield b"two\n"


async def broken() -> AsyncIterator[bytes]:
    yield b"one\n"
    raise ZeroDivisionError


PAGES = {"/metrics": HttpPage("text/plain", pieces), "/broken": HttpPage("text/plain", broken)}


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with HttpServer(PAGES, HOST, 0, request_s=0.2) as server:
        yield server


async def sent(server: HttpServer, request: bytes) -> bytes:
    """Everything that the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_get_shows_a_page_and_head_its_length(server: HttpServer) -> None:
    head, _, body = (await sent(server, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")).partition(
        b"\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
    assert b"Content-Length: 8" in head
    assert body == b"one\ntwo\n"
    head, _, body = (await sent(server, b"HEAD /metrics HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert body == b""


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics/../other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x00\r\n\r\n", b"400"),
        (b"GET /m\xff HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * REQUEST_SIZE_MAX + b"\r\n\r\n", b"431"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500"),
    ],
)
async def test_other_requests_get_an_error(
    server: HttpServer, request_: bytes, status: bytes
) -> None:
    answer = await sent(server, request_)
    assert answer.split(b" ")[1] == status
    assert b"one" not in answer


async def test_a_fault_is_logged_once(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        await sent(server, b"GET /broken HTTP/1.1\r\n\r\n")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "a page of metrics could not be made"
    ]


async def test_a_request_that_does_not_end_is_cut_off(server: HttpServer) -> None:
    assert await sent(server, b"GET /metrics HT") == b""


async def test_too_many_connections_are_told_to_come_later(server: HttpServer) -> None:
    opened = [await asyncio.open_connection(HOST, server.port) for _ in range(CONNECTIONS_MAX)]
    await asyncio.sleep(0.05)
    assert b" 503 " in await sent(server, b"GET /metrics HTTP/1.1\r\n\r\n")
    for _, writer in opened:
        writer.close()
    await asyncio.sleep(0.05)
    assert b" 200 " in await sent(server, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_a_stop_does_not_wait_for_a_slow_client() -> None:
    async with HttpServer(PAGES, HOST, 0) as server:
        _, writer = await asyncio.open_connection(HOST, server.port)
        await asyncio.sleep(0.01)
    writer.close()


async def test_a_port_in_use_is_an_error_that_says_how_to_choose_another(
    server: HttpServer,
) -> None:
    with pytest.raises(ConfigError, match="metricsPromExporterPort"):
        async with HttpServer(PAGES, HOST, server.port):
            pass
