"""Link: one connection; calls go out, calls come in, answers find their questions.

Both ends are alike: a server's guests and a client's channel are links.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Set
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, cast

from roquet.log_records import logger
from roquet.model.errors import ConnectFailed, RemoteProtocolError
from roquet.net.address import join_address
from roquet.net.clock import Clock
from roquet.net.fair_share import FREQUENT_CODES
from roquet.net.pending_calls import PendingCalls, parse_reply
from roquet.net.request_limits import RequestLimit
from roquet.net.router import CALL_TIMEOUT_MS, DeferredReply, DispatchResult, Peer, R
from roquet.net.server_limits import UNLIMITED, ServerLimits
from roquet.net.tls import tls_error
from roquet.rules.fair_share import SLOW_MS
from roquet.wire.call import Call
from roquet.wire.codes import FLAG_ONEWAY, Language
from roquet.wire.command import Command
from roquet.wire.connection import Connection, ConnectionEvent, ReplyReceived
from roquet.wire.fields import encode_call
from roquet.wire.records.host_bytes import encode_host
from roquet.wire.signing import Signer

log = logger(__name__)

WRITE_BUFFER_HIGH: Final = 4 * 1024 * 1024
"""More bytes than this that a peer has not taken, and we wait for it: a few pulls' replies."""

WRITE_TOGETHER_MAX: Final = 256 * 1024
"""Bytes of answers that leave in one write: more are sent before the next request is served."""

TURN_MS: Final = 5
"""For how long requests of one connection are served before others have their turn."""

LOOK_COUNT: Final = 8
"""Small requests before the first look at the clock: most reads bring fewer."""

LOOK_SIZE: Final = 8 * 1024
"""Bytes of a read whose requests are small."""

CLOSE_MS: Final = 1_000
"""How long a peer may take to take its last bytes."""

UNSENT_MAX: Final = 256 * 1024 * 1024
"""A peer that lets so many bytes pile up is dropped before it takes our memory."""

END_S: Final = 0.2
"""A connection that is about to end has ended by then, mostly at once, and says why."""

_NOT_YET: Final = asyncio.Transport()
"""What a link has before the event loop gives it a real one."""

Dispatch = Callable[[Command, Peer], DispatchResult]


