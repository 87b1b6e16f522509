"""GuardedRouter: a router whose requests an access guard admits before their handlers see them.

A server without access control has a plain `Router`, so it pays nothing.
"""

from collections.abc import Mapping

from roquet.log_records import logger
from roquet.net import error_replies
from roquet.net.access.guard import AccessGuard
from roquet.net.log_lines import request_fields
from roquet.net.router import NO_REASONS, DispatchResult, Peer, Router
from roquet.wire.codes import FLAG_ONEWAY
from roquet.wire.command import Command
from roquet.wire.fields import encode_reply

log = logger(__name__)


class GuardedRouter(Router):
    """Handlers by request code, behind an access guard."""

    def __init__(self, guard: AccessGuard, unserved: Mapping[int, str] = NO_REASONS) -> None:
        super().__init__(unserved)
        self._guard = guard

    def dispatch(self, command: Command, peer: Peer) -> DispatchResult:
        """Serve one request if it is admitted. Never raises: errors become replies."""
        try:
            admitted = self._guard.admit(command, peer)
            self.user = self._guard.user
        except Exception as error:
            reply = error_replies.refusal(error)
            if reply is None:
                reply = error_replies.fault(error)
                kind = (0, type(error))  # of all codes: strangers may send any
                trace = None if kind in self._faults else error
                self._faults.add(kind)
                log.error(  # noqa: TRY400 - its traceback once
                    "the check of code %d failed", command.code, exc_info=trace,
                    extra=request_fields(command, peer.address),
                )  # fmt: skip
            if (meter := self.meter) is not None:
                code = command.code
                meter.replied(code, command.flag, reply.code, meter.begin(code))
            return None if command.flag & FLAG_ONEWAY else encode_reply(reply, command)
        return super().dispatch(admitted, peer)
