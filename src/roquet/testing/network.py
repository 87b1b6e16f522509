"""A network in memory that can delay, drop and part.

It stands in for the event loop's own (`loop.create_server`, `loop.create_connection`), so servers
and clients run on it as they are. What happens depends on the calls made and on `rng` alone.
"""

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from random import Random
from typing import Any, Final

from roquet.testing.transport import Address, Factory, MemoryTransport

DEFAULT_HOST: Final = "127.0.0.1"
"""The host of everyone who was not put elsewhere."""

LOCAL: Final = frozenset({None, "", "0.0.0.0", "localhost", "127.0.0.1", "::", "::1"})
"""Names by which every host calls itself."""

FIRST_PORT: Final = 20_000
"""Where ports for those who ask for any begin."""

_host: ContextVar[str] = ContextVar("host", default=DEFAULT_HOST)


class Network:
    """Hosts, who listens on them, and how well they reach each other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self._listeners: dict[Address, Listener] = {}
        self._transports: list[MemoryTransport] = []
        self._parted: set[frozenset[str]] = set()
        self._dead: set[str] = set()
        self._silent: set[str] = set()
        self._healed = asyncio.Event()
        self._delay_ms = (0, 0)
        self._slow: dict[str, tuple[int, int]] = {}
        self._next_port = FIRST_PORT

    @staticmethod
    def this_host() -> str:
        """Where the running code lives."""
        return _host.get()

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

    def slow(self, host: str, least_ms: int, most_ms: int) -> None:
        """From now on what this host says or hears is under way so long; 0, 0 ends that."""
        self._slow[host] = (least_ms, most_ms)

    def kill(self, host: str) -> None:
        """A machine's process is gone: nobody listens there, and the others see the ends.

        What still runs there, as tasks that are being cancelled, is heard by nobody.
        """
        self._dead.add(host)
        for address in [address for address in self._listeners if address[0] == host]:
            self.close(address)
        for transport in tuple(self._transports):
            if transport.here[0] == host:
                transport.abort()

    def silence(self, host: str) -> None:
        """A machine is gone: nobody hears of it any more, and nobody is told."""
        self._silent.add(host)
        self.kill(host)

    def revive(self, host: str) -> None:
        """A process may run there again."""
        self._dead.discard(host)

    def partition(self, one: str, other: str) -> None:
        """Nothing gets from one host to the other, nor back; nobody is told."""
        self._parted.add(frozenset((one, other)))

    def heal(self) -> None:
        """All hosts reach each other again, as quickly as ever; what was under way arrives."""
        self._parted.clear()
        self._slow.clear()
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
        self._check_alive(_host.get())
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
        self._check_alive(here[0])
        await asyncio.sleep(self.travel_ms(here[0], there[0]) / 1000)
        while self.is_partitioned(here[0], there[0]):
            await self._healed.wait()
        self._check_alive(here[0])
        listener = self._listeners.get(there)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        near = MemoryTransport(self, self._loop, here, there, copy_context())
        far = MemoryTransport(self, self._loop, there, here, listener.context)
        self._transports += (near, far)
        far.join(near, listener.factory)
        protocol = near.join(far, factory)
        return near, protocol

    def forget(self, transport: "MemoryTransport") -> None:
        """A connection has ended on one side."""
        self._transports.remove(transport)

    def close(self, address: Address) -> None:
        """Nobody listens there any more."""
        self._listeners.pop(address, None)

    def is_partitioned(self, one: str, other: str) -> bool:
        """Whether nothing gets from one to the other."""
        return frozenset((one, other)) in self._parted or not self._silent.isdisjoint((one, other))

    def travel_ms(self, one: str, other: str) -> int:
        """How long the next bytes between two hosts are under way."""
        delays = [self._slow.get(host, self._delay_ms) for host in (one, other)]
        return self._rng.randint(*max(delays))

    def _check_alive(self, host: str) -> None:
        if host in self._dead:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"{host} was killed")

    def _resolve(self, host: str | None) -> str:
        return _host.get() if host is None or host in LOCAL else host

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class Listener:
    """Who listens on one address; as an `asyncio.Server` as far as that is used."""

    def __init__(self, network: Network, factory: Factory, address: Address) -> None:
        self.factory = factory
        self.context = copy_context()
        """Whoever is served here is served by the host that listens, not by the one that calls."""
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
