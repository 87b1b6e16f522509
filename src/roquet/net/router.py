"""Router: call type to handler; Handler and Peer."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from roquet.log_records import logger
from roquet.model.errors import UsageError
from roquet.net import error_replies
from roquet.net.request_limits import RequestLimit
from roquet.wire.call import Call, Reply
from roquet.wire.codes import FLAG_ONEWAY
from roquet.wire.command import Command
from roquet.wire.fields import decode_call, encode_reply

log = logger(__name__)

CALL_TIMEOUT_MS: Final = 3_000
"""How long a call waits for its answer unless it says otherwise: what Java clients wait."""

R = TypeVar("R", bound=Reply)
C = TypeVar("C", bound=Call[Any])


class Peer(Protocol):
    """What a handler may know of, and ask from, the other end of a connection."""

    @property
    def address(self) -> str:
        """Its `ip:port`, an IPv6 address in brackets."""

    @property
    def host_bytes(self) -> bytes:
        """Its address as a record holds it: ip (4 or 16 bytes) and port (4 bytes)."""

    @property
    def language(self) -> int:
        """What it says it is written in (wire.codes.Language), as of its latest command."""

    @property
    def version(self) -> int:
        """The version it says it is, as of its latest command."""

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""

    @property
    def is_full(self) -> bool:
        """Whether it does not take what is written to it."""

    async def drain(self) -> None:
        """Wait until it has taken most of that."""

    def oneway(self, call: Call[Any]) -> None:
        """Tell it something; nothing happens when it has gone."""

    async def call(self, call: Call[R], timeout_ms: int = CALL_TIMEOUT_MS) -> R:
        """Ask it something; raises a CallError when no good answer comes."""

    def on_close(self, callback: Callable[["Peer"], object]) -> None:
        """Call back once when the connection has ended; at once when it already has."""


HandlerReply = Reply | Awaitable[Reply | None] | None
RequestHandler = Callable[[C, Peer], HandlerReply]
"""What serves one kind of call.

A plain function answers at once, and costs no task: None stands for a plain success. An awaitable
answers whenever it is ready, while others are served; it is cancelled when its peer goes, unless
the request was one-way. Raising refuses: CallRefused says how.
"""


class DeferredReply(NamedTuple):
    """An answer that will come, and where its request waits until then."""

    frame: Coroutine[Any, Any, bytes | None]
    gate: RequestLimit | None = None
    size: int = 0
    """Bytes of the request's body."""


DispatchResult = bytes | DeferredReply | None
"""A frame to send, one that will come, or nothing to send."""

_DONE: Final = Reply()

NO_REASONS: Final[Mapping[int, str]] = MappingProxyType({})


class Router:
    """Which handler serves which call."""

    def __init__(self, unserved: Mapping[int, str] = NO_REASONS) -> None:
        self._unserved = unserved
        """Why some codes are not served: the peer is told."""
        self._served: dict[
            int, tuple[type[Call[Any]], RequestHandler[Any], RequestLimit | None]
        ] = {}
        self._faults: set[tuple[int, type[Exception]]] = set()

    @property
    def handlers(self) -> Mapping[type[Call[Any]], RequestHandler[Any]]:
        """What is served, and by whom."""
        return {call_type: handler for call_type, handler, _ in self._served.values()}

    @property
    def gates(self) -> list[RequestLimit]:
        """Where requests wait for their answers."""
        return list(dict.fromkeys(gate for _, _, gate in self._served.values() if gate))

    def add(
        self, call_type: type[C], handler: RequestHandler[C], gate: RequestLimit | None = None
    ) -> None:
        """Have a kind of call served by a handler, if its gate lets it pass."""
        code = int(call_type.code)
        if code in self._served:
            raise UsageError(f"code {code} is served already: {self._served[code][0].__name__}")
        self._served[code] = (call_type, handler, gate)

    def dispatch(self, command: Command, peer: Peer) -> DispatchResult:
        """Serve one request. This never raises: a peer is told what went wrong."""
        served = self._served.get(command.code)
        if served is None:
            return _frame(
                error_replies.unknown(command.code, self._unserved.get(command.code)), command
            )
        call_type, handler, gate = served
        if gate is not None and gate.is_tight and (remark := gate.refusal(peer)) is not None:
            return _frame(error_replies.busy(remark), command)
        try:
            answer = handler(decode_call(command, call_type), peer)
            if answer is None:
                answer = _DONE
            if isinstance(answer, Reply):
                return None if command.flag & FLAG_ONEWAY else encode_reply(answer, command)
        except Exception as error:
            return self._refuse(error, command)
        # While it waits its body is not kept: for a send that is on its way to the disk, too.
        asked = Command(
            command.code,
            opaque=command.opaque,
            flag=command.flag,
            serialize_type=command.serialize_type,
        )
        return DeferredReply(self._later(answer, asked, peer), gate, len(command.body))

    async def _later(
        self, answer: Awaitable[Reply | None], command: Command, peer: Peer
    ) -> bytes | None:
        try:
            reply = await answer or _DONE
            while peer.is_full:  # a body is a view of the log until its frame is made
                await peer.drain()
            return _frame(reply, command)
        except Exception as error:
            return self._refuse(error, command)

    def _refuse(self, error: Exception, command: Command) -> bytes | None:
        """Tell the peer; and tell the log when it is our own fault, once with its traceback."""
        reply = error_replies.refusal(error)
        if reply is None:
            reply = error_replies.fault(error)
            name = self._served[command.code][0].__name__
            kind = (command.code, type(error))
            trace = None if kind in self._faults else error
            self._faults.add(kind)
            log.error("%s failed: %s", name, reply.remark, exc_info=trace)
        return _frame(reply, command)


def _frame(reply: Reply, command: Command) -> bytes | None:
    """The answer as it goes to the socket; a one-way request gets none."""
    return None if command.flag & FLAG_ONEWAY else encode_reply(reply, command)
