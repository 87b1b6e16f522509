"""Guest: a server's end of a connection; a client that does not read is not read either."""

import asyncio
from collections.abc import Callable
from typing import Final

from roquet.net.clock import Clock
from roquet.net.hall import PARTIAL_FREE, Hall
from roquet.net.link import Dispatch, Link

GUEST_BUFFER_HIGH: Final = 1024 * 1024
"""More bytes than this that a client has not taken, and it is not served until it takes them: four
ordinary answers to pulls. Servers have many guests, so it is less than a client allows a server."""

LOOKS_PER_IDLE: Final = 4
"""How often a connection is looked at within its idle time."""


class Guest(Link):
    """A server's end of a connection: a client that does not read is not read either."""

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        arrived: Callable[["Guest"], object],
        hall: Hall | None = None,
    ) -> None:
        self._hall = hall or Hall()
        super().__init__(dispatch, clock, hall=self._hall)
        self._arrived = arrived
        self._taken_before = -1
        self._is_large = False
        """Whether it holds or wants a place for a large frame."""
        self._is_queued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self._transport.set_write_buffer_limits(high=GUEST_BUFFER_HIGH)
        self._arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        super().connection_lost(exc)
        self._hall.places.leave(self)

    def data_received(self, chunk: bytes) -> None:
        """Serve what came, and see whether it was too much."""
        Link.data_received(self, chunk)  # super() would cost more than all that follows
        if self._heard_ms >= self._turn.look_ms:
            self._turn.look(self._clock.monotonic_ms())
        if self._is_large or self._reader.pending > PARTIAL_FREE:
            self._see_to_place()

    def pause_writing(self) -> None:
        """The peer does not take its answers: take no more of its requests."""
        super().pause_writing()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has taken most of its answers."""
        super().resume_writing()
        self._taken_before = -1
        self._read_on()

    def admit(self) -> None:
        """There is a place for the frame that the peer has begun."""
        self._is_queued = False
        self._read_on()

    def look(self, idle_ms: int) -> None:
        """Close the connection when the peer has gone silent or takes nothing."""
        if self.is_full:
            taken = self.taken
            if taken == self._taken_before:
                self.drop(f"it took none of its answers for {idle_ms // LOOKS_PER_IDLE} ms")
            self._taken_before = taken
        elif self.idle_ms() >= idle_ms:
            self.hang_up(f"silent for {idle_ms} ms")
        elif self._is_stalling(idle_ms // LOOKS_PER_IDLE):
            self.drop("it does not end a large frame, and others wait for its place")

    @property
    def descriptor(self) -> int:
        """The number of its socket: always the lowest free one, so it says how many are taken."""
        socket = self._transport.get_extra_info("socket")
        return 0 if socket is None else socket.fileno()

    def turn_away(self) -> None:
        """End a connection for which there is no room, without a word in the log."""
        self._reason = "there are too many connections"
        self._transport.abort()

    def _is_stalling(self, limit_ms: int) -> bool:
        return (
            self._is_large
            and not self._is_queued
            and self._hall.places.are_wanted
            and self._clock.monotonic_ms() - self._heard_ms >= limit_ms
        )

    def _see_to_place(self) -> None:
        """Have a place for the large frame of which some came, or wait for one; give it back."""
        pending, places = self._reader.pending, self._hall.places
        self._is_large = pending > PARTIAL_FREE
        if not self._is_large:
            places.leave(self)
        elif not self.closed and not places.take(self, self._reader.wanted, pending):
            self._is_queued = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Take requests again, unless there is a reason not to."""
        if not (self.is_full or self._is_queued or self.closed):
            self._transport.resume_reading()
