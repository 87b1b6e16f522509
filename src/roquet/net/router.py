"""Router: call type to handler; Handler and Peer."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar

from roquet.model.errors import UsageError
from roquet.net import middleware
from roquet.wire.call import Call, Reply
from roquet.wire.codes import FLAG_ONEWAY
from roquet.wire.command import Command
from roquet.wire.fields import decode_call, encode_reply

log = logging.getLogger(__name__)

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

    def oneway(self, call: Call[Any]) -> None:
        """Tell it something; nothing happens when it has gone."""

    async def call(self, call: Call[R], timeout_ms: int = CALL_TIMEOUT_MS) -> R:
        """Ask it something; raises a CallError when no good answer comes."""

    def on_close(self, callback: Callable[["Peer"], object]) -> None:
        """Call back once when the connection has ended; at once when it already has."""


Answer = Reply | Awaitable[Reply | None] | None
Handler = Callable[[C, Peer], Answer]
"""What serves one kind of call.

A plain function answers at once, and costs no task: None stands for a plain success. An awaitable
answers whenever it is ready, while others are served; it is cancelled when its peer goes, unless
the request was one-way. Raising refuses: CallRefused says how.
"""

Dispatched = bytes | Coroutine[Any, Any, bytes | None] | None
"""A frame to send, one that will come, or nothing to send."""

_DONE: Final = Reply()


class Router:
    """Which handler serves which call."""

    def __init__(self) -> None:
        self._served: dict[int, tuple[type[Call[Any]], Handler[Any]]] = {}
        self._faults: set[tuple[int, type[Exception]]] = set()

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Handler[Any]]:
        """What is served, and by whom."""
        return dict(self._served.values())

    def add(self, call_type: type[C], handler: Handler[C]) -> None:
        """Have a kind of call served by a handler."""
        code = int(call_type.code)
        if code in self._served:
            raise UsageError(f"code {code} is served already: {self._served[code][0].__name__}")
        self._served[code] = (call_type, handler)

    def dispatch(self, command: Command, peer: Peer) -> Dispatched:
        """Serve one request. This never raises: a peer is told what went wrong."""
        served = self._served.get(command.code)
        if served is None:
            return _frame(middleware.unknown(command.code), command)
        call_type, handler = served
        try:
            answer = handler(decode_call(command, call_type), peer)
            if answer is None:
                answer = _DONE
            if isinstance(answer, Reply):
                return None if command.flag & FLAG_ONEWAY else encode_reply(answer, command)
        except Exception as error:
            return self._refuse(error, command)
        return self._later(answer, command)

    async def _later(self, answer: Awaitable[Reply | None], command: Command) -> bytes | None:
        try:
            return _frame(await answer or _DONE, command)
        except Exception as error:
            return self._refuse(error, command)

    def _refuse(self, error: Exception, command: Command) -> bytes | None:
        """Tell the peer; and tell the log when it is our own fault, once with its traceback."""
        reply = middleware.refusal(error)
        if reply is None:
            reply = middleware.fault(error)
            name = self._served[command.code][0].__name__
            kind = (command.code, type(error))
            trace = None if kind in self._faults else error
            self._faults.add(kind)
            log.error("%s failed: %s", name, reply.remark, exc_info=trace)
        return _frame(reply, command)


def _frame(reply: Reply, command: Command) -> bytes | None:
    """The answer as it goes to the socket; a one-way request gets none."""
    return None if command.flag & FLAG_ONEWAY else encode_reply(reply, command)
