"""Listen, drive connections, hand calls to the router, stop gracefully."""

import asyncio
import errno
import logging
import ssl
from collections.abc import Callable, Set
from typing import Final, Self

from roquet.model.errors import ConfigError
from roquet.net import middleware
from roquet.net.address import failure
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.link import Dispatch, Link
from roquet.net.router import Peer, Router

log = logging.getLogger(__name__)

IDLE_MS: Final = 120_000
"""A peer silent for so long has gone without a word: every client sends a heartbeat each 30 s."""

GRACE_MS: Final = 3_000
"""How long a stop waits for what is in flight: sends end in ms, long polls are released."""

BACKLOG: Final = 1_024
"""Connections that may queue up: after a restart all clients come at once."""

LOOKS_PER_IDLE: Final = 4
"""How often a connection is looked at within its idle time."""


class Guest(Link):
    """A server's end of a connection: a client that does not read is not read either."""

    def __init__(self, dispatch: Dispatch, clock: Clock, arrived: Callable[["Guest"], object]):
        super().__init__(dispatch, clock)
        self._arrived = arrived
        self._taken_before = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self._arrived(self)

    def pause_writing(self) -> None:
        """The peer does not take its answers: take no more of its requests."""
        super().pause_writing()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has taken most of its answers."""
        super().resume_writing()
        self._taken_before = -1
        if not self.closed:
            self._transport.resume_reading()

    def look(self, idle_ms: int) -> None:
        """Close the connection when the peer has gone silent or takes nothing."""
        if not self._room.is_set():
            taken = self.taken
            if taken == self._taken_before:
                self.drop(f"it took none of its answers for {idle_ms // LOOKS_PER_IDLE} ms")
            self._taken_before = taken
        elif self.idle_ms() >= idle_ms:
            self.hang_up(f"silent for {idle_ms} ms")


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
    ) -> None:
        self._router = router
        self._host = host
        self._port = port
        self._clock = clock
        self._idle_ms = idle_ms
        self._grace_ms = grace_ms
        self._guests: set[Guest] = set()
        self._on_stopping: list[Callable[[], object]] = []
        self._listener: asyncio.Server | None = None
        self._looking: asyncio.TimerHandle | None = None
        self.stopping = False
        self.tls: ssl.SSLContext | None = None
        """What connections are taken with, when it is set before the start."""

    @property
    def port(self) -> int:
        """Where it listens; chosen by the system when 0 was asked for."""
        return self._port

    @property
    def peers(self) -> Set[Peer]:
        """Who is connected now."""
        return frozenset(self._guests)

    def on_stopping(self, callback: Callable[[], object]) -> None:
        """Call back when a stop begins, so that those who wait in handlers can be released."""
        self._on_stopping.append(callback)

    async def start(self) -> None:
        """Listen; ConfigError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                self._welcome, self._host, self._port, backlog=BACKLOG, ssl=self.tls
            )
        except (OSError, UnicodeError) as error:
            raise ConfigError(self._why_not(error)) from error
        self._listener = listener
        self._port = listener.sockets[0].getsockname()[1]
        self._look_later()

    async def stop(self, grace_ms: int | None = None) -> None:
        """Take nothing new, answer what is in flight within the grace, flush, close."""
        if self._listener is None or self.stopping:
            return
        self.stopping = True
        self._listener.close()
        if self._looking is not None:
            self._looking.cancel()
        for guest in self._guests:
            guest.serve_with(middleware.go_away)
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

    def _welcome(self) -> Guest:
        return Guest(self._router.dispatch, self._clock, self._arrived)

    def _arrived(self, guest: Guest) -> None:
        if self.stopping:
            guest.drop("the server stops")
            return
        self._guests.add(guest)
        guest.on_close(self._guests.discard)

    def _look_later(self) -> None:
        pause_s = self._idle_ms / LOOKS_PER_IDLE / 1000
        self._looking = asyncio.get_running_loop().call_later(pause_s, self._look_around)

    def _look_around(self) -> None:
        """Find out who has gone without a word."""
        for guest in tuple(self._guests):
            guest.look(self._idle_ms)
        self._look_later()

    def _why_not(self, error: OSError | UnicodeError) -> str:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            return (
                f"port {self._port} is in use: stop the other process or choose another with --port"
            )
        return f"cannot listen on {self._host}:{self._port}: {failure(error)}"
