"""One end of a connection in memory: bytes that are under way, and how a connection ends."""

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, Protocol

WRITE_BUFFER_HIGH: Final = 64 * 1024
"""What asyncio's own transports take before they ask for a pause."""

Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]


class NetworkPaths(Protocol):
    """The ways between hosts, as a connection has to know them."""

    def is_partitioned(self, one: str, other: str) -> bool:
        """Whether nothing gets from one to the other."""

    def travel_ms(self, one: str, other: str) -> int:
        """How long the next bytes between two hosts are under way."""

    def forget(self, transport: "MemoryTransport") -> None:
        """A connection has ended on one side."""


class MemoryTransport(asyncio.Transport):
    """One end of a connection in memory."""

    def __init__(
        self,
        network: NetworkPaths,
        loop: asyncio.AbstractEventLoop,
        here: Address,
        there: Address,
        context: Context,
    ) -> None:
        super().__init__({"sockname": here, "peername": there})
        self._context = context
        self.here = here
        self.there = there
        self._network = network
        self._loop = loop
        self._inbox: deque[tuple[float, bytes | None]] = deque()
        """What is under way to us: (when it arrives, bytes); None is the end."""
        self._unread = 0
        self._high = WRITE_BUFFER_HIGH
        self._closing = self._ended = self._reading_paused = self._writing_paused = False

    def join(self, other: "MemoryTransport", factory: Factory) -> Any:
        """The connection stands: the protocol that lives on this end."""
        self._other = other
        self._protocol: Any = self._at_home(factory)
        self._at_home(self._protocol.connection_made, self)
        return self._protocol

    def _at_home(self, callback: Callable[..., Any], *arguments: object) -> Any:
        """Call as this end's host, whoever stirred it: tasks that begin in there belong to it."""
        return self._context.copy().run(callback, *arguments)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes to the other end."""
        if data and not self._closing:
            self._other.take(bytes(data))
            if not self._writing_paused and self.get_write_buffer_size() > self._high:
                self._writing_paused = True
                self._protocol.pause_writing()

    def take(self, data: bytes | None) -> None:
        """Bytes set out to us; they do not overtake each other."""
        if self._ended:
            if data is not None and not self._network.is_partitioned(self.here[0], self.there[0]):
                self._other.reset()
            return
        travel_ms = self._network.travel_ms(self.here[0], self.there[0])
        arrival = self._loop.time() + travel_ms / 1000
        if self._inbox:
            arrival = max(arrival, self._inbox[-1][0])
        self._inbox.append((arrival, data))
        self._unread += len(data or b"")
        self._loop.call_at(arrival, self.pump)

    def pump(self) -> None:
        """Hand on what has arrived."""
        while self._inbox and not self._ended and not self._reading_paused:
            if self._inbox[0][0] > self._loop.time() + 1e-9:
                return
            if self._network.is_partitioned(self.here[0], self.there[0]):
                return
            data = self._inbox.popleft()[1]
            if data is None:
                if not self._at_home(self._protocol.eof_received):
                    self.close()
                return
            self._unread -= len(data)
            self._at_home(self._protocol.data_received, data)
            self._other.taken()

    def taken(self) -> None:
        """The other end has read something."""
        size = self.get_write_buffer_size()
        if self._writing_paused and not self._ended and size <= self._high // 4:
            self._writing_paused = False
            self._at_home(self._protocol.resume_writing)
        if self._closing and not size:
            self._end_soon(None)

    def close(self) -> None:
        """End the connection behind what was written."""
        if not self._closing:
            self._closing = True
            self._reading_paused = True
            self._other.take(None)
            self.taken()

    def abort(self) -> None:
        """End the connection at once; what was not read yet is lost."""
        self._other.reset()
        self._closing = True
        self._end_soon(None)

    def reset(self) -> None:
        """The other end has ended the connection at once."""
        if not self._network.is_partitioned(self.here[0], self.there[0]):
            self.lose(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def lose(self, error: OSError) -> None:
        """The connection breaks."""
        self._closing = True
        self._end_soon(error)

    def _end_soon(self, error: OSError | None) -> None:
        if not self._ended:
            self._ended = True
            self._inbox.clear()
            self._unread = 0
            self._network.forget(self)
            self._loop.call_soon(self._at_home, self._protocol.connection_lost, error)
            self._loop.call_soon(self._other.taken)

    def is_closing(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._closing

    def pause_reading(self) -> None:
        """Hand nothing on for now."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Go on handing on."""
        if not self._closing:
            self._reading_paused = False
            self._loop.call_soon(self.pump)

    def is_reading(self) -> bool:
        """Whether what arrives is handed on."""
        return not self._reading_paused

    def get_write_buffer_size(self) -> int:
        """How many bytes the other end has not read."""
        return self._other._unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        """When to ask the writer for a pause."""
        self._high = WRITE_BUFFER_HIGH if high is None else high
