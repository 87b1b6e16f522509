"""ServerConnection: a server's end of a connection, with backpressure and turns.

A client that does not read its replies is not read either. A client that sends without a pause is
served for some milliseconds at a time, so that other connections have their turn:

    read ──▶ serve for 5 ms ──▶ others ──▶ serve for 5 ms ──▶ others ──▶ read
                                                               ▲
                        requests served here have waited ──────┘ since the first read
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from roquet.net.clock import Clock
from roquet.net.connection.peer_connection import (
    TURN_MS,
    WRITE_TOGETHER_MAX,
    Dispatch,
    PeerConnection,
)
from roquet.net.limits.fair_share import FREQUENT_CODES
from roquet.net.limits.request_limits import ReadBurst
from roquet.net.limits.server_limits import PARTIAL_FREE, ServerLimits
from roquet.net.router import PlainRequest, Router
from roquet.rules.admission import SLOW_MS
from roquet.wire.command import Command

SERVER_BUFFER_HIGH: Final = 1024 * 1024
"""Unsent bytes above which a client is not served until it reads: four ordinary replies to pulls.
Servers have many connections, so it is less than a client allows a server."""

READ_FULL: Final = 128 * 1024
"""Bytes of one read above which more may wait in the socket. Event loops read up to twice as many,
and uvloop up to 32 times without a pause."""

SLICE_SIZE: Final = 64 * 1024
"""Bytes of such a read that are decoded at once: some milliseconds of work for the smallest
requests. A larger frame is decoded as a whole."""

BURST_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes that may have waited in a socket. What follows them may have been sent just now, so a new
burst begins."""

IDLE_CHECKS: Final = 4
"""Checks of a connection within its idle time."""


