"""Router: dispatches each request to the handler of its call type."""

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreError, UsageError
from roquet.net import error_replies
from roquet.net.clock import UNTIMED
from roquet.net.limits.request_limits import RequestLimit
from roquet.net.log_fields import request_fields
from roquet.wire.call import Call, Reply
from roquet.wire.codes import FLAG_ONEWAY
from roquet.wire.command import Command
from roquet.wire.fields import decode_call, encode_reply

if TYPE_CHECKING:  # clients measure no requests, and hold none
    from roquet.metrics.request_counts import RequestLatencies
    from roquet.net.async_watermark import AsyncWatermark
    from roquet.net.request_meter import RequestMeter
    from roquet.wire.plain_pull import PlainPull
    from roquet.wire.plain_send import PlainSend
    from roquet.wire.signing import SigningKey

log = logger(__name__)

CALL_TIMEOUT_MS: Final = 3_000
"""Default timeout of a call in ms, as in Java clients."""

FAULTS_MAX: Final = 1000
"""Kinds of faults that are remembered as logged."""

R = TypeVar("R", bound=Reply)
C = TypeVar("C", bound=Call[Any])


class Peer(Protocol):
    """The other end of a connection, as handlers see it."""

    @property
    def address(self) -> str:
        """Its `ip:port`, an IPv6 address in brackets."""

    @property
    def host_bytes(self) -> bytes:
        """Its address as a record stores it: ip (4 or 16 bytes) and port (4 bytes)."""

    @property
    def language(self) -> int:
        """The language that its latest command names (wire.codes.Language)."""

    @property
    def version(self) -> int:
        """The version that its latest command names."""

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""

    @property
    def is_full(self) -> bool:
        """Whether it does not read what is written to it."""

    async def drain(self) -> None:
        """Wait until it has read most of what was written."""

    def oneway(self, call: Call[Any]) -> None:
        """Send a one-way call; does nothing when it has gone."""

    async def call(self, call: Call[R], timeout_ms: int = CALL_TIMEOUT_MS) -> R:
        """Send a call and wait for its reply. Raises a CallError when none or a refusal comes."""

    def on_close(self, callback: Callable[["Peer"], object]) -> None:
        """Call back once when the connection has ended; at once when it already has."""


HandlerReply = Reply | Awaitable[Reply | None] | None
RequestHandler = Callable[[C, Peer], HandlerReply]
"""Serves one type of call.

A plain function replies at once and costs no task; None is a plain success. An awaitable replies
when it is ready, while others are served; it is cancelled when its peer goes, unless the request
was one-way; a ReplyWhen costs less. An exception refuses the request: CallRefused has the code and
the remark.
"""


Frame = bytes | Coroutine[Any, Any, bytes | None] | None
"""A frame to send, one that is not ready yet, or None for a one-way request."""


class ReplyWhen(msgspec.Struct, frozen=True):
    """A handler's reply that is decided when a watermark is reached, or at a deadline.

    It costs neither a task nor a future; any other reply that is not ready is an awaitable.
    """

    mark: "AsyncWatermark"
    target: int
    """A value that the watermark has not reached yet."""
    begun_ms: int
    """Monotonic time at which the wait began."""
    deadline_ms: int
    """Monotonic time at which it ends at the latest."""
    reply: Callable[[bool], Reply | Awaitable[Reply | None]]
    """Gives the reply, by whether the target was reached; or one that takes longer still."""

    def __await__(self) -> Generator[Any, Any, Reply | None]:
        """Wait for the reply, as for any awaitable."""
        reached = yield from self.mark.reach(self.target, self.deadline_ms).__await__()
        answer = self.reply(reached)
        return answer if isinstance(answer, Reply) else (yield from answer.__await__())


class HeldReply(msgspec.Struct, eq=False):
    """A request that waits for a watermark: one of its waiters."""

    when: ReplyWhen
    request: Command
    """Without its body, which nobody needs any more."""
    peer: Peer
    begun_ms: int
    """Monotonic time at which it was served."""
    gate: RequestLimit | None
    """The limit that counts it."""
    size: int
    """Bytes of its body."""
    frame: Callable[["HeldReply", bool], Frame]
    """Gives the frame by whether the target was reached; never raises."""
    cancelled: Callable[["HeldReply"], object]
    """Called instead of `frame` when the peer has gone."""
    decide: Callable[["HeldReply", bool], object] = lambda *_: None
    """The connection's: it sends the frame."""
    is_over: bool = False
    """Whether it was decided or cancelled."""

    def begin(self, decide: Callable[["HeldReply", bool], object]) -> None:
        """Wait from now on; `decide` is called once, unless `is_over` is set before."""
        self.decide = decide
        self.when.mark.add(self.when.target, self.when.deadline_ms, self)

    def done(self) -> bool:
        """See async_watermark.Waiter."""
        return self.is_over

    def set_result(self, reached: bool, /) -> None:
        """See async_watermark.Waiter."""
        self.is_over = True
        self.decide(self, reached)


