"""TCP proxy: passes connections on to a target, and can be cut and healed.

    client ──▶ proxy's port ──TO_TARGET──▶ target
           ◀──────────────FROM_TARGET─────

A cut is silent, as of a network that loses every packet: connections stay open and no byte passes,
nor does the end of a connection. Healed, the bytes come late and in order, as TCP resends them.
It works between real processes and needs no rights that an ordinary user lacks.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from enum import Flag
from types import TracebackType
from typing import Final

CHUNK: Final = 64 * 1024
"""Bytes that each direction of a connection reads at once, and holds while it is cut."""

RESETS: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket that is reset when it is closed: on, for 0 s."""


class Direction(Flag):
    """Directions of a connection through a proxy."""

    TO_TARGET = 1
    FROM_TARGET = 2
    BOTH = 3


class TcpProxy:
    """A listening port whose connections lead to a target.

    A connection that begins during a cut stays silent and is reset by `heal`: its handshake would
    not have come to an end, so none of its bytes may arrive.
    """

    def __init__(
        self,
        target: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        replacements: Mapping[str, str] | None = None,
    ) -> None:
        """`target` is HOST:PORT; port 0 listens on any free port, and `address` says which.

        `replacements` are texts that the target sends and the client gets instead, of equal length:
        so a server that names its own address does not lead clients past the proxy. A text that
        arrives in two parts is not replaced; a short answer arrives in one.
        """
        self._target_host, _, target_port = target.rpartition(":")
        self._target_port = int(target_port)
        self._host = host
        self._port = port
        self.replacements: dict[bytes, bytes] = {}
        for old, new in (replacements or {}).items():
            self.replace(old, new)
        self._server: asyncio.Server | None = None
        self._open = {Direction.TO_TARGET: asyncio.Event(), Direction.FROM_TARGET: asyncio.Event()}
        for is_open in self._open.values():
            is_open.set()
        self._waiting: set[asyncio.StreamWriter] = set()
        """Clients that connected during a cut."""
        self._passing: set[asyncio.StreamWriter] = set()
        """Both ends of each connection that reached the target."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "TcpProxy":
        self._server = await asyncio.start_server(self._accept, self._host, self._port, limit=CHUNK)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        """HOST:PORT where the proxy listens."""
        return f"{self._host}:{self._port}"

    @property
    def is_cut(self) -> bool:
        """Whether a direction is cut."""
        return not all(is_open.is_set() for is_open in self._open.values())

    @property
    def connections(self) -> int:
        """Number of connections that reached the target and are open at one end at least."""
        return len(self._passing) // 2

    def replace(self, old: str, new: str) -> None:
        """Replace a text that the target sends from now on. Raises ValueError for other lengths."""
        if len(old.encode()) != len(new.encode()):
            raise ValueError(f"{new!r} is not as long as {old!r}: lengths in the stream would lie")
        self.replacements[old.encode()] = new.encode()

    def cut(self, directions: Direction = Direction.BOTH) -> None:
        """Hold back all bytes of these directions from now on."""
        for direction, is_open in self._open.items():
            if direction in directions:
                is_open.clear()

    def heal(self) -> None:
        """Let the bytes pass again, first those that were held back."""
        for is_open in self._open.values():
            is_open.set()
        for client in self._waiting:
            _reset(client)
        self._waiting.clear()

    def reset(self) -> None:
        """Reset all connections at both ends; bytes on their way are lost."""
        for writer in (*self._waiting, *self._passing):
            _reset(writer)
        self._waiting.clear()

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.is_cut:
                self._waiting.add(client)
            else:
                await self._pass(reader, client)
        finally:
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Connect to the target, and pass bytes in both directions until both have ended."""
        try:
            back, target = await asyncio.open_connection(
                self._target_host, self._target_port, limit=CHUNK
            )
        except OSError:
            _reset(client)
            return
        ends = {client, target}
        self._passing |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, target, Direction.TO_TARGET))
                group.create_task(self._pump(back, client, Direction.FROM_TARGET))
        except* OSError:  # one end was reset: so is the other
            for writer in ends:
                _reset(writer)
        finally:
            self._passing -= ends
            for writer in ends:
                writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Pass bytes and their end in one direction. Raises OSError for a reset."""
        is_open = self._open[direction]
        while chunk := await self._read(reader, is_open):
            if direction is Direction.FROM_TARGET:
                for old, new in self.replacements.items():
                    chunk = chunk.replace(old, new)
            writer.write(chunk)
            await writer.drain()
        with suppress(OSError):  # the other end may have gone already
            writer.write_eof()

    @staticmethod
    async def _read(reader: asyncio.StreamReader, is_open: asyncio.Event) -> bytes:
        """Next bytes, empty at the end; they, or the OSError of a reset, wait while cut."""
        try:
            chunk = await reader.read(CHUNK)
        except OSError:
            await is_open.wait()
            raise
        await is_open.wait()
        return chunk


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset; its other end is told at once, and unsent bytes are lost."""
    with suppress(OSError):  # it is closed already
        descriptor = writer.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(descriptor)) as own:  # not every loop gives a whole socket
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
    writer.transport.abort()
