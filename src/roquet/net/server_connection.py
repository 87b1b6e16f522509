"""Guest: a server's end of a connection; a client that does not read is not read either.

One that sends and sends is read a little at a time, so that others have their turn:

    read ──▶ serve for 5 ms ──▶ others ──▶ serve for 5 ms ──▶ others ──▶ read
                                                               ▲
                             what is served here has waited ───┘ since the first read
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from roquet.net.clock import Clock
from roquet.net.fair_share import FREQUENT_CODES
from roquet.net.peer_connection import Dispatch, PeerConnection
from roquet.net.request_limits import ReadBurst
from roquet.net.server_limits import PARTIAL_FREE, ServerLimits
from roquet.rules.fair_share import SLOW_MS
from roquet.wire.command import Command

SERVER_BUFFER_HIGH: Final = 1024 * 1024
"""More bytes than this that a client has not taken, and it is not served until it takes them: four
ordinary answers to pulls. Servers have many guests, so it is less than a client allows a server."""

READ_FULL: Final = 128 * 1024
"""Bytes of one read behind which more may wait in the socket; event loops read twice as many, and
uvloop up to 32 times without a pause."""

SLICE_SIZE: Final = 64 * 1024
"""Bytes of such a read that are taken apart at once: of the smallest requests, some milliseconds of
work. A large frame is taken as a whole."""

BURST_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes that may have waited in a socket: whoever sends on behind these may have sent it just
now."""

IDLE_CHECKS: Final = 4
"""How often a connection is looked at within its idle time."""


class ServerConnection(PeerConnection):
    """A server's end of a connection: a client that does not read is not read either."""

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        arrived: Callable[["ServerConnection"], object],
        hall: ServerLimits | None = None,
    ) -> None:
        self._hall = hall or ServerLimits()
        super().__init__(dispatch, clock, hall=self._hall)
        self._arrived = arrived
        self._taken_before = -1
        self._is_large = False
        """Whether it holds or wants a place for a large frame."""
        self._is_queued = False
        self._run: ReadBurst | None = None
        """What it sends and sends."""
        self._unread = b""
        """What came of that and was not looked at yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self._transport.set_write_buffer_limits(high=SERVER_BUFFER_HIGH)
        self._arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._unread = b""
        super().connection_lost(exc)
        self._hall.places.leave(self)

    def data_received(self, chunk: bytes) -> None:
        """Serve what came, and see whether it was too much."""
        if self._run is None and len(chunk) < READ_FULL:
            PeerConnection.data_received(
                self, chunk
            )  # super() would cost more than all that follows
        else:
            self._received_much(chunk)
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
                self.drop(f"it took none of its answers for {idle_ms // IDLE_CHECKS} ms")
            self._taken_before = taken
        elif self.idle_ms() >= idle_ms:
            self.hang_up(f"silent for {idle_ms} ms")
        elif self._is_stalling(idle_ms // IDLE_CHECKS):
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
        if self.is_full or self._is_queued or self._is_going_on or self.closed:
            return
        if self._unread:
            self._go_on_soon()
        elif self._put_off is None:
            self._transport.resume_reading()

    # Who sends and sends.

    def _received_much(self, chunk: bytes) -> None:
        """Serve some of it, and read no more in this turn."""
        run = self._run
        if run is None or run.size >= BURST_SIZE_MAX:
            run = self._run = ReadBurst(self._clock.monotonic_ms())
        run.size += len(chunk)
        run.is_full = len(chunk) >= READ_FULL
        self._unread += chunk
        self._serve_run(run, self._take_piece)
        self._go_on_soon()

    def _take_piece(self) -> None:
        """Serve some of what came."""
        size = max(SLICE_SIZE, self._reader.wanted - self._reader.pending)
        piece, self._unread = self._unread[:size], self._unread[size:]
        PeerConnection.data_received(self, piece)

    def _held(self, code: int, size: int, held_ms: int) -> None:
        """Have others served for as long as its request took, before its next one."""
        pause_ms = self._hall.share.pause_ms(code, size, self.address, held_ms)
        if pause_ms and not self._is_going_on and not self.closed:
            self._is_going_on = True
            self._transport.pause_reading()
            self._loop.call_later(pause_ms / 1000, self._go_on)

    def _watched(
        self, frame: Coroutine[Any, Any, bytes | None], command: Command
    ) -> Awaitable[bytes | None]:
        if command.code in FREQUENT_CODES:
            return frame
        note = partial(self._step_took, command.code, len(command.body))
        return self._hall.share.timed(frame, note)

    def _step_took(self, code: int, size: int, held_ms: int) -> None:
        if held_ms >= SLOW_MS:
            self._held(code, size, held_ms)

    def _go_on_soon(self) -> None:
        super()._go_on_soon()
        self._transport.pause_reading()

    def _go_on(self) -> None:
        run = self._run
        if run is None:
            super()._go_on()
        else:
            self._is_going_on = False
            self._serve_run(run, self._serve_more)
            if self._put_off is None and not self._unread:
                self._end_of(run, run.size, 2 if run.is_full else 0)
        self._read_on()

    def _serve_more(self) -> None:
        if self.is_full or self.closed:
            return
        if self._put_off is not None:
            self._serve_rest()
        elif self._unread and not self._is_queued:
            self._take_piece()
            if self._is_large or self._reader.pending > PARTIAL_FREE:
                self._see_to_place()

    def _serve_run(self, run: ReadBurst, serve: Callable[[], None]) -> None:
        """Serve requests that have waited since the run began: they may come too late."""
        turn = self._turn
        before = turn.count
        turn.lag(run.waited_ms(self._clock.monotonic_ms()))
        serve()
        turn.lag(0)
        run.count += turn.count - before

    def _end_of(self, run: ReadBurst, size: int, turns: int) -> None:
        """A run ends when nothing more of it was there when the loop looked again."""
        if self._run is run and run.size == size:
            if turns:
                self._loop.call_soon(self._end_of, run, size, turns - 1)
            else:
                self._run = None