class DeferredReply(msgspec.Struct, frozen=True):
    """A reply that is not ready yet, and the limit that counts its request until then."""

    frame: Coroutine[Any, Any, bytes | None]
    gate: RequestLimit | None = None
    size: int = 0
    """Bytes of the request's body."""


DispatchResult = bytes | HeldReply | DeferredReply | None
"""A frame to send, a reply that is not ready yet, or nothing to send."""

_DONE: Final = Reply()

_Served: TypeAlias = tuple[
    type[Call[Any]], RequestHandler[Any], RequestLimit | None, "RequestLatencies | None"
]
"""Call type, handler, limit, and the meter's counter of frequent requests that succeed at once."""

NO_REASONS: Final[Mapping[int, str]] = MappingProxyType({})


PlainRequest: TypeAlias = "PlainSend | PlainPull"
PlainKeys: TypeAlias = "dict[str, SigningKey] | None"
PlainReader = Callable[[bytes, int, PlainKeys], "Sequence[PlainRequest]"]
"""Reads the plain requests of one kind with which a chunk begins, up to a size of their frames."""
PlainHandler = Callable[[Any, Peer], bytes | None]
"""Serves plain requests of one kind: the frame of the reply to a success, or None if nothing was
done."""


class Router:
    """Handlers by request code."""

    def __init__(self, unserved: Mapping[int, str] = NO_REASONS) -> None:
        self._unserved = unserved
        """Reasons for codes that are not served, for the remark of the reply."""
        self._served: dict[int, _Served] = {}
        self._own: dict[int, _Served] = {}
        """Of codes that another handler serves, or has served."""
        self._faults: set[tuple[int, object]] = set()
        self._admit: Callable[[Command, Peer], Command] | None = None
        """Gives a request as its handler may see it, or raises; None admits all as they come."""
        self._meter: RequestMeter | None = None
        self._plain: list[tuple[PlainReader, Callable[[], bool]]] = []
        """Readers of plain requests, and whether their short ways are open."""
        self._plain_handlers: dict[int, tuple[PlainHandler, RequestHandler[Any]]] = {}
        """By code of plain requests: what serves them, and what serves them otherwise."""
        self._admits: Callable[[PlainRequest, Peer], bool] | None = None
        """Whether a plain request may be served without a further look; None: each may."""
        self.plain_keys: PlainKeys = None
        """Keys of which one has to have signed a plain request; None: it needs no signature."""

    @property
    def user(self) -> str:
        """The user who signed the request that is dispatched now; empty without access control."""
        return ""

    @property
    def meter(self) -> "RequestMeter | None":
        """Measures requests; None: they are not measured, and pay nothing."""
        return self._meter

    @meter.setter
    def meter(self, meter: "RequestMeter") -> None:
        self._meter = meter
        for table in (self._served, self._own):
            for code, (call_type, handler, gate, _) in table.items():
                table[code] = (call_type, handler, gate, meter.successes(code))

    @property
    def handlers(self) -> Mapping[type[Call[Any]], RequestHandler[Any]]:
        """Handlers by call type."""
        return {call_type: handler for call_type, handler, _, _ in self._served.values()}

    @property
    def gates(self) -> list[RequestLimit]:
        """The limits of all handlers, each once."""
        return list(dict.fromkeys(gate for _, _, gate, _ in self._served.values() if gate))

    def add(
        self, call_type: type[C], handler: RequestHandler[C], gate: RequestLimit | None = None
    ) -> None:
        """Register the handler of a call type, and the limit that its requests count against.

        UsageError for a code that has a handler.
        """
        code = int(call_type.code)
        if code in self._served:
            raise UsageError(f"code {code} is served already: {self._served[code][0].__name__}")
        latencies = self._meter.successes(code) if self._meter else None
        self._served[code] = (call_type, handler, gate, latencies)

    def add_plain(
        self,
        codes: Iterable[int],
        read: PlainReader,
        serve: PlainHandler,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """Register a short way for plain requests of codes that have handlers.

        It is taken while `is_open`, and while requests of a code are neither overridden nor
        limited.
        """
        self._plain.append((read, is_open))
        for code in codes:
            self._plain_handlers[code] = serve, self._served[code][1]

    def read_plain(self, chunk: bytes, size_max: int) -> Sequence["PlainRequest"]:
        """The plain requests of one kind with which a chunk begins; none if its way is closed.

        They are to be served before the event loop goes on. None, too, where they have to be signed
        and no user is known by his key yet.
        """
        keys = self.plain_keys
        if keys is None or keys:
            for read, is_open in self._plain:
                if is_open() and (requests := read(chunk, size_max, keys)):
                    return requests
        return ()

    def serve_plain(self, request: "PlainRequest", peer: Peer) -> bytes | None:
        """The reply to a request that `read_plain` has read.

        None with nothing done: then it has to be dispatched.
        """
        code = request.code
        serve, usual = self._plain_handlers[code]
        _, handler, gate, latencies = self._served[code]
        if handler is not usual or (gate is not None and gate.is_tight):
            return None
        if self._meter is not None and latencies is None:
            return None
        if latencies is not None and latencies.left <= 0:  # this one is timed
            return None
        try:
            may_serve = self._admits is None or self._admits(request, peer)
            frame = serve(request, peer) if may_serve else None
        except Exception as error:
            command = Command(code, opaque=request.opaque, serialize_type=request.serialize_type)
            return self._refuse(error, command, peer, self._begin(code))
        if latencies is not None and frame is not None:
            latencies.left -= 1
        return frame

    def override(self, code: int, handler: RequestHandler[Any] | None) -> None:
        """Serve a code by another handler from now on; None: by its own again."""
        call_type, own, gate, latencies = self._own.setdefault(code, self._served[code])
        self._served[code] = (call_type, handler or own, gate, latencies)

    def own_handler(self, code: int) -> RequestHandler[Any]:
        """The handler that serves a code unless `override` is in force."""
        return self._own.get(code, self._served[code])[1]

    def replace(self, code: int, handler: RequestHandler[Any]) -> None:
        """Register another handler of a code; while `override` is in force, for when it ends."""
        call_type, served, gate, latencies = self._served[code]
        own = self._own.get(code)
        replaced = call_type, handler, gate, latencies
        if own is not None:
            self._own[code] = replaced
        if own is None or served is own[1]:
            self._served[code] = replaced

    def dispatch(self, command: Command, peer: Peer) -> DispatchResult:  # noqa: C901 - a call costs
        """Serve one request. Never raises: errors become replies."""
        if self._admit is not None:
            try:
                command = self._admit(command, peer)
            except Exception as error:
                return self._refuse_entry(error, command, peer)
        served = self._served.get(command.code)
        if served is None:
            reply = error_replies.unknown(command.code, self._unserved.get(command.code))
            return self._frame_at_once(reply, command, self._begin(command.code))
        call_type, handler, gate, latencies = served
        if latencies is not None and latencies.left > 0:
            begun_ms = UNTIMED
        else:
            latencies, meter = None, self._meter
            begun_ms = 0 if meter is None else meter.begin(command.code)
        if gate is not None and gate.is_tight and (remark := gate.refusal(peer)) is not None:
            return self._frame_at_once(error_replies.busy(remark), command, begun_ms)
        try:
            answer = handler(decode_call(command, call_type), peer)
            if answer is None:
                answer = _DONE
            if isinstance(answer, Reply):
                frame = None if command.flag & FLAG_ONEWAY else encode_reply(answer, command)
                if latencies is not None and not answer.code and frame is not None:
                    latencies.left -= 1  # without a call of the meter
                elif self._meter is not None:
                    self._meter.replied(command.code, command.flag, answer.code, begun_ms)
                return frame
        except Exception as error:
            return self._refuse(error, command, peer, begun_ms)
        return self.defer(answer, command, peer, gate, begun_ms)

    def _begin(self, code: int) -> int:
        return 0 if self._meter is None else self._meter.begin(code)

    def defer(
        self,
        answer: Awaitable[Reply | None],
        command: Command,
        peer: Peer,
        gate: RequestLimit | None,
        begun_ms: int,
    ) -> HeldReply | DeferredReply:
        """The reply to a request whose answer is not ready yet."""
        # The body is not kept while the reply is awaited: it may be a send that waits for the disk.
        request = Command(
            command.code,
            opaque=command.opaque,
            flag=command.flag,
            serialize_type=command.serialize_type,
        )
        size = len(command.body)
        if type(answer) is ReplyWhen:
            if begun_ms == UNTIMED:
                begun_ms = answer.begun_ms
            return HeldReply(
                answer, request, peer, begun_ms, gate, size, self._decided, self._cancelled
            )
        if self._meter is not None and begun_ms == UNTIMED:
            begun_ms = self._meter.now_ms()
        return DeferredReply(self._later(answer, request, peer, begun_ms), gate, size)

    def _decided(self, held: HeldReply, reached: bool) -> Frame:
        request, peer, begun_ms = held.request, held.peer, held.begun_ms
        try:
            answer = held.when.reply(reached)
            if isinstance(answer, Reply) and not peer.is_full:
                if self._meter is not None:
                    self._meter.replied_later(request.code, request.flag, answer.code, begun_ms)
                return _frame(answer, request)
        except Exception as error:
            return self._refuse(error, request, peer, begun_ms)
        return self._later(answer, request, peer, begun_ms)

    def _cancelled(self, held: HeldReply) -> None:
        """Count a held reply that nobody waits for any more."""
        if self._meter is not None:
            self._meter.cancelled(held.request.code, held.begun_ms)

    async def _later(
        self, answer: Reply | Awaitable[Reply | None], command: Command, peer: Peer, begun_ms: int
    ) -> bytes | None:
        meter = self._meter
        try:
            reply = answer if isinstance(answer, Reply) else await answer or _DONE
            while peer.is_full:  # a body is a view of the log until its frame is made
                await peer.drain()
            frame = _frame(reply, command)
        except Exception as error:
            return self._refuse(error, command, peer, begun_ms)
        except asyncio.CancelledError:
            if meter is not None:
                meter.cancelled(command.code, begun_ms)
            raise
        if meter is not None:
            meter.replied_later(command.code, command.flag, reply.code, begun_ms)
        return frame

    def _frame_at_once(self, reply: Reply, command: Command, begun_ms: int) -> bytes | None:
        if self._meter is not None:
            self._meter.replied(command.code, command.flag, reply.code, begun_ms)
        return _frame(reply, command)

    def _refuse(
        self, error: Exception, command: Command, peer: Peer, begun_ms: int
    ) -> bytes | None:
        """The reply for an error; a fault of our own is logged, once with its traceback."""
        reply = error_replies.refusal(error)
        if (meter := self._meter) is not None:
            if reply is None:
                meter.failed(command.code, begun_ms)
            else:
                meter.replied(command.code, command.flag, reply.code, begun_ms)
        if reply is None:
            reply = error_replies.fault(error)
            self._log_fault(error, reply.remark or "", command, peer)
        return _frame(reply, command)

    def _refuse_entry(self, error: Exception, command: Command, peer: Peer) -> bytes | None:
        """The reply to a request that is not admitted."""
        reply = error_replies.refusal(error)
        if reply is None:
            reply = error_replies.fault(error)
            kind = (0, type(error))  # of all codes: strangers may send any
            trace = None if kind in self._faults else error
            self._faults.add(kind)
            fields = request_fields(command, peer.address)
            log.error("the check of code %d failed", command.code, exc_info=trace, extra=fields)
        return self._frame_at_once(reply, command, self._begin(command.code))

    def _log_fault(self, error: Exception, remark: str, command: Command, peer: Peer) -> None:
        """Log a fault. The disk's are no bugs of ours: one line for each, however often asked."""
        is_of_disk = isinstance(error, StoreError)
        kind = (command.code, remark if is_of_disk else type(error))
        is_known = kind in self._faults
        if len(self._faults) < FAULTS_MAX:
            self._faults.add(kind)
        if is_known and is_of_disk:
            return
        trace = None if is_known or is_of_disk else error
        name, fields = self._served[command.code][0].__name__, request_fields(command, peer.address)
        log.error("%s failed: %s", name, remark, exc_info=trace, extra=fields)


def _frame(reply: Reply, command: Command) -> bytes | None:
    return None if command.flag & FLAG_ONEWAY else encode_reply(reply, command)
