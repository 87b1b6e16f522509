import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from roquet.model.errors import CallTimeout, ConnectFailed, RemoteProtocolError
from roquet.observe.page_client import read_page

Serve = Callable[[bytes], Coroutine[Any, Any, str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server that answers every request with the same bytes; returns its address."""
    listeners = []

    async def start(answer: bytes) -> str:
        async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        listener = await asyncio.start_server(answered, "127.0.0.1", 0)
        listeners.append(listener)
        return f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.close()


async def test_a_whole_page_is_read(serve: Serve) -> None:
    address = await serve(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc")
    assert await read_page(address, "/", timeout_ms=5_000) == "abc"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\n\r\nwithout a length",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_anything_but_a_whole_page_is_an_error(serve: Serve, answer: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        await read_page(await serve(answer), "/metrics", timeout_ms=5_000)


async def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConnectFailed):
        await read_page("127.0.0.1:1", "/metrics", timeout_ms=5_000)


async def test_a_server_that_does_not_answer_is_an_error() -> None:
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(CallTimeout):
        await read_page(f"127.0.0.1:{port}", "/metrics", timeout_ms=50)
    await gone.wait()
    listener.close()
