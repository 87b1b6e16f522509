"""Server: listens, drives connections, dispatches requests to a router, stops gracefully."""

import asyncio
import errno
import sys
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from typing import Any, Final, Self

from roquet.log_records import logger
from roquet.metrics import roquet_metrics
from roquet.metrics.text_format import MetricsPage
from roquet.model.errors import ConfigError
from roquet.net import error_replies
from roquet.net.address import address_error, check_port
from roquet.net.clock import SYSTEM_CLOCK, Clock, every
from roquet.net.connection.server_connection import IDLE_CHECKS, ServerConnection
from roquet.net.limits.fair_share import FairShare
from roquet.net.limits.server_limits import ServerLimits
from roquet.net.memory_transport import Factory, connect_in_process
from roquet.net.reloaded_tls import RELOAD_MS, ReloadedTls
from roquet.net.router import Peer, Router
from roquet.net.sniffing_listener import ConnectionCounts, SniffingListener
from roquet.net.tls import TlsMode

log = logger(__name__)

IDLE_MS: Final = 120_000
"""Ms of silence after which a peer is taken for gone: clients send a heartbeat every 30 s."""

GRACE_MS: Final = 3_000
"""Ms for which a stop waits for requests in flight: sends end in ms, long polls are released."""

BACKLOG: Final = 1_024
"""Backlog of the listening socket: after a restart all clients connect at once."""

DESCRIPTORS_KEPT: Final = 128
"""File descriptors reserved for files that a flush or a new queue opens, and for connections that
this process makes."""


