"""SniffingListener: accepts connections whose first bytes say what they are.

    accept ──▶ first byte ──PROXY header──▶ its address counts ──▶ first byte
                   │                                                   │
                   └──────────────────────────┬────────────────────────┘
                                0x16: TLS handshake · other: plain
                                              │
                                     ServerConnection (or refused)

Connections that are not that far are bounded in number and time, so that strangers who connect and
say nothing hold nobody up: while there is no place for another, the oldest one is ended.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from roquet.log_records import logger
from roquet.model.errors import ConnectFailed, RemoteProtocolError, RoquetError
from roquet.net.address import host_of, join_address
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.tls import TlsMode, refused_handshake
from roquet.rules.access.patterns import comes_from
from roquet.rules.bounded_cache import BoundedCache
from roquet.wire.proxy_protocol import (
    SIZE_MAX,
    START_SIZE,
    begins_header,
    header_size,
    source_address,
)

log = logger(__name__)

TLS_FIRST_BYTE: Final = b"\x16"
"""First byte of a TLS handshake; a frame that begins with it would have 369 MB."""

OPENING_MS: Final = 10_000
"""Ms within which a connection must have sent its first byte and ended its handshake."""

OPENING_MAX: Final = 1_024
"""Connections that are not that far: a handshake holds up to 300 KB."""

OPENING_SPARED_MS: Final = 250
"""Ms for which a connection is not ended in favour of a newer one: a handshake takes less, unless
very many clients connect at once, which then wait in the backlog."""

ACCEPT_COUNT: Final = 64
"""Connections accepted before others have their turn."""

START_PAUSE_S: Final = 0.01
"""Between two looks at a connection that has sent one byte or two; each further pause doubles it,
so that a thousand of them cost next to nothing."""

SKIPPED_MAX: Final = 64 * 1024
"""Bytes of a refused connection that are read before it is closed."""

PAUSE_MS: Final = 1_000
"""Ms without accepting, after the system refused another connection."""

HOSTS_REMEMBERED: Final = 256
"""Hosts whose refusal was logged: each is logged once until the reason changes."""

_REFUSED: Final = "{}: connection refused"
_ALL: Final = "new connections are refused"

NewProtocol = Callable[[str | None], asyncio.Protocol]
"""Makes the protocol of a connection, from the address that a PROXY header names, if any."""


class ConnectionCounts:
    """Connections by how they began, since the start."""

    __slots__ = ("abandoned", "plain", "refused", "tls")

    def __init__(self) -> None:
        self.plain = 0
        """Connections without TLS that are or were served."""
        self.tls = 0
        """Connections with TLS that are or were served."""
        self.refused = 0
        """Connections that failed the handshake or that the mode does not take."""
        self.abandoned = 0
        """Connections that did not open in time, or before others wanted their place."""

    def by_kind(self) -> dict[str, int]:
        """The counts by their names."""
        return {kind: getattr(self, kind) for kind in sorted(self.__slots__)}


class _Opening:
    """A connection that is neither served nor refused yet."""

    __slots__ = ("accepted", "address", "began_s")

    def __init__(self, accepted: socket.socket, address: str, began_s: float) -> None:
        self.accepted: socket.socket | None = accepted
        """None once a transport owns it, and closes it."""
        self.address = address
        self.began_s = began_s
        """By the loop's clock."""


