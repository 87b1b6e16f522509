"""Page client: reads the metrics page of another process by HTTP."""

import asyncio
from contextlib import suppress
from typing import Final

from roquet.model.errors import CallTimeout, ConnectFailed, RemoteProtocolError
from roquet.net.address import address_error, split_address

PAGE_SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes of a page; a longer one is a fault of the server."""


async def read_page(address: str, path: str, *, timeout_ms: int) -> str:
    """The page at a path of a server at HOST:PORT.

    Raises ConnectFailed, CallTimeout, or RemoteProtocolError for anything but a whole page.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await _read(address, path)
    except TimeoutError as error:
        text = f"{address}{path}: no response within {timeout_ms} ms"
        raise CallTimeout(text) from error
    except OSError as error:
        raise ConnectFailed(f"cannot read {address}{path}: {address_error(error)}") from error


async def _read(address: str, path: str) -> str:
    host, port = split_address(address)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        size = _size_of(head.decode("latin-1"), f"{address}{path}")
        return (await reader.readexactly(size)).decode("utf-8", "replace")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise RemoteProtocolError(f"{address}{path}: the response is cut") from error
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _size_of(head: str, place: str) -> int:
    """Bytes of the body, from the first line and the headers."""
    first, *headers = head.splitlines()
    if first.split(" ")[1:2] != ["200"]:
        raise RemoteProtocolError(f"{place}: {first[:80]!r}")
    for header in headers:
        name, _, value = header.partition(":")
        is_length = name.lower() == "content-length" and value.strip().isdecimal()
        if is_length and int(value) <= PAGE_SIZE_MAX:
            return int(value)
    raise RemoteProtocolError(f"{place}: the response says no length that is allowed")
