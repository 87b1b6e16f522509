"""A network in memory that can delay, drop and part.

It stands in for the event loop's own (`loop.create_server`, `loop.create_connection`), so servers
and clients run on it as they are. What happens depends on the calls made and on `rng` alone.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, Final

HERE: Final = "127.0.0.1"
"""The host of everyone who was not put elsewhere."""

LOCAL: Final = frozenset({None, "", "0.0.0.0", "localhost", "127.0.0.1", "::", "::1"})
"""Names by which every host calls itself."""

FIRST_PORT: Final = 20_000
"""Where ports for those who ask for any begin."""

WRITE_BUFFER_HIGH: Final = 64 * 1024
"""What asyncio's own transports take before they ask for a pause."""

Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]

_host: ContextVar[str] = ContextVar("host", default=HERE)


class Network:
    """Hosts, who listens on them, and how well they reach each other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self._listeners: dict[Address, Listener] = {}
        self._transports: list[MemoryTransport] = []
        self._parted: set[frozenset[str]] = set()
        self._healed = asyncio.Event()
        self._delay_ms = (0, 0)
        self._next_port = FIRST_PORT

    @contextmanager
    def host(self, name: str) -> Iterator[None]:
        """Who listens or connects in here does so on this host; also tasks that begin in here."""
        token = _host.set(name)
        try:
            yield
        finally:
            _host.reset(token)

    def delay(self, least_ms: int, most_ms: int) -> None:
        """From now on bytes are under way for a time between these."""
        self._delay_ms = (least_ms, most_ms)

    def part(self, one: str, other: str) -> None:
        """Nothing gets from one host to the other, nor back; nobody is told."""
        self._parted.add(frozenset((one, other)))

    def heal(self) -> None:
        """All hosts reach each other again; what was under way arrives."""
        self._parted.clear()
        self._healed.set()
        self._healed.clear()
        for transport in self._transports:
            transport.pump()

    def drop(self, one: str, other: str) -> None:
        """Every connection between two hosts breaks, and both ends see it."""
        for transport in tuple(self._transports):
            if {transport.here[0], transport.there[0]} == {one, other}:
                transport.lose(ConnectionResetError("the network dropped it"))

    async def create_server(
        self, factory: Factory, host: str | None = None, port: int | None = None, **_: object
    ) -> "Listener":
        """As the event loop's: listen."""
        address = (self._resolve(host), port or self._free_port())
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        listener = self._listeners[address] = Listener(self, factory, address)
        return listener

    async def create_connection(
        self, factory: Factory, host: str | None = None, port: int | None = None, **_: object
    ) -> tuple["MemoryTransport", Any]:
        """As the event loop's: connect."""
        here = (_host.get(), self._free_port())
        there = (self._resolve(host), port or 0)
        await asyncio.sleep(self.travel_ms() / 1000)
        while self.are_parted(here[0], there[0]):
            await self._healed.wait()
        listener = self._listeners.get(there)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        near = MemoryTransport(self, self._loop, here, there)
        far = MemoryTransport(self, self._loop, there, here)
        self._transports += (near, far)
        far.join(near, listener.factory())
        near.join(far, protocol := factory())
        return near, protocol

    def forget(self, transport: "MemoryTransport") -> None:
        """A connection has ended on one side."""
        self._transports.remove(transport)

    def close(self, address: Address) -> None:
        """Nobody listens there any more."""
        self._listeners.pop(address, None)

    def are_parted(self, one: str, other: str) -> bool:
        """Whether nothing gets from one to the other."""
        return frozenset((one, other)) in self._parted

    def travel_ms(self) -> int:
        """How long the next bytes are under way."""
        return self._rng.randint(*self._delay_ms)

    def _resolve(self, host: str | None) -> str:
        return _host.get() if host is None or host in LOCAL else host

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class Listener:
    """Who listens on one address; as an `asyncio.Server` as far as that is used."""

    def __init__(self, network: Network, factory: Factory, address: Address) -> None:
        self.factory = factory
        self._network = network
        self._address = address

    @property
    def sockets(self) -> tuple["Listener", ...]:
        """It is its own socket."""
        return (self,)

    def getsockname(self) -> Address:
        """Where it listens."""
        return self._address

    def close(self) -> None:
        """Take no more connections."""
        self._network.close(self._address)

    async def wait_closed(self) -> None:
        """It is closed at once."""


class MemoryTransport(asyncio.Transport):
    """One end of a connection in memory."""

    def __init__(
        self, network: Network, loop: asyncio.AbstractEventLoop, here: Address, there: Address
    ) -> None:
        super().__init__({"sockname": here, "peername": there})
        self.here = here
        self.there = there
        self._network = network
        self._loop = loop
        self._inbox: deque[tuple[float, bytes | None]] = deque()
        """What is under way to us: (when it arrives, bytes); None is the end."""
        self._unread = 0
        self._high = WRITE_BUFFER_HIGH
        self._closing = self._ended = self._reading_paused = self._writing_paused = False

    def join(self, other: "MemoryTransport", protocol: Any) -> None:
        """The connection stands."""
        self._other = other
        self._protocol = protocol
        protocol.connection_made(self)

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
            if data is not None:
                self._other.reset()
            return
        arrival = self._loop.time() + self._network.travel_ms() / 1000
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
            if self._network.are_parted(self.here[0], self.there[0]):
                return
            data = self._inbox.popleft()[1]
            if data is None:
                if not self._protocol.eof_received():
                    self.close()
                return
            self._unread -= len(data)
            self._protocol.data_received(data)
            self._other.taken()

    def taken(self) -> None:
        """The other end has read something."""
        size = self.get_write_buffer_size()
        if self._writing_paused and not self._ended and size <= self._high // 4:
            self._writing_paused = False
            self._protocol.resume_writing()
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
        if not self._network.are_parted(self.here[0], self.there[0]):
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
            self._loop.call_soon(self._protocol.connection_lost, error)
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
