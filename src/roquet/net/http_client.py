"""HTTP client: POST requests to one HTTP/1.1 server, over connections that are kept open."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from roquet.model.errors import (
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
)
from roquet.net.address import address_error, split_address
from roquet.net.tls import tls_error

BODY_SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes of a response body; a longer one is a fault of the server."""

HEADERS_MAX: Final = 100
"""Header lines of a response, which would otherwise be read without an end."""

IDLE_MAX: Final = 4
"""Connections that are kept open between requests."""

_OK: Final = 200


class HttpClient:
    """Client of one server: `await HttpClient("127.0.0.1:2379").post("/v3/kv/range", body)`."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        """`context` is that of TLS, which makes it HTTPS; None is plain HTTP."""
        self.address = address
        self._context = context
        self._idle: list[_Connection] = []

    async def post(self, path: str, body: bytes, *, timeout_ms: int) -> bytes:
        """Send a request and return the body of the response.

        Raises ConnectFailed; ConnectionLost or CallTimeout when the outcome is unknown; CallRefused
        with the status and the text of the body for any status but 200.
        """
        connection = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = self._reusable() or await self._connect()
                return await self._exchange(connection, path, body)
        except TimeoutError as error:
            if connection is None:
                text = f"cannot connect to {self.address}: no answer within {timeout_ms} ms"
                raise ConnectFailed(text) from error
            text = f"{self.address}{path}: no response within {timeout_ms} ms"
            raise CallTimeout(text) from error

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            writer = self._idle.pop().writer
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _reusable(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if not (connection.reader.at_eof() or connection.writer.is_closing()):
                return connection
            connection.writer.close()
        return None

    async def _connect(self) -> "_Connection":
        try:
            host, port = split_address(self.address)
            return _Connection(*await asyncio.open_connection(host, port, ssl=self._context))
        except (OSError, UnicodeError) as error:
            why = address_error(error) if self._context is None else tls_error(error)
            raise ConnectFailed(f"cannot connect to {self.address}: {why}") from error

    async def _exchange(self, connection: "_Connection", path: str, body: bytes) -> bytes:
        try:
            connection.writer.write(_request(self.address, path, body))
            await connection.writer.drain()
            response = await _read_response(connection.reader)
        except (OSError, EOFError) as error:
            connection.writer.close()
            raise ConnectionLost(f"{self.address}{path}: the connection ended: {error}") from error
        except BaseException:
            connection.writer.close()
            raise
        if response.is_last or len(self._idle) >= IDLE_MAX:
            connection.writer.close()
        else:
            self._idle.append(connection)
        if response.status != _OK:
            raise CallRefused(response.status, response.body.decode(errors="replace").strip())
        return response.body


class _Connection(msgspec.Struct, frozen=True):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    is_last: bool
    """Whether the server closes the connection."""


def _request(address: str, path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _read_response(reader: asyncio.StreamReader) -> _Response:
    """Read one response; EOFError when the connection ends within it."""
    line = await _read_line(reader)
    version, _, rest = line.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdecimal():
        raise RemoteProtocolError(f"not a response of HTTP/1.1: {line[:80]!r}")
    headers = await _read_headers(reader)
    is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    body = await (_read_chunks(reader) if is_chunked else _read_whole(reader, headers))
    is_last = headers.get("connection", "").lower() == "close"
    return _Response(int(status), body, is_last)


async def _read_line(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\n")).decode("latin-1").strip()
    except asyncio.LimitOverrunError as error:
        raise RemoteProtocolError("a line of an HTTP response is too long") from error


async def _read_headers(reader: asyncio.StreamReader) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for _ in range(HEADERS_MAX):
        line = await _read_line(reader)
        if not line:
            return headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise RemoteProtocolError(f"an HTTP response has more than {HEADERS_MAX} header lines")


async def _read_whole(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    return await reader.readexactly(_size(headers.get("content-length", ""), 10))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = _size((await _read_line(reader)).partition(";")[0], 16)
        if not size:
            await _read_headers(reader)
            return bytes(body)
        if len(body) + size > BODY_SIZE_MAX:
            raise RemoteProtocolError(f"an HTTP response is longer than {BODY_SIZE_MAX} bytes")
        body += await reader.readexactly(size)
        await _read_line(reader)


def _size(text: str, number_base: int) -> int:
    try:
        size = int(text, number_base)
    except ValueError:
        raise RemoteProtocolError(f"an HTTP response without a length: {text[:40]!r}") from None
    if not 0 <= size <= BODY_SIZE_MAX:
        raise RemoteProtocolError(f"an HTTP response is longer than {BODY_SIZE_MAX} bytes")
    return size
