"""A network in memory that can delay bytes, drop connections and partition hosts.

It replaces the event loop's `create_server` and `create_connection`, so servers and clients run on
it unchanged. What happens depends on the calls made and on `rng` alone.
"""

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final

from roquet.net.memory_transport import Address, Factory, MemoryTransport

DEFAULT_HOST: Final = "127.0.0.1"
"""The host of code that runs outside `Network.host`."""

LOCAL: Final = frozenset({None, "", "0.0.0.0", "localhost", "127.0.0.1", "::", "::1"})
"""Names that every host resolves to itself."""

FIRST_PORT: Final = 20_000
"""The first port given to callers that ask for any free one, minus one."""

_host: ContextVar[str] = ContextVar("host", default=DEFAULT_HOST)


class Network:
    """Hosts, their listeners and connections, and the links between hosts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self._listeners: dict[Address, Listener] = {}
        self._transports: list[MemoryTransport] = []
        self._parted: set[frozenset[str]] = set()
        self._muted: set[tuple[str, str]] = set()
        """Pairs (sender, receiver) between which bytes are held back in this direction alone."""
        self._dead: set[str] = set()
        self._silent: set[str] = set()
        self._healed = asyncio.Event()
        self._delay_ms = (0, 0)
        self._slow: dict[str, tuple[int, int]] = {}
        self._next_port = FIRST_PORT

    @staticmethod
    def this_host() -> str:
        """The host of the running code."""
        return _host.get()

    @staticmethod
    def host_of(context: Context) -> str:
        """The host of code that runs in a context."""
        return context.get(_host, DEFAULT_HOST)

    @contextmanager
    def host(self, name: str) -> Iterator[None]:
        """Run code, and the tasks that it starts, on a host: it listens and connects from there."""
        token = _host.set(name)
        try:
            yield
        finally:
            _host.reset(token)

    def delay(self, least_ms: int, most_ms: int) -> None:
        """Delay bytes between all hosts from now on, by a random time in this range."""
        self._delay_ms = (least_ms, most_ms)

    def slow(self, host: str, least_ms: int, most_ms: int) -> None:
        """Delay bytes from and to one host from now on; 0, 0 ends that."""
        self._slow[host] = (least_ms, most_ms)

    def kill(self, host: str) -> None:
        """Kill the process on a host: its listeners close, and its peers see their connections end.

        Tasks of it that still run, while they are being cancelled, can no longer connect or listen.
        """
        self._dead.add(host)
        for address in [address for address in self._listeners if address[0] == host]:
            self.close(address)
        for transport in tuple(self._transports):
            if transport.here[0] == host:
                transport.abort()

    def silence(self, host: str) -> None:
        """Take a machine off the network: its peers see nothing, not even an end."""
        self._silent.add(host)
        self.kill(host)

    def revive(self, host: str) -> None:
        """Let a process run on a killed or silenced host again."""
        self._dead.discard(host)
        self._silent.discard(host)

    def partition(self, one: str, other: str) -> None:
        """Hold back all bytes between two hosts; neither sees an error."""
        self._parted.add(frozenset((one, other)))

    def partition_one_way(self, sender: str, receiver: str) -> None:
        """Hold back what one host sends to another; the other direction stays open.

        No new connection between them can be made.
        """
        self._muted.add((sender, receiver))

    def heal(self) -> None:
        """End all partitions and slow links; bytes that were held back arrive."""
        self._parted.clear()
        self._muted.clear()
        self._slow.clear()
        self._release()

    def rejoin(self, one: str, other: str) -> None:
        """End the partition between two hosts, in both directions; held back bytes arrive."""
        self._parted.discard(frozenset((one, other)))
        self._muted -= {(one, other), (other, one)}
        self._release()

    def _release(self) -> None:
        """Let connects and bytes go on that were held back, if they may."""
        self._healed.set()
        self._healed.clear()
        for transport in self._transports:
            transport.pump_soon()

    def drop(self, one: str, other: str) -> bool:
        """Break every connection between two hosts; both ends see an error. False without any."""
        ends = [end for end in self._transports if {end.here[0], end.there[0]} == {one, other}]
        for transport in ends:
            transport.break_off(ConnectionResetError("the network dropped it"))
        return bool(ends)

    async def create_server(
        self, factory: Factory, host: str | None = None, port: int | None = None, **_: object
    ) -> "Listener":
        """Listen; the signature is the event loop's."""
        address = (self._resolve(host), port or self._free_port())
        self._check_alive(_host.get())
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        listener = self._listeners[address] = Listener(self, factory, address)
        return listener

    async def create_connection(
        self, factory: Factory, host: str | None = None, port: int | None = None, **_: object
    ) -> tuple["MemoryTransport", Any]:
        """Connect; the signature is the event loop's."""
        here = (_host.get(), self._free_port())
        there = (self._resolve(host), port or 0)
        self._check_alive(here[0])
        await asyncio.sleep(self.travel_ms(here[0], there[0]) / 1000)
        while self.is_partitioned(here[0], there[0]) or self.is_partitioned(there[0], here[0]):
            await self._healed.wait()
        self._check_alive(here[0])
        listener = self._listeners.get(there)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        near = MemoryTransport(self, self._loop, here, there, copy_context())
        far = MemoryTransport(self, self._loop, there, here, listener.context)
        self._transports += (near, far)
        far.connect(near, listener.factory)
        protocol = near.connect(far, factory)
        return near, protocol

    def remove(self, transport: "MemoryTransport") -> None:
        """Remove one end of a connection that has ended."""
        self._transports.remove(transport)

    def close(self, address: Address) -> None:
        """Stop listening on an address."""
        self._listeners.pop(address, None)

    def is_partitioned(self, receiver: str, sender: str) -> bool:
        """Whether bytes from one host to another are held back."""
        if not (self._parted or self._muted or self._silent):
            return False
        pair = frozenset((receiver, sender))
        return (
            pair in self._parted
            or (sender, receiver) in self._muted
            or not self._silent.isdisjoint(pair)
        )

    def travel_ms(self, one: str, other: str) -> int:
        """Draw the delay in ms of the next bytes between two hosts."""
        usual, slow = self._delay_ms, self._slow
        delays = max(slow.get(one, usual), slow.get(other, usual)) if slow else usual
        return self._rng.randint(*delays)

    def _check_alive(self, host: str) -> None:
        if host in self._dead:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"{host} was killed")

    def _resolve(self, host: str | None) -> str:
        return _host.get() if host is None or host in LOCAL else host

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class Listener:
    """A listener on one address: the part of `asyncio.Server` that is used."""

    def __init__(self, network: Network, factory: Factory, address: Address) -> None:
        self.factory = factory
        self.context = copy_context()
        """Connections are served on the host that listens, not on the one that connects."""
        self._network = network
        self._address = address

    @property
    def sockets(self) -> tuple["Listener", ...]:
        """Itself: it answers `getsockname`."""
        return (self,)

    def getsockname(self) -> Address:
        """The address that it listens on."""
        return self._address

    def close(self) -> None:
        """Accept no more connections."""
        self._network.close(self._address)

    async def wait_closed(self) -> None:
        """Return at once: closing takes no time."""
