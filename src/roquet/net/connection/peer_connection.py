"""PeerConnection: one connection; sends calls, serves calls, and matches replies to calls.

Both ends are alike: ServerConnection and Channel are subclasses.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from roquet.log_records import logger
from roquet.model.errors import ConnectFailed, RemoteProtocolError
from roquet.net.address import join_address
from roquet.net.clock import Clock
from roquet.net.connection.pending_calls import PendingCalls, parse_reply
from roquet.net.limits.fair_share import FREQUENT_CODES
from roquet.net.limits.request_limits import RequestLimit
from roquet.net.limits.server_limits import UNLIMITED, ServerLimits
from roquet.net.router import CALL_TIMEOUT_MS, DeferredReply, DispatchResult, HeldReply, Peer, R
from roquet.net.tls import certificate_name, tls_error
from roquet.rules.admission import SLOW_MS
from roquet.wire.call import Call
from roquet.wire.codes import FLAG_ONEWAY, Language
from roquet.wire.command import Command
from roquet.wire.connection import Connection, ConnectionEvent, ReplyReceived
from roquet.wire.fields import encode_call
from roquet.wire.records.host_bytes import encode_host

if TYPE_CHECKING:
    from roquet.wire.signing import Signer

log = logger(__name__)

WRITE_BUFFER_HIGH: Final = 4 * 1024 * 1024
"""Unsent bytes above which we wait for the peer: a few replies to pulls."""

WRITE_TOGETHER_MAX: Final = 256 * 1024
"""Bytes of replies in one write: more are written before the next request is served."""

TURN_MS: Final = 5
"""Ms for which requests of one connection are served before others have their turn."""

LOOK_COUNT: Final = 8
"""Small requests served before the clock is first read: most reads bring fewer."""

LOOK_SIZE: Final = 8 * 1024
"""Bytes of a read below which its requests count as small."""

CLOSE_MS: Final = 1_000
"""Ms within which a peer must read its last bytes when the connection is closed."""

UNSENT_MAX: Final = 256 * 1024 * 1024
"""Unsent bytes at which a peer is dropped, before it exhausts our memory."""

END_S: Final = 0.2
"""Seconds to wait for a closing connection to end, so that the error can say why."""

_NOT_YET: Final = asyncio.Transport()
"""Stands in for the transport until the event loop provides one."""

Dispatch = Callable[[Command, Peer], DispatchResult]


class PeerConnection(asyncio.Protocol):
    """One end of a connection.

    Slots keep what a request touches together in memory: with thousands of connections, each is out
    of the processor's caches when its next request comes.
    """

    __slots__ = (
        "_clock",
        "_clock_read_ms",
        "_connection",
        "_dispatch",
        "_ended",
        "_full",
        "_has_ended",
        "_held_replies",
        "_host_bytes",
        "_is_scheduled",
        "_loop",
        "_on_close_callbacks",
        "_outbox",
        "_outbox_size",
        "_postponed",
        "_questions",
        "_reader",
        "_reason",
        "_received_ms",
        "_served_all",
        "_tasks",
        "_transport",
        "_turn",
        "_unsent_bytes",
        "_written",
        "address",
        "language",
        "version",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        signer: "Signer | None" = None,
        limits: ServerLimits = UNLIMITED,
    ) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport = _NOT_YET
        self._connection = Connection(encode=signer.encode_call if signer else encode_call)
        self._reader = self._connection.reader
        self._questions = PendingCalls(self._connection, clock)
        self._tasks: dict[asyncio.Future[Any], tuple[int, RequestLimit | None, int]] = {}
        """Tasks of requests being served: the flag, the limit that counts it, and the size."""
        self._held_replies: set[HeldReply] = set()
        """Further requests being served."""
        self._served_all: asyncio.Event | None = None
        """Created when a coroutine waits until none is."""
        self._postponed: deque[ConnectionEvent] | None = None
        """Events postponed behind a request whose reply the peer did not read, or that took
        long."""
        self._is_scheduled = False
        """Whether they are served as soon as others have had their turn."""
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._written = 0
        self._unsent_bytes = limits.tally
        self._turn = limits.turn
        self._full: asyncio.Event | None = None
        """Created when the peer stops reading, set when it reads again."""
        self._ended: asyncio.Event | None = None
        """Created when a coroutine waits for the end."""
        self._has_ended = False
        self._reason = ""
        self._on_close_callbacks: list[Callable[[Any], object]] = []
        self._received_ms = clock.monotonic_ms()
        self._clock_read_ms = 0
        """When the clock was last read while requests were served."""
        self._host_bytes = b""
        self.address = "?"
        self.language: int = Language.OTHER
        self.version = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    # For handlers: see router.Peer.

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, or is about to."""
        return self._transport.is_closing()

    @property
    def certificate_user(self) -> str | None:
        """Name in the peer's verified certificate; None without TLS or a certificate."""
        return certificate_name(self._transport.get_extra_info("peercert"))

    @property
    def host_bytes(self) -> bytes:
        """The peer's address as a record stores it."""
        if not self._host_bytes:
            self._host_bytes = encode_host(self.address)
        return self._host_bytes

    @property
    def is_full(self) -> bool:
        """Whether the peer does not read what is written to it."""
        return self._full is not None

    async def drain(self) -> None:
        """Wait until the peer has read most of what was written, or has gone."""
        while self._full is not None:
            await self._full.wait()

    async def call(self, call: Call[R], timeout_ms: int = CALL_TIMEOUT_MS) -> R:
        """Send a call and wait for its reply.

        Raises a CallError when none or a refusal comes in time.
        """
        if self._full is not None:
            await self.writable(timeout_ms)
        if self.closed:
            raise ConnectFailed(await self._how_it_ended())
        frame, answer = self._questions.ask(call, timeout_ms)
        self._send(frame)
        return parse_reply(call, await answer)

    async def _how_it_ended(self) -> str:
        """Why the connection ended: a server that refuses our certificate reports it late."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._end()
        return f"the connection to {self.address} is closed" + (
            f": {self._reason}" if self._reason else ""
        )

    def oneway(self, call: Call[Any]) -> None:
        """Send a one-way call; does nothing when the peer has gone."""
        if not self.closed:
            _, frame = self._connection.send_call(call, oneway=True)
            self._send(frame)

    def on_close(self, callback: Callable[[Any], object]) -> None:
        """Call back once when the connection has ended; at once when it already has."""
        if self._has_ended:
            callback(self)
        else:
            self._on_close_callbacks.append(callback)

    # For its owner.

    @property
    def in_flight(self) -> int:
        """Requests that are being served."""
        return len(self._tasks) + len(self._held_replies)

    async def served_all(self) -> None:
        """Wait until no request is being served."""
        while self.in_flight:
            if self._served_all is None:
                self._served_all = asyncio.Event()
            self._served_all.clear()
            await self._served_all.wait()

    @property
    def taken(self) -> int:
        """Bytes that the peer has read, as far as the transport can tell."""
        return self._written - self._transport.get_write_buffer_size()

    @property
    def unsent(self) -> int:
        """Bytes written that the peer has not read."""
        return self._transport.get_write_buffer_size()

    def idle_ms(self) -> int:
        """Ms since the last received bytes; 0 while a call is pending or a request is served."""
        if self._questions or self._tasks or self._held_replies:
            return 0
        return self._clock.monotonic_ms() - self._received_ms

    async def writable(self, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Wait until the peer has read most of what was sent.

        Raises ConnectFailed at the timeout.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.drain()
        except TimeoutError as error:
            raise ConnectFailed(f"{self.address} took nothing for {timeout_ms} ms") from error

    def serve_with(self, dispatch: Dispatch) -> None:
        """Serve requests with another function from now on."""
        self._dispatch = dispatch

    def hang_up(self, reason: str) -> None:
        """Close the connection once the peer has read what is written."""
        if not self.closed:
            self._flush()
            self._reason = reason
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Abort the connection, with a log line."""
        log.warning(
            "%s: connection dropped: %s", self.address, reason, extra={"client": self.address}
        )
        self._reason = reason
        self._transport.abort()

    async def close(self, within_ms: int = CLOSE_MS) -> None:
        """Close the connection and wait until it has ended; abort it after `within_ms`.

        It is aborted at once when the caller is cancelled.
        """
        self.hang_up("we closed the connection")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_ms / 1000):
                    await self._end()
        finally:
            if not self._has_ended:
                self._transport.abort()
        await self._end()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport of an established connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        name = transport.get_extra_info("peername")
        if name:  # it may have gone already
            self.address = join_address(name)

    def data_received(self, chunk: bytes) -> None:
        """Serve received requests; all replies that are ready are written together."""
        self._received_ms = self._clock.monotonic_ms()
        is_small = len(chunk) < LOOK_SIZE and not self._reader.pending
        try:
            events = self._connection.receive_data(chunk)
            self._turn.count += len(events)
            if self._postponed is not None:
                self._postponed.extend(events)
            else:
                self._serve(events, self._received_ms, LOOK_COUNT if is_small else 0)
        except RemoteProtocolError as error:
            fields = {"client": self.address}
            log.warning("%s: connection closed: %s", self.address, error, extra=fields)
            self.hang_up(f"the peer broke the protocol: {error}")

    def pause_writing(self) -> None:
        """Note that the peer does not read what is written."""
        if self._full is None:
            self._full = asyncio.Event()

    def resume_writing(self) -> None:
        """Go on with postponed requests: the peer has read most of what was written."""
        full, self._full = self._full, None
        if full is not None:
            full.set()
        self._serve_postponed()

    def eof_received(self) -> None:
        """Write the replies that wait for their turn: the transport closes next."""
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail pending calls and cancel what is served: the connection has ended."""
        self._reason = self._reason or (_why(exc) if exc else "the peer closed the connection")
        reason = self._reason
        log.debug("%s: %s", self.address, reason, extra={"client": self.address})
        self._questions.lose(f"{self.address}: {reason}")
        for task, (flag, _, _) in self._tasks.items():
            if not flag & FLAG_ONEWAY:
                task.cancel()
        for held in tuple(self._held_replies):
            if not held.request.flag & FLAG_ONEWAY:
                held.is_over = True
                self._leave(held)
                held.cancelled(held)
        self._has_ended = True
        self._postponed = None
        if self._ended is not None:
            self._ended.set()
        self.resume_writing()
        for callback in self._on_close_callbacks:
            callback(self)
        self._on_close_callbacks.clear()

    # Serving.

    def _serve(self, events: Iterable[ConnectionEvent], begun_ms: int, left: int = 0) -> None:
        """Serve events in order; postpone the rest when the peer does not read the replies.

        The rest is also postponed after TURN_MS, since other connections wait. The first `left`
        frequent requests are served without reading the clock.
        """
        answers: list[bytes] = []
        size, self._clock_read_ms = 0, begun_ms
        rest = iter(events)
        for event in rest:
            if isinstance(event, ReplyReceived):
                self._questions.answer(event.command)
                continue
            if (answer := self._answer_to(event)) is not None:
                answers.append(answer)
                size += len(answer)
                if size > WRITE_TOGETHER_MAX:
                    self._write(answers)
                    answers, size = [], 0
                    if self._full is not None:
                        break
            left -= 1
            if (left < 0 or event.code not in FREQUENT_CODES) and self._is_over(event, begun_ms):
                break
        else:
            self._end_turn(answers)
            return
        self._end_turn(answers, rest)

    def _is_over(self, request: Command, begun_ms: int) -> bool:
        """Whether other connections have their turn after this request."""
        now_ms = self._clock.monotonic_ms()
        held_ms, self._clock_read_ms = now_ms - self._clock_read_ms, now_ms
        if held_ms >= SLOW_MS:
            self._held(request.code, len(request.body), held_ms)
        return now_ms - begun_ms >= TURN_MS

    def _held(self, code: int, size: int, held_ms: int) -> None:
        """Called for a request that held the loop; servers override it."""

    def _answer_to(self, command: Command) -> bytes | None:
        self.language = command.language
        self.version = command.version
        answer = self._dispatch(command, self)
        if answer is None or isinstance(answer, bytes):
            return answer
        if isinstance(answer, HeldReply):
            self._hold(answer)
        else:
            self._serve_later(answer, command)
        return None

    def _end_turn(self, answers: list[bytes], rest: Iterable[ConnectionEvent] = ()) -> None:
        if answers and self._turn.crowded:  # peers that wait for them send nothing more meanwhile
            if not self._outbox:
                self._turn.at_end.append(self._flush)
            self._outbox += answers
        elif answers:
            self._write(answers)
        if rest and (postponed := deque(rest)):
            self._postponed = postponed
            if self._full is None:
                self._schedule()

    def _serve_postponed(self) -> None:
        """Serve postponed events for one turn."""
        postponed, self._postponed = self._postponed, None
        if postponed is not None and not self.closed:
            self._serve(postponed, self._clock.monotonic_ms())

    def _schedule(self) -> None:
        """Serve postponed events as soon as others have had their turn."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._is_scheduled = False
        if self._full is None:  # else when the peer reads its replies
            self._serve_postponed()

    def _serve_later(self, later: DeferredReply, command: Command) -> None:
        gate, size = later.gate, later.size
        served = self._loop.create_task(self._answer(self._timed_reply(later.frame, command)))
        served.add_done_callback(self._served)
        self._tasks[served] = (command.flag, gate, size)
        if gate is not None:
            gate.enter(self, size)

    def _timed_reply(
        self, frame: Coroutine[Any, Any, bytes | None], _command: Command
    ) -> Awaitable[bytes | None]:
        """The coroutine of a reply; servers wrap it to measure how long it holds the loop."""
        return frame

    async def _answer(self, later: Awaitable[bytes | None]) -> None:
        """Send the reply at once, so that the next one sees whether the peer still reads."""
        frame = await later
        if frame is not None and not self.closed:
            self._send(frame)

    def _hold(self, held: HeldReply) -> None:
        self._held_replies.add(held)
        if held.gate is not None:
            held.gate.enter(self, held.size)
        held.begin(self._decided)

    def _decided(self, held: HeldReply, reached: bool) -> None:
        """Send a held reply, or go on waiting for it."""
        self._leave(held)
        answer = held.frame(held, reached)
        if answer is None or isinstance(answer, bytes):
            if answer is not None and not self.closed:
                self._send(answer)
        else:
            self._serve_later(DeferredReply(answer, held.gate, held.size), held.request)

    def _leave(self, held: HeldReply) -> None:
        self._held_replies.discard(held)
        if held.gate is not None:
            held.gate.leave(self, held.size)
        if self._served_all is not None:
            self._served_all.set()

    def _served(self, task: asyncio.Future[None]) -> None:
        _, gate, size = self._tasks.pop(task)
        if gate is not None:
            gate.leave(self, size)
        if self._served_all is not None:
            self._served_all.set()
        if not task.cancelled():
            task.result()  # raises a fault of our own, for the event loop to log

    async def _end(self) -> None:
        if not self._has_ended:
            if self._ended is None:
                self._ended = asyncio.Event()
            await self._ended.wait()

    def _send(self, frame: bytes) -> None:
        """Write a frame together with the others of this iteration of the event loop."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(frame)
        self._outbox_size += len(frame)
        if self._outbox_size > WRITE_TOGETHER_MAX:
            self._flush()

    def _flush(self) -> None:
        if self._outbox:
            frames, self._outbox, self._outbox_size = self._outbox, [], 0
            if not self.closed:
                self._write(frames)

    def _write(self, frames: list[bytes]) -> None:
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        size = len(data)
        self._written += size
        self._transport.write(data)
        self._unsent_bytes.left -= size
        if self._unsent_bytes.left < 0:
            self._unsent_bytes.settle()
        if self._full is not None and self._transport.get_write_buffer_size() > UNSENT_MAX:
            self.drop(f"{UNSENT_MAX} bytes wait for it")


def _why(error: Exception) -> str:
    """Why a connection ended.

    A server that wants a certificate says so only after the handshake.
    """
    return tls_error(error) if isinstance(error, ssl.SSLError) else str(error)
