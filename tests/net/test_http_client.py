"""HttpClient against a server that answers whatever the test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from roquet.model.errors import (
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
)
from roquet.net import http_client
from roquet.net.http_client import HttpClient

OK = b"HTTP/1.1 200 OK\r\n"
SILENT = b"\0"


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[HttpClient, list[bytes]]]:
    """A client of a server with these answers, and the requests that it sees.

    After the last answer the server is silent if that is `SILENT`, else it ends the connection.
    """
    requests: list[bytes] = []
    left = list(answers)
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                requests.append(head + await reader.readexactly(size))
                if (answer := left.pop(0)) is SILENT:
                    await reader.read()
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield client, requests
    finally:
        await client.close()
        server.close()
        await asyncio.gather(*(task for task in tasks if task))


async def posted(client: HttpClient) -> bytes:
    return await client.post("/v3/x", b"{}", timeout_ms=2_000)


async def test_requests_go_over_one_connection_after_the_other() -> None:
    answer = OK + b"Content-Length: 4\r\n\r\nbody"
    async with serving(answer, answer) as (client, requests):
        assert [await posted(client), await posted(client)] == [b"body", b"body"]
    first = requests[0].decode()
    assert first.startswith("POST /v3/x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert first.endswith("Content-Length: 2\r\n\r\n{}")


async def test_a_body_may_come_in_chunks() -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    async with serving(OK + chunked, OK + b"content-length: 0\r\n\r\n") as (client, _):
        assert await posted(client) == b"abcde"
        assert await posted(client) == b"", "the connection goes on after the last chunk"


async def test_another_status_is_a_refusal_with_the_text() -> None:
    async with serving(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nwhy\n") as (
        client,
        _,
    ):
        with pytest.raises(CallRefused, match="code 400: why"):
            await posted(client)


async def test_after_a_last_response_a_new_connection_is_made() -> None:
    last = OK + b"Connection: close\r\nContent-Length: 1\r\n\r\nx"
    async with serving(last, OK + b"Content-Length: 1\r\n\r\ny") as (client, _):
        assert [await posted(client), await posted(client)] == [b"x", b"y"]


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (OK + b"Content-Length: 5\r\n\r\nab", ConnectionLost, "the connection ended"),
        (b"", ConnectionLost, "the connection ended"),
        (b"SSH-2.0\r\n", RemoteProtocolError, "not a response of HTTP"),
        (OK + b"\r\n", RemoteProtocolError, "without a length"),
        (OK + b"Content-Length: -1\r\n\r\n", RemoteProtocolError, "longer than"),
        (OK + b"Content-Length: 99999999999\r\n\r\n", RemoteProtocolError, "longer than"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", RemoteProtocolError, "without a length"),
        (OK + b"x: y\r\n" * 101, RemoteProtocolError, "header lines"),
        (b"H" * 70_000 + b"\r\n", RemoteProtocolError, "too long"),
    ],
)
async def test_a_damaged_response_is_an_error(
    answer: bytes, error: type[Exception], text: str
) -> None:
    async with serving(answer) as (client, _):
        with pytest.raises(error, match=text):
            await posted(client)


async def test_chunks_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "BODY_SIZE_MAX", 4)
    chunks = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"
    async with serving(OK + chunks) as (client, _):
        with pytest.raises(RemoteProtocolError, match="longer than 4 bytes"):
            await posted(client)


async def test_a_server_that_does_not_answer_is_a_timeout() -> None:
    async with serving(SILENT) as (client, _):
        with pytest.raises(CallTimeout, match="no response within 50 ms"):
            await client.post("/", b"", timeout_ms=50)


async def test_nobody_listening_is_a_failure_to_connect() -> None:
    async with serving() as (client, _):
        address = client.address
    with pytest.raises(ConnectFailed, match=f"cannot connect to {address}"):
        await posted(HttpClient(address))


async def test_a_server_that_accepts_no_connection_has_got_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object, **_named: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", never)
    with pytest.raises(ConnectFailed, match="no answer within 50 ms"):
        await HttpClient("127.0.0.1:1").post("/", b"", timeout_ms=50)
