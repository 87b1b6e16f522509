"""Page client: reads the metrics page of another process by HTTP."""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import msgspec

from roquet.model.errors import CallTimeout, ConnectFailed, RemoteProtocolError
from roquet.net.address import address_error, split_address

PAGE_SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes of a page; a longer one is a fault of the server."""


class PageResponse(msgspec.Struct, frozen=True):
    """Status and text of a response."""

    status: int
    text: str


async def read_page(address: str, path: str, *, timeout_ms: int) -> str:
    """The page at a path of a server at HOST:PORT.

    Raises ConnectFailed, CallTimeout, or RemoteProtocolError for anything but a whole page.
    """
    response = await read_response(address, path, timeout_ms=timeout_ms)
    if response.status != HTTPStatus.OK:
        raise RemoteProtocolError(f"{address}{path}: status {response.status}")
    return response.text


async def read_response(address: str, path: str, *, timeout_ms: int) -> PageResponse:
    """The response for a path of a server at HOST:PORT, whatever its status.

    Raises ConnectFailed, CallTimeout, or RemoteProtocolError for anything but a whole response.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await _read(address, path)
    except TimeoutError as error:
        text = f"{address}{path}: no response within {timeout_ms} ms"
        raise CallTimeout(text) from error
    except OSError as error:
        raise ConnectFailed(f"cannot read {address}{path}: {address_error(error)}") from error


async def _read(address: str, path: str) -> PageResponse:
    host, port = split_address(address)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        status, size = _status_and_size(head.decode("latin-1"), f"{address}{path}")
        text = (await reader.readexactly(size)).decode("utf-8", "replace")
        return PageResponse(status, text)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise RemoteProtocolError(f"{address}{path}: the response is cut") from error
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _status_and_size(head: str, place: str) -> tuple[int, int]:
    """Status and bytes of the body, from the first line and the headers."""
    first, *headers = head.splitlines()
    status = "".join(first.split(" ")[1:2])
    if not first.startswith("HTTP/1.") or not (status.isascii() and status.isdecimal()):
        raise RemoteProtocolError(f"{place}: {first[:80]!r}")
    for header in headers:
        name, _, value = header.partition(":")
        is_length = name.lower() == "content-length" and value.strip().isdecimal()
        if is_length and int(value) <= PAGE_SIZE_MAX:
            return int(status), int(value)
    raise RemoteProtocolError(f"{place}: the response says no length that is allowed")
