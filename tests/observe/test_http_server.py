import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from roquet.model.errors import ConfigError
from roquet.observe import http_server
from roquet.observe.http_server import CONNECTIONS_MAX, REQUEST_SIZE_MAX, HttpPage, HttpServer

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


async def test_connections_that_say_nothing_make_room_for_those_that_ask(
    server: HttpServer,
) -> None:
    opened = [await asyncio.open_connection(HOST, server.port) for _ in range(CONNECTIONS_MAX)]
    await asyncio.sleep(0.05)
    for _ in range(3):
        assert b" 200 " in await sent(server, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert await opened[0][0].read() == b"", "the oldest one was ended"
    for _, writer in opened:
        writer.close()


async def test_of_many_that_connect_at_once_those_that_are_ended_are_closed(
    server: HttpServer,
) -> None:
    opening = (asyncio.open_connection(HOST, server.port) for _ in range(4 * CONNECTIONS_MAX))
    opened = await asyncio.gather(*opening)
    answers = await asyncio.gather(*(reader.read() for reader, _ in opened))
    assert set(answers) == {b""}, "also those whose task had not begun, and without a timeout"
    for _, writer in opened:
        writer.close()


async def test_too_many_requests_are_told_to_come_later_until_one_has_been_served_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await done.wait()
        yield b"done"

    pages = {**PAGES, "/slow": HttpPage("text/plain", slow)}
    async with HttpServer(pages, HOST, 0) as server, asyncio.TaskGroup() as asking:
        asked = [
            asking.create_task(sent(server, b"GET /slow HTTP/1.1\r\n\r\n"))
            for _ in range(CONNECTIONS_MAX)
        ]
        await asyncio.sleep(0.05)
        assert b" 503 " in await sent(server, b"GET /metrics HTTP/1.1\r\n\r\n")
        monkeypatch.setattr(http_server, "SERVED_S", 0.0)
        assert b" 200 " in await sent(server, b"GET /metrics HTTP/1.1\r\n\r\n")
        done.set()
    answers = [task.result() for task in asked]
    assert answers[0] == b""
    assert all(b"done" in answer for answer in answers[1:])


async def test_a_page_for_this_machine_is_shown_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = {"/stacks": HttpPage("text/plain", pieces, is_local=True)}
    async with HttpServer(pages, HOST, 0) as server:
        assert b" 200 " in await sent(server, b"GET /stacks HTTP/1.1\r\n\r\n")
        monkeypatch.setattr(http_server, "is_local_client", lambda _: False)
        answer = await sent(server, b"GET /stacks HTTP/1.1\r\n\r\n")
        assert b" 403 " in answer
        assert b"\ntwo" not in answer


@pytest.mark.parametrize(("peer", "is_local"), [("127.0.0.1", True), ("10.0.0.7", False)])
def test_a_client_is_local_by_its_address(peer: str, is_local: bool) -> None:
    names = {"peername": (peer, 1), "sockname": ("10.0.0.5", 2)}
    writer: Any = SimpleNamespace(get_extra_info=names.get)
    assert http_server.is_local_client(writer) is is_local


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