class ServerConnection(PeerConnection):
    """A server's end of a connection."""

    __slots__ = (
        "_crowded_in",
        "_is_large",
        "_is_queued",
        "_limits",
        "_on_connect",
        "_plain",
        "_source",
        "_taken_before",
        "_unread",
        "burst",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        arrived: Callable[["ServerConnection"], object],
        limits: ServerLimits | None = None,
        source: str | None = None,
        plain: Router | None = None,
    ) -> None:
        """`source` is the client's `ip:port` as a proxy names it; None takes the socket's.

        `plain` serves plain requests by its short ways; None dispatches them.
        """
        self._limits = limits or ServerLimits()
        super().__init__(dispatch, clock, limits=self._limits)
        self._on_connect = arrived
        self._source = source
        self._plain = plain
        self._taken_before = -1
        self._is_large = False
        """Whether it holds or waits for a share of the budget for large frames."""
        self._is_queued = False
        self._crowded_in = 0
        """The crowded iteration of the loop in which it was read last; see LoopLag."""
        self.burst: ReadBurst | None = None
        """Full reads that are being served in slices; None while each read is served at once."""
        self._unread = b""
        """Bytes of the burst that are not decoded yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a client that has connected."""
        super().connection_made(transport)
        if self._source is not None:
            self.address = self._source
        self._transport.set_write_buffer_limits(high=SERVER_BUFFER_HIGH)
        self._on_connect(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a client that has gone, and release its share of the budget."""
        self._unread = b""
        super().connection_lost(exc)
        self._limits.large_frames.leave(self)

    def data_received(self, chunk: bytes) -> None:
        """Serve received requests; a burst is served in slices."""
        if (self.burst is None and len(chunk) < READ_FULL) or (
            self._reader.pending + len(chunk) < self._reader.wanted and not self._unread
        ):  # few requests; or none, only more of a large frame
            self._serve_read(chunk)
        else:
            self._receive_burst(chunk)
        if self._received_ms >= self._turn.check_ms:
            self._turn.look(self._clock.monotonic_ms())
        if self._turn.crowded:
            self._read_in_crowd(self._turn.crowded)
        if self._is_large or self._reader.pending > PARTIAL_FREE:
            self._reserve_frame()

    def _serve_read(self, chunk: bytes) -> None:
        if self._plain is not None:
            chunk = self._serve_plain(self._plain, chunk)
        if chunk:
            PeerConnection.data_received(
                self, chunk
            )  # super() would cost more than all that follows

    def _serve_plain(self, router: Router, chunk: bytes) -> bytes:
        """Serve the plain requests with which a read begins; gives what follows them.

        What follows a turn, or replies that the peer does not read, is kept for later.
        """
        reader = self._reader
        if self._postponed is not None or (reader.pending and not reader.is_ended_by(chunk)):
            return chunk
        if reader.pending:
            chunk = reader.take() + chunk
        begun_ms: int | None = None
        while chunk and (requests := router.read_plain(chunk, reader.size_max)):
            end, is_plain = self._answer_plain(router, requests)
            chunk = chunk[end:]
            if not is_plain or not chunk:
                break
            begun_ms = begun_ms or self._received_ms
            is_over = self._received_ms - begun_ms >= TURN_MS
            # In a crowded iteration nothing is written before its end.
            if is_over or self.is_full or self._turn.crowded:
                self._keep(chunk)
                return b""
        return chunk

    def _answer_plain(self, router: Router, requests: Sequence[PlainRequest]) -> tuple[int, bool]:
        """Answer plain requests up to one that is not, or to replies that are enough for one write.

        Gives where those that were answered end in their chunk, and whether all of them were plain.
        """
        answers: list[bytes] = []
        end = size = 0
        answer: bytes | None = b""
        for request in requests:
            self.language, self.version = request.language, request.version
            answer = router.serve_plain(request, self)
            if answer is None:
                break
            answers.append(answer)
            end = request.end
            size += len(answer)
            if size > WRITE_TOGETHER_MAX:
                break
        if answers:
            self._received_ms = self._clock.monotonic_ms()
            self._turn.count += len(answers)
            self._end_turn(answers)
        return end, answer is not None

    def _keep(self, chunk: bytes) -> None:
        """Serve the rest of a read when others have had their turn and the peer reads on."""
        if self.closed:
            return
        if self.burst is None:
            self.burst = ReadBurst(self._clock.monotonic_ms())
        self._unread = chunk + self._unread
        self._schedule()

    def serve_with(self, dispatch: Dispatch) -> None:
        """Serve requests with another function from now on, plain ones as well."""
        super().serve_with(dispatch)
        self._plain = None

    def pause_writing(self) -> None:
        """Stop reading: the peer does not read its replies."""
        super().pause_writing()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again: the peer has read most of its replies."""
        super().resume_writing()
        self._taken_before = -1
        if self.burst is not None:
            self.burst.resume(self._clock.monotonic_ms())
        self._read_on()

    def admit(self) -> None:
        """Read on: the budget has room for the frame that the peer has begun."""
        self._is_queued = False
        self._read_on()

    def look(self, idle_ms: int) -> None:
        """Close the connection when the peer is silent for `idle_ms`, or reads or ends nothing."""
        if self.is_full or self.closed:  # one that is closed waits until the peer has read all
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
        """File descriptor of its socket: the lowest free number, about as many are in use."""
        socket = self._transport.get_extra_info("socket")
        return 0 if socket is None else socket.fileno()

    def reject(self) -> None:
        """Abort a connection for which there is no room, without a log line."""
        self._reason = "there are too many connections"
        self._transport.abort()

    def _read_in_crowd(self, number: int) -> None:
        """Read no more in a crowded iteration of the loop in which it was read before."""
        if self._crowded_in == number and not self.closed:
            self._schedule()
        self._crowded_in = number

    def _is_stalling(self, limit_ms: int) -> bool:
        return (
            self._is_large
            and not self._is_queued
            and self._limits.large_frames.has_waiting
            and self._clock.monotonic_ms() - self._received_ms >= limit_ms
        )

    def _reserve_frame(self) -> None:
        """Reserve budget for a large frame that has begun, or wait for it.

        Release it afterwards.
        """
        pending, large_frames = self._reader.pending, self._limits.large_frames
        self._is_large = pending > PARTIAL_FREE
        if not self._is_large:
            large_frames.leave(self)
        elif not self.closed and not large_frames.take(self, self._reader.wanted, pending):
            self._is_queued = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Read requests again, unless something still holds the connection up."""
        if self.is_full or self._is_queued or self._is_scheduled or self.closed:
            return
        if self._unread:
            self._schedule()
        elif self._postponed is None:
            self._transport.resume_reading()

    # Bursts.

    def _receive_burst(self, chunk: bytes) -> None:
        """Serve a slice, and read no more in this turn."""
        run = self.burst
        if run is None or run.size >= BURST_SIZE_MAX:
            run = self.burst = ReadBurst(self._clock.monotonic_ms())
        run.size += len(chunk)
        run.is_full = len(chunk) >= READ_FULL
        self._unread += chunk
        self._serve_burst(run, self._serve_more)
        self._schedule()

    def _serve_slice(self) -> None:
        size = max(SLICE_SIZE, self._reader.wanted - self._reader.pending)
        piece, self._unread = self._unread[:size], self._unread[size:]
        self._serve_read(piece)

    def _held(self, code: int, size: int, held_ms: int) -> None:
        """Serve others for as long as its request held the loop, before its next one."""
        pause_ms = self._limits.share.pause_ms(code, size, self.address, held_ms)
        if pause_ms and not self._is_scheduled and not self.closed:
            self._is_scheduled = True
            self._transport.pause_reading()
            self._loop.call_later(pause_ms / 1000, self._resume)

    def _timed_reply(
        self, frame: Coroutine[Any, Any, bytes | None], command: Command
    ) -> Awaitable[bytes | None]:
        if command.code in FREQUENT_CODES:
            return frame
        note = partial(self._step_took, command.code, len(command.body))
        return self._limits.share.timed(frame, note)

    def _step_took(self, code: int, size: int, held_ms: int) -> None:
        if held_ms >= SLOW_MS:
            self._held(code, size, held_ms)

    def _schedule(self) -> None:
        super()._schedule()
        self._transport.pause_reading()

    def _resume(self) -> None:
        run = self.burst
        if run is None:
            super()._resume()
        else:
            self._is_scheduled = False
            self._serve_burst(run, self._serve_more)
            if self._postponed is None and not self._unread:
                self._end_burst(run, run.size, 2 if run.is_full else 0)
        self._read_on()

    def _serve_more(self) -> None:
        if self.is_full or self.closed:
            return
        if self._postponed is not None:
            self._serve_postponed()
        elif self._unread and not self._is_queued:
            self._serve_slice()
            if self._is_large or self._reader.pending > PARTIAL_FREE:
                self._reserve_frame()

    def _serve_burst(self, run: ReadBurst, serve: Callable[[], None]) -> None:
        """Serve requests that have waited since the burst began: limits may refuse them as late."""
        turn = self._turn
        before = turn.count
        turn.lag(run.waited_ms(self._clock.monotonic_ms()))
        serve()
        turn.lag(0)
        run.count += turn.count - before

    def _end_burst(self, run: ReadBurst, size: int, turns: int) -> None:
        """End the burst when the loop has polled again and nothing more came."""
        if self.burst is run and run.size == size:
            if turns:
                self._loop.call_soon(self._end_burst, run, size, turns - 1)
            else:
                self.burst = None