class SniffingListener:
    """Listens on a port for connections with TLS, plain ones, and those that a proxy passes on."""

    def __init__(
        self,
        new_protocol: NewProtocol,
        tls: ReloadedTls | None,
        proxies: Sequence[str] = (),
        *,
        counts: ConnectionCounts | None = None,
        descriptor_max: int | None = None,
        opening_ms: int = OPENING_MS,
        opening_max: int = OPENING_MAX,
    ) -> None:
        """Without `tls` every connection is plain.

        Connections from `proxies`, IP addresses and CIDR blocks, may begin with a PROXY header.
        Those with a file descriptor from `descriptor_max` on are closed at once.
        """
        self._new_protocol = new_protocol
        self._tls = tls
        self._proxies = proxies
        self._descriptor_max = descriptor_max
        self._opening_ms = opening_ms
        self._opening_max = opening_max
        self._loop = asyncio.get_running_loop()
        self._opening: dict[asyncio.Task[None], _Opening] = {}
        """The oldest first."""
        self._complaints: BoundedCache[str, str] = BoundedCache(HOSTS_REMEMBERED)
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}
        """Sockets that are not accepted from for a while."""
        self.counts = counts or ConnectionCounts()
        self.sockets: list[socket.socket] = []
        """The listening sockets."""

    async def listen(self, host: str, port: int, backlog: int) -> None:
        """Listen on all addresses of a host; port 0 is any free one. Raises OSError."""
        try:
            for address in await _addresses(self._loop, host, port):
                if not port and self.sockets:
                    address = (address[0], (address[1][0], self._port, *address[1][2:]))
                self.sockets.append(_listening(*address, backlog))
        except BaseException:
            self.close()
            raise
        for listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    @property
    def _port(self) -> int:
        port: int = self.sockets[0].getsockname()[1]
        return port

    @property
    def opening(self) -> int:
        """Connections that are neither served nor refused yet."""
        return len(self._opening)

    def close(self) -> None:
        """Stop listening, and end connections that are not served yet."""
        while self.sockets:
            listening = self.sockets.pop()
            self._pause(listening)
            listening.close()
        for task in self._opening:
            task.cancel()

    # Accepting.

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_COUNT):
            if not self._has_place(listening):
                return
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # descriptors or memory are used up, mostly
                self._complain("", f"none can be accepted now: {error.strerror}")
                self._pause(listening, PAUSE_MS)
                return
            if self._descriptor_max is not None and accepted.fileno() >= self._descriptor_max:
                accepted.close()
                self._complain("", "there are too many connections")
                continue
            if len(self._opening) >= self._opening_max:
                self._end_oldest()
            accepted.setblocking(False)
            opening = _Opening(accepted, join_address(name), self._loop.time())
            task = self._loop.create_task(self._open(accepted, opening))
            self._opening[task] = opening
            task.add_done_callback(partial(self._opened, opening))

    def _has_place(self, listening: socket.socket) -> bool:
        """Whether another connection may be opened; it pauses until one may."""
        if len(self._opening) < self._opening_max:
            return True
        oldest = next(iter(self._opening.values()))
        left_ms = OPENING_SPARED_MS - (self._loop.time() - oldest.began_s) * 1000
        if left_ms > 0:
            self._pause(listening, left_ms)
        return left_ms <= 0

    def _end_oldest(self) -> None:
        task = next(iter(self._opening))
        del self._opening[task]
        task.cancel()
        self.counts.abandoned += 1

    def _opened(self, opening: _Opening, task: "asyncio.Task[None]") -> None:
        """Make room for another connection: this one is served, or was refused."""
        self._opening.pop(task, None)
        if opening.accepted is not None:
            opening.accepted.close()
        if not task.cancelled():
            task.result()  # raises a fault of our own, for the event loop to log
        if self._timers and len(self._opening) < self._opening_max:
            for listening in tuple(self._timers):
                self._resume(listening)

    def _pause(self, listening: socket.socket, pause_ms: float | None = None) -> None:
        """Accept no more from a socket, for a while or for good."""
        self._loop.remove_reader(listening)
        if (timer := self._timers.pop(listening, None)) is not None:
            timer.cancel()
        if pause_ms is not None:
            self._timers[listening] = self._loop.call_later(
                pause_ms / 1000, self._resume, listening
            )

    def _resume(self, listening: socket.socket) -> None:
        self._timers.pop(listening).cancel()
        self._loop.add_reader(listening, self._accept, listening)

    # One connection.

    async def _open(self, accepted: socket.socket, opening: _Opening) -> None:
        """Bring one connection to where it is served, or say why not."""
        address = opening.address
        try:
            async with asyncio.timeout(self._opening_ms / 1000):
                source, context = await self._sniff(accepted, address)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                opening.accepted = None
                await self._serve(accepted, source, context)
        except TimeoutError:
            self.counts.abandoned += 1
            self._complain(
                address, f"it sent no request and no handshake for {self._opening_ms} ms"
            )
        except ConnectionError as error:  # health checks of balancers, mostly
            log.debug("%s: %s", address, error, extra={"client": address})
        except (OSError, RoquetError) as error:
            self.counts.refused += 1
            self._complain(address, refused_handshake(error))
            if opening.accepted is not None:
                _skip(opening.accepted)

    async def _serve(
        self, owned: socket.socket, source: str | None, context: ssl.SSLContext | None
    ) -> None:
        secured: Mapping[str, Any] = {}
        if context is not None:
            secured = {"ssl": context, "ssl_handshake_timeout": self._opening_ms / 500}
        await self._loop.connect_accepted_socket(
            lambda: self._new_protocol(source), owned, **secured
        )
        if context is None:
            self.counts.plain += 1
        else:
            self.counts.tls += 1

    async def _sniff(
        self, accepted: socket.socket, address: str
    ) -> tuple[str | None, ssl.SSLContext | None]:
        """The address that a PROXY header names, and the context of TLS.

        Raises RoquetError for a connection that is not taken.
        """
        source, first = None, await self._peek_start(accepted)
        if begins_header(first):
            if not self._is_proxy(address):
                raise RemoteProtocolError("it sends a PROXY header, and is no trusted proxy")
            source = await self._read_proxy_header(accepted)
            if self._tls is None:
                return source, None
            first = await self._peek_start(accepted)
        tls = self._tls
        if tls is None:
            return source, None
        if first[:1] == TLS_FIRST_BYTE:
            return source, tls.context
        if tls.mode is TlsMode.ENFORCING:
            raise ConnectFailed("it does not speak TLS, which tls_mode=enforcing asks for")
        return source, None

    def _is_proxy(self, address: str) -> bool:
        ip = host_of(address)
        return any(comes_from(ip, source) for source in self._proxies)

    async def _read_proxy_header(self, accepted: socket.socket) -> str | None:
        """Read a header, and no byte of what follows it."""
        header = b""
        while True:
            seen = header + await self._peek(accepted, SIZE_MAX)
            size = header_size(seen)
            end = len(seen) if size is None else min(size, len(seen))
            header += accepted.recv(end - len(header))
            if len(header) == size:
                return source_address(header)

    async def _peek_start(self, accepted: socket.socket) -> bytes:
        """The first bytes, as many as tell whether a PROXY header begins."""
        pause_s = START_PAUSE_S
        while begins_header(seen := await self._peek(accepted, START_SIZE)) is None:
            await asyncio.sleep(pause_s)  # a socket with some bytes is readable at once
            pause_s *= 2
        return seen

    async def _peek(self, accepted: socket.socket, size: int) -> bytes:
        """The next bytes, which stay where they are. Raises ConnectionResetError at the end."""
        while True:
            try:
                seen = accepted.recv(size, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                await self._readable(accepted)
            else:
                if not seen:
                    raise ConnectionResetError(errno.ECONNRESET, "it hung up")
                return seen

    async def _readable(self, accepted: socket.socket) -> None:
        """Wait until something has arrived, or the other end has gone."""
        arrived = self._loop.create_future()
        self._loop.add_reader(accepted, _note, arrived)
        try:
            await arrived
        finally:
            self._loop.remove_reader(accepted)

    def _complain(self, address: str, reason: str) -> None:
        """Log why a connection is not served; the same reason of one host once."""
        host = address.rpartition(":")[0]
        if self._complaints.get(host) != reason:
            self._complaints.put(host, reason)
            fields = {"client": address} if address else None
            subject = _REFUSED.format(address) if address else _ALL
            log.warning("%s: %s", subject, reason, extra=fields)


def _skip(refused: socket.socket) -> None:
    """Read what has arrived, so that closing says goodbye and not that bytes were lost."""
    with suppress(OSError):
        refused.recv(SKIPPED_MAX)


def _note(arrived: "asyncio.Future[None]") -> None:
    if not arrived.done():
        arrived.set_result(None)


_Address = tuple[socket.AddressFamily, tuple[Any, ...]]
"""Family and name to bind to."""


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[_Address]:
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, name) for family, _, _, _, name in found))


def _listening(family: socket.AddressFamily, name: tuple[Any, ...], backlog: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(name)
        listening.listen(backlog)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