class Server:
    """Listens on a port and serves the calls of a router: `async with Server(router) as server`."""

    def __init__(
        self,
        router: Router,
        *,
        host: str = "0.0.0.0",
        port: int = 0,
        clock: Clock = SYSTEM_CLOCK,
        grace_ms: int = GRACE_MS,
        also: int | None = None,
    ) -> None:
        self._router = router
        self._host = host
        self._port = port
        self._also = also
        self._clock = clock
        self._grace_ms = grace_ms
        self._connections: dict[ServerConnection, None] = {}
        """In order of arrival: behaviour must not depend on the order of a set."""
        self.share = FairShare(clock)
        """Requests that held up all others."""
        self.limits = ServerLimits(self._connections, router.gates, share=self.share)
        """Memory that all connections may hold together."""
        self.descriptors_max = 0
        """File descriptors that this process may have open, by its limit at the start."""
        self._is_refusing = False
        self._on_stopping: list[Callable[[], object]] = []
        self._listeners: list[asyncio.Server | SniffingListener] = []
        self._check_timer: asyncio.TimerHandle | None = None
        self._reloads: asyncio.Task[None] | None = None
        self.stopping = False
        self.tls: ReloadedTls | None = None
        """TLS of accepted connections; set it before the start."""
        self.proxies: Sequence[str] = ()
        """IP addresses and CIDR blocks whose connections may begin with a header of the PROXY
        protocol; set it before the start."""
        self.counts = ConnectionCounts()
        """Connections by how they began; counted with `tls` or `proxies` alone."""

    @property
    def port(self) -> int:
        """The port that it listens on; the system chooses one for 0."""
        return self._port

    @property
    def ports(self) -> list[int]:
        """All ports that it listens on."""
        return [_port_of(listener) for listener in self._listeners]

    @property
    def peers(self) -> Set[Peer]:
        """The connected peers."""
        return frozenset(self._connections)

    def add_openings(self, page: MetricsPage) -> None:
        """Add connections by how they began; none where first bytes are not looked at."""
        if self.tls is not None or self.proxies:
            for kind, count in self.counts.by_kind().items():
                page.add(roquet_metrics.OPENED_CONNECTIONS, count, kind)

    def note_slow_requests(self, share: FairShare) -> None:
        """Note slow requests in a FairShare of the caller; call it before the start."""
        self.share = self.limits.share = share

    def on_stopping(self, callback: Callable[[], object]) -> None:
        """Call back when a stop begins, to release coroutines that wait in handlers."""
        self._on_stopping.append(callback)

    async def start(self) -> None:
        """Listen. Raises ConfigError when the address cannot be used."""
        check_port(self._port)
        self.descriptors_max = descriptors_max()
        try:
            await self._listen(self._port)
        except (OSError, UnicodeError) as error:
            raise ConfigError(self._why_not(error)) from error
        self._port = _port_of(self._listeners[0])
        if self._also is not None:
            try:
                await self._listen(self._also)
            except OSError as error:
                log.warning(
                    "port %d, which some old clients use, is not served: %s",
                    self._also,
                    address_error(error),
                )
        self._schedule_check()
        if self.tls is not None:
            self._reloads = asyncio.create_task(every(RELOAD_MS, self.tls.reload, self._clock))

    async def _listen(self, port: int) -> None:
        tls = self.tls if self.tls and self.tls.mode is not TlsMode.DISABLED else None
        listener: asyncio.Server | SniffingListener
        if tls is None and not self.proxies:
            listener = await asyncio.get_running_loop().create_server(
                self._new_connection, self._host, port, backlog=BACKLOG
            )
        else:
            listener = SniffingListener(
                self._new_connection,
                tls,
                self.proxies,
                counts=self.counts,
                descriptor_max=self.descriptors_max - DESCRIPTORS_KEPT,
            )
            await listener.listen(self._host, port, BACKLOG)
        self._listeners.append(listener)

    async def stop(self, grace_ms: int | None = None) -> None:
        """Refuse new requests, answer those in flight within the grace period, flush, close."""
        if not self._listeners or self.stopping:
            return
        self.stopping = True
        for listener in self._listeners:
            listener.close()
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._reloads is not None:
            self._reloads.cancel()
        for connection in self._connections:
            connection.serve_with(error_replies.go_away)
        for callback in self._on_stopping:
            callback()
        try:
            if busy := [each for each in self._connections if each.in_flight]:
                grace_s = (self._grace_ms if grace_ms is None else grace_ms) / 1000
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace_s):
                        await asyncio.gather(*(each.served_all() for each in busy))
        finally:  # also of a stop that is cancelled: no other one closes them
            await asyncio.gather(*(connection.close() for connection in self._connections))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # it may listen at the first of its ports already
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def accept_local(self, client: Factory) -> Any:
        """Connect a client of this process, without a socket; returns its protocol."""
        return connect_in_process(client, self._new_connection)

    def _new_connection(self, source: str | None = None) -> ServerConnection:
        router = self._router
        return ServerConnection(
            router.dispatch, self._clock, self._on_connect, self.limits, source, router
        )

    def _on_connect(self, connection: ServerConnection) -> None:
        if self.stopping:
            connection.drop("the server stops")
            return
        if connection.descriptor >= self.descriptors_max - DESCRIPTORS_KEPT:
            self._reject(connection)
            return
        self._connections[connection] = None
        connection.on_close(self._on_close)

    def _on_close(self, connection: ServerConnection) -> None:
        self._connections.pop(connection, None)

    def _reject(self, connection: ServerConnection) -> None:
        """Refuse a connection when no file descriptor is to spare.

        It is logged once between two checks for silent peers.
        """
        if not self._is_refusing:
            self._is_refusing = True
            log.error(
                "new connections are refused: %d are open, and of %d open files that this process"
                " may have %d are kept for its own (see ulimit -n)",
                len(self._connections),
                self.descriptors_max,
                DESCRIPTORS_KEPT,
            )
        connection.reject()

    def _schedule_check(self) -> None:
        pause_s = IDLE_MS / IDLE_CHECKS / 1000
        self._check_timer = asyncio.get_running_loop().call_later(pause_s, self._check_idle)

    def _check_idle(self) -> None:
        self._is_refusing = False
        for connection in tuple(self._connections):
            connection.look(IDLE_MS)
        self._schedule_check()

    def _why_not(self, error: OSError | UnicodeError) -> str:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            return (
                f"port {self._port} is in use: stop the other process or choose another with --port"
            )
        return f"cannot listen on {self._host}:{self._port}: {address_error(error)}"


def _port_of(listener: asyncio.Server | SniffingListener) -> int:
    port: int = listener.sockets[0].getsockname()[1]
    return port


def descriptors_max() -> int:
    """File descriptors that this process may have open."""
    try:
        import resource  # not on Windows
    except ImportError:
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
