"""MemoryTransport: one end of a connection in memory, with delays, flow control and its end."""

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final, Protocol

WRITE_BUFFER_HIGH: Final = 64 * 1024
"""Bytes that asyncio's own transports buffer before they call `pause_writing`."""

Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]


class NetworkPaths(Protocol):
    """The network between two hosts, as far as a connection uses it."""

    def is_partitioned(self, receiver: str, sender: str) -> bool:
        """Whether bytes from one host to another are held back."""

    def travel_ms(self, one: str, other: str) -> int:
        """Draw the delay in ms of the next bytes between two hosts."""

    def remove(self, transport: "MemoryTransport") -> None:
        """Remove one end of a connection that has ended."""


class OneProcess:
    """The network within one process: nothing is held back or lost."""

    def is_partitioned(self, receiver: str, sender: str) -> bool:  # noqa: ARG002
        """False: both ends are here."""
        return False

    def travel_ms(self, one: str, other: str) -> int:  # noqa: ARG002
        """0 ms."""
        return 0

    def remove(self, transport: "MemoryTransport") -> None:
        """Nothing is kept of a connection that has ended."""


LOCAL_END: Final = ("127.0.0.1", 0)
"""Address of both ends of a connection within one process."""


class MemoryTransport(asyncio.Transport):
    """One end of a connection in memory, as an `asyncio.Transport`."""

    def __init__(
        self,
        network: NetworkPaths,
        loop: asyncio.AbstractEventLoop,
        here: Address,
        there: Address,
        context: Context,
    ) -> None:
        super().__init__({"sockname": here, "peername": there})
        self.context = context
        """Tasks that the protocol of this end starts belong to its host."""
        self.here = here
        self.there = there
        self._network = network
        self._loop = loop
        self._inbox: deque[tuple[float, bytes | None]] = deque()
        """Data on its way to this end: (arrival in loop time, bytes); None is the end."""
        self.unread = 0
        """Bytes on their way to this end, or not read yet."""
        self._high = WRITE_BUFFER_HIGH
        self._closing = self._ended = self._reading_paused = self._writing_paused = False

    def connect(self, other: "MemoryTransport", factory: Factory) -> Any:
        """Connect both ends; makes and returns this end's protocol."""
        self._other = other
        self._protocol: Any = self._call_on_host(factory)
        self._call_on_host(self._protocol.connection_made, self)
        return self._protocol

    def _call_on_host(self, callback: Callable[..., Any], *arguments: object) -> Any:
        """Call on this end's host: tasks that the callback starts belong to that host."""
        return self.context.copy().run(callback, *arguments)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes to the other end."""
        if data and not self._closing:
            self._other.deliver(bytes(data))
            if not self._writing_paused and self.get_write_buffer_size() > self._high:
                self._writing_paused = True
                self._protocol.pause_writing()

    def deliver(self, data: bytes | None) -> None:
        """Put bytes on their way to this end, in order; None is the end of the stream."""
        if self._ended:
            if data is not None and not self._network.is_partitioned(self.here[0], self.there[0]):
                self._other.peer_aborted()
            return
        travel_ms = self._network.travel_ms(self.here[0], self.there[0])
        arrival = self._loop.time() + travel_ms / 1000
        if self._inbox:
            arrival = max(arrival, self._inbox[-1][0])
        self._inbox.append((arrival, data))
        self.unread += len(data or b"")
        self._loop.call_at(arrival, self.pump, context=self.context)

    def pump_soon(self) -> None:
        """Give the protocol what has arrived, in the next turn of the loop."""
        self._loop.call_soon(self.pump, context=self.context)

    def pump(self) -> None:
        """Give the protocol what has arrived."""
        while self._inbox and not self._ended and not self._reading_paused:
            if self._inbox[0][0] > self._loop.time() + 1e-9:
                return
            if self._network.is_partitioned(self.here[0], self.there[0]):
                return
            data = self._inbox.popleft()[1]
            if data is None:
                if not self._call_on_host(self._protocol.eof_received):
                    self.close()
                return
            self.unread -= len(data)
            self._call_on_host(self._protocol.data_received, data)
            self._other.peer_has_read()

    def peer_has_read(self) -> None:
        """React to the other end having read: resume writing, or finish closing."""
        size = self.get_write_buffer_size()
        if self._writing_paused and not self._ended and size <= self._high // 4:
            self._writing_paused = False
            self._call_on_host(self._protocol.resume_writing)
        if self._closing and not size:
            self._end_soon(None)

    def close(self) -> None:
        """End the connection after all that was written is read."""
        if not self._closing:
            self._closing = True
            self._reading_paused = True
            self._other.deliver(None)
            self.peer_has_read()

    def abort(self) -> None:
        """End the connection at once; unread bytes are lost."""
        self._other.peer_aborted()
        self._closing = True
        self._end_soon(None)

    def peer_aborted(self) -> None:
        """React to the other end's abort, unless the hosts are partitioned."""
        if not self._network.is_partitioned(self.here[0], self.there[0]):
            self.break_off(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def break_off(self, error: OSError) -> None:
        """Break the connection with an error."""
        self._closing = True
        self._end_soon(error)

    def _end_soon(self, error: OSError | None) -> None:
        if not self._ended:
            self._ended = True
            self._inbox.clear()
            self.unread = 0
            self._network.remove(self)
            lost = self._protocol.connection_lost
            self._loop.call_soon(self._call_on_host, lost, error, context=self.context)
            self._loop.call_soon(self._other.peer_has_read, context=self._other.context)

    def is_closing(self) -> bool:
        """Whether it has ended or is closing."""
        return self._closing

    def pause_reading(self) -> None:
        """Stop giving bytes to the protocol."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Give bytes to the protocol again."""
        if not self._closing:
            self._reading_paused = False
            self._loop.call_soon(self.pump)

    def is_reading(self) -> bool:
        """Whether arriving bytes are given to the protocol."""
        return not self._reading_paused

    def get_write_buffer_size(self) -> int:
        """Number of bytes that the other end has not read."""
        return self._other.unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        """Set the size above which `pause_writing` is called; `low` is always a quarter of it."""
        self._high = WRITE_BUFFER_HIGH if high is None else high


def connect_in_process(client: Factory, server: Factory) -> Any:
    """Connect two protocols of this process without a socket; returns the client's."""
    loop, network = asyncio.get_running_loop(), OneProcess()
    near = MemoryTransport(network, loop, LOCAL_END, LOCAL_END, copy_context())
    far = MemoryTransport(network, loop, LOCAL_END, LOCAL_END, copy_context())
    protocol = near.connect(far, client)
    far.connect(near, server)  # it may refuse at once
    return protocol