class PeerConnection(asyncio.Protocol):
    """One end of a connection."""

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        signer: Signer | None = None,
        hall: ServerLimits = UNLIMITED,
    ) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport = _NOT_YET
        self._connection = Connection(encode=signer.encode_call if signer else encode_call)
        self._reader = self._connection.reader
        self._questions = PendingCalls(self._connection, clock)
        self._tasks: dict[asyncio.Task[None], tuple[int, RequestLimit | None, int]] = {}
        """What is being served: the request's flag, where it waits, and its size."""
        self._put_off: deque[ConnectionEvent] | None = None
        """What came behind a request whose answer the peer did not take, or that took long."""
        self._is_going_on = False
        """Whether that is served as soon as others have had their turn."""
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._written = 0
        self._tally = hall.tally
        self._turn = hall.turn
        self._full: asyncio.Event | None = None
        """Made when the peer takes nothing, set when it does again."""
        self._ended: asyncio.Event | None = None
        """Made when somebody wants to see the end."""
        self._has_ended = False
        self._reason = ""
        self._gone: list[Callable[[Any], object]] = []
        self._heard_ms = clock.monotonic_ms()
        self._looked_ms = 0
        """When the clock was looked at last while requests were served."""
        self.address = "?"
        self.language: int = Language.OTHER
        self.version = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    # What a handler may know and ask: see router.Peer.

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, or is about to."""
        return self._transport.is_closing()

    @cached_property
    def host_bytes(self) -> bytes:
        """The peer's address as a record holds it."""
        return encode_host(self.address)

    @property
    def is_full(self) -> bool:
        """Whether the peer does not take what is written to it."""
        return self._full is not None

    async def drain(self) -> None:
        """Wait until the peer has taken most of that, or has gone."""
        while self._full is not None:
            await self._full.wait()

    async def call(self, call: Call[R], timeout_ms: int = CALL_TIMEOUT_MS) -> R:
        """Ask the peer; raises a CallError when no good answer comes in time."""
        if self._full is not None:
            await self.writable(timeout_ms)
        if self.closed:
            raise ConnectFailed(await self._how_it_ended())
        frame, answer = self._questions.ask(call, timeout_ms)
        self._send(frame)
        return parse_reply(call, await answer)

    async def _how_it_ended(self) -> str:
        """Why nothing can be asked any more: a server that refuses our certificate says so late."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._end()
        return f"the connection to {self.address} is closed" + (
            f": {self._reason}" if self._reason else ""
        )

    def oneway(self, call: Call[Any]) -> None:
        """Tell the peer something; nothing happens when it has gone."""
        if not self.closed:
            _, frame = self._connection.send_call(call, oneway=True)
            self._send(frame)

    def on_close(self, callback: Callable[[Any], object]) -> None:
        """Call back once when the connection has ended; at once when it already has."""
        if self._has_ended:
            callback(self)
        else:
            self._gone.append(callback)

    # What its owner does with it.

    @property
    def in_flight(self) -> Set[asyncio.Task[None]]:
        """Requests that are being served."""
        return self._tasks.keys()

    @property
    def taken(self) -> int:
        """How many bytes the peer has taken from us."""
        return self._written - self._transport.get_write_buffer_size()

    @property
    def unsent(self) -> int:
        """How many bytes wait for the peer."""
        return self._transport.get_write_buffer_size()

    def idle_ms(self) -> int:
        """For how long nothing was heard, nothing asked and nothing served."""
        if self._questions or self._tasks:
            return 0
        return self._clock.monotonic_ms() - self._heard_ms

    async def writable(self, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Wait until the peer has taken most of what was sent; ConnectFailed when it does not."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.drain()
        except TimeoutError as error:
            raise ConnectFailed(f"{self.address} took nothing for {timeout_ms} ms") from error

    def serve_with(self, dispatch: Dispatch) -> None:
        """Have requests answered by somebody else from now on."""
        self._dispatch = dispatch

    def hang_up(self, reason: str) -> None:
        """End the connection once the peer has taken what is written."""
        if not self.closed:
            self._flush()
            self._reason = reason
            self._transport.close()

    def drop(self, reason: str) -> None:
        """End the connection at once."""
        log.warning("%s: connection dropped: %s", self.address, reason)
        self._reason = reason
        self._transport.abort()

    async def close(self, within_ms: int = CLOSE_MS) -> None:
        """End the connection and wait until it has ended."""
        self.hang_up("we closed the connection")
        try:
            async with asyncio.timeout(within_ms / 1000):
                await self._end()
        except TimeoutError:
            self._transport.abort()
            await self._end()

    # What the event loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        name = transport.get_extra_info("peername")
        if name:  # it may have gone already
            self.address = join_address(name)

    def data_received(self, chunk: bytes) -> None:
        """Serve what came; all answers that are ready leave together."""
        self._heard_ms = self._clock.monotonic_ms()
        is_small = len(chunk) < LOOK_SIZE and not self._reader.pending
        try:
            events = self._connection.receive_data(chunk)
            self._turn.count += len(events)
            if self._put_off is not None:
                self._put_off.extend(events)
            else:
                self._serve(events, self._heard_ms, LOOK_COUNT if is_small else 0)
        except RemoteProtocolError as error:
            log.warning("%s: connection closed: %s", self.address, error)
            self.hang_up(f"the peer broke the protocol: {error}")

    def pause_writing(self) -> None:
        """The peer does not take what we write."""
        if self._full is None:
            self._full = asyncio.Event()

    def resume_writing(self) -> None:
        """The peer has taken most of what was written: go on with what it asked meanwhile."""
        full, self._full = self._full, None
        if full is not None:
            full.set()
        self._serve_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: nobody will answer us, and nobody waits for our answers."""
        self._reason = self._reason or (_why(exc) if exc else "the peer closed the connection")
        reason = self._reason
        log.debug("%s: %s", self.address, reason)
        self._questions.lose(f"{self.address}: {reason}")
        for task, (flag, _, _) in self._tasks.items():
            if not flag & FLAG_ONEWAY:
                task.cancel()
        self._has_ended = True
        self._put_off = None
        if self._ended is not None:
            self._ended.set()
        self.resume_writing()
        for callback in self._gone:
            callback(self)
        self._gone.clear()

    # How it is done.

    def _serve(self, events: Iterable[ConnectionEvent], begun_ms: int, left: int = 0) -> None:
        """Serve them in turn; the rest waits when the peer does not take the answers.

        Or when it has taken long, since others wait, too: `left` common ones need no look at that.
        """
        answers: list[bytes] = []
        size, self._looked_ms = 0, begun_ms
        rest = iter(events)
        for event in rest:
            if type(event) is ReplyReceived:
                self._questions.answer(event.command)
                continue
            if (answer := self._answer_to(event.command)) is not None:
                answers.append(answer)
                size += len(answer)
                if size > WRITE_TOGETHER_MAX:
                    self._write(answers)
                    answers, size = [], 0
                    if self._full is not None:
                        break
            left -= 1
            if (left < 0 or event.command.code not in FREQUENT_CODES) and self._is_over(
                event, begun_ms
            ):
                break
        if answers:
            self._write(answers)
        self._put_off_rest(rest)

    def _is_over(self, event: ConnectionEvent, begun_ms: int) -> bool:
        """Whether others have their turn now, after this request."""
        now_ms = self._clock.monotonic_ms()
        held_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if held_ms >= SLOW_MS:
            self._held(event.command.code, len(event.command.body), held_ms)
        return now_ms - begun_ms >= TURN_MS

    def _held(self, code: int, size: int, held_ms: int) -> None:
        """A request took so long: servers care."""

    def _answer_to(self, command: Command) -> bytes | None:
        """What to send for a request at once, if there is something."""
        self.language = command.language
        self.version = command.version
        answer = self._dispatch(command, self)
        if answer is None or isinstance(answer, bytes):
            return answer
        self._serve_later(answer, command)
        return None

    def _put_off_rest(self, rest: Iterable[ConnectionEvent]) -> None:
        if put_off := deque(rest):
            self._put_off = put_off
            if self._full is None:
                self._go_on_soon()

    def _serve_rest(self) -> None:
        """Serve what was put off, for a while."""
        put_off, self._put_off = self._put_off, None
        if put_off is not None and not self.closed:
            self._serve(put_off, self._clock.monotonic_ms())

    def _go_on_soon(self) -> None:
        """Serve the rest as soon as others have had their turn."""
        if not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if self._full is None:  # else when the peer takes its answers
            self._serve_rest()

    def _serve_later(self, later: DeferredReply, command: Command) -> None:
        frame, gate, size = later
        task = self._loop.create_task(self._answer(self._watched(frame, command)))
        self._tasks[task] = (command.flag, gate, size)
        if gate is not None:
            gate.enter(self, size)
        task.add_done_callback(self._served)

    def _watched(
        self, frame: Coroutine[Any, Any, bytes | None], _command: Command
    ) -> Awaitable[bytes | None]:
        """The same work; servers see how long it holds the loop."""
        return frame

    async def _answer(self, later: Awaitable[bytes | None]) -> None:
        """Send what comes at once, so that the next one knows whether there is room left."""
        frame = await later
        if frame is not None and not self.closed:
            self._send(frame)

    def _served(self, task: asyncio.Task[None]) -> None:
        _, gate, size = self._tasks.pop(task)
        if gate is not None:
            gate.leave(self, size)
        if not task.cancelled():
            task.result()  # a fault of ours is told to the event loop

    async def _end(self) -> None:
        """Wait until the connection has ended."""
        if not self._has_ended:
            if self._ended is None:
                self._ended = asyncio.Event()
            await self._ended.wait()

    def _send(self, frame: bytes) -> None:
        """Send with whatever else is sent in this turn of the event loop."""
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
        self._tally.left -= size
        if self._tally.left < 0:
            self._tally.settle()
        if self._full is not None and self._transport.get_write_buffer_size() > UNSENT_MAX:
            self.drop(f"{UNSENT_MAX} bytes wait for it")


def _why(error: Exception) -> str:
    """Why a connection ended; a server that wants a certificate says so only after it stands."""
    return tls_error(error) if isinstance(error, ssl.SSLError) else str(error)
