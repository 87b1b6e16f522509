"""Listen, drive connections, hand calls to the router, stop gracefully."""

import asyncio
import errno
import ssl
import sys
from collections.abc import Callable, Set
from typing import Final, Self

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.net import error_replies
from roquet.net.address import address_error
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.fair_share import FairShare
from roquet.net.router import Peer, Router
from roquet.net.server_connection import IDLE_CHECKS, ServerConnection
from roquet.net.server_limits import ServerLimits

log = logger(__name__)

IDLE_MS: Final = 120_000
"""A peer silent for so long has gone without a word: every client sends a heartbeat each 30 s."""

GRACE_MS: Final = 3_000
"""How long a stop waits for what is in flight: sends end in ms, long polls are released."""

BACKLOG: Final = 1_024
"""Connections that may queue up: after a restart all clients come at once."""

DESCRIPTORS_KEPT: Final = 128
"""Open files that connections never get: for the files that a flush or a new queue opens, and for
connections of our own."""


class Server:
    """Listens on a port and serves what the router knows: `async with Server(router) as server`."""

    def __init__(
        self,
        router: Router,
        *,
        host: str = "0.0.0.0",
        port: int = 0,
        clock: Clock = SYSTEM_CLOCK,
        idle_ms: int = IDLE_MS,
        grace_ms: int = GRACE_MS,
        also: int | None = None,
    ) -> None:
        self._router = router
        self._host = host
        self._port = port
        self._also = also
        self._clock = clock
        self._idle_ms = idle_ms
        self._grace_ms = grace_ms
        self._guests: dict[ServerConnection, None] = {}
        """In the order in which they came: what happens must not depend on a set's."""
        self.share = FairShare(clock)
        """Which requests held all others up."""
        self._hall = ServerLimits(self._guests, router.gates, share=self.share)
        self._descriptors_max = 0
        self._is_refusing = False
        self._on_stopping: list[Callable[[], object]] = []
        self._listeners: list[asyncio.Server] = []
        self._looking: asyncio.TimerHandle | None = None
        self.stopping = False
        self.tls: ssl.SSLContext | None = None
        """What connections are taken with, when it is set before the start."""

    @property
    def port(self) -> int:
        """Where it listens; chosen by the system when 0 was asked for."""
        return self._port

    @property
    def ports(self) -> list[int]:
        """Every port where it listens."""
        return [_port_of(listener) for listener in self._listeners]

    @property
    def peers(self) -> Set[Peer]:
        """Who is connected now."""
        return frozenset(self._guests)

    def note_slow_requests(self, share: FairShare) -> None:
        """Have slow requests noted where somebody else looks, too; before the start."""
        self.share = self._hall.share = share

    def on_stopping(self, callback: Callable[[], object]) -> None:
        """Call back when a stop begins, so that those who wait in handlers can be released."""
        self._on_stopping.append(callback)

    async def start(self) -> None:
        """Listen; ConfigError when the address cannot be had."""
        self._descriptors_max = descriptors_max()
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
                    "nobody is served at port %d, which some old clients use: %s",
                    self._also,
                    address_error(error),
                )
        self._look_later()

    async def _listen(self, port: int) -> None:
        listener = await asyncio.get_running_loop().create_server(
            self._welcome, self._host, port, backlog=BACKLOG, ssl=self.tls
        )
        self._listeners.append(listener)

    async def stop(self, grace_ms: int | None = None) -> None:
        """Take nothing new, answer what is in flight within the grace, flush, close."""
        if not self._listeners or self.stopping:
            return
        self.stopping = True
        for listener in self._listeners:
            listener.close()
        if self._looking is not None:
            self._looking.cancel()
        for guest in self._guests:
            guest.serve_with(error_replies.go_away)
        for callback in self._on_stopping:
            callback()
        tasks = [task for guest in self._guests for task in guest.in_flight]
        if tasks:
            grace_s = (self._grace_ms if grace_ms is None else grace_ms) / 1000
            await asyncio.wait(tasks, timeout=grace_s)
        await asyncio.gather(*(guest.close() for guest in self._guests))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _welcome(self) -> ServerConnection:
        return ServerConnection(self._router.dispatch, self._clock, self._arrived, self._hall)

    def _arrived(self, guest: ServerConnection) -> None:
        if self.stopping:
            guest.drop("the server stops")
            return
        if guest.descriptor >= self._descriptors_max - DESCRIPTORS_KEPT:
            self._turn_away(guest)
            return
        self._guests[guest] = None
        guest.on_close(self._left)

    def _left(self, guest: ServerConnection) -> None:
        self._guests.pop(guest, None)

    def _turn_away(self, guest: ServerConnection) -> None:
        """Without a descriptor to spare, files could not be opened: those who are here come first.

        The log hears of it once within a look around.
        """
        if not self._is_refusing:
            self._is_refusing = True
            log.error(
                "new connections are refused: %d are open, and of %d open files that this process"
                " may have %d are kept for its own (see ulimit -n)",
                len(self._guests),
                self._descriptors_max,
                DESCRIPTORS_KEPT,
            )
        guest.turn_away()

    def _look_later(self) -> None:
        pause_s = self._idle_ms / IDLE_CHECKS / 1000
        self._looking = asyncio.get_running_loop().call_later(pause_s, self._look_around)

    def _look_around(self) -> None:
        """Find out who has gone without a word."""
        self._is_refusing = False
        for guest in tuple(self._guests):
            guest.look(self._idle_ms)
        self._look_later()

    def _why_not(self, error: OSError | UnicodeError) -> str:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            return (
                f"port {self._port} is in use: stop the other process or choose another with --port"
            )
        return f"cannot listen on {self._host}:{self._port}: {address_error(error)}"


def _port_of(listener: asyncio.Server) -> int:
    port: int = listener.sockets[0].getsockname()[1]
    return port


def descriptors_max() -> int:
    """How many files and connections this process may have open."""
    try:
        import resource  # not on Windows
    except ImportError:
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
