"""GuardedRouter: a router whose requests an access guard admits before their handlers see them.

A fetch that waits for messages is checked again before it is answered, if users or policies have
changed meanwhile. A server without access control has a plain `Router`, so it pays nothing.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from roquet.access.guard import AccessGuard
from roquet.log_records import logger
from roquet.model.access import AccessTables
from roquet.model.errors import CallRefused
from roquet.net import error_replies
from roquet.net.log_fields import request_fields
from roquet.net.router import NO_REASONS, DeferredReply, DispatchResult, Peer, Router
from roquet.wire.call import Reply
from roquet.wire.codes import FLAG_ONEWAY, RequestCode
from roquet.wire.command import Command
from roquet.wire.fields import encode_reply

log = logger(__name__)

FETCHES: Final = frozenset(
    map(int, (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE))
)
"""Requests that may wait for minutes, and are answered with messages."""


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
        answer = Router.dispatch(self, admitted, peer)  # super() would cost a third of the check
        if type(answer) is DeferredReply and admitted.code in FETCHES:
            frame = answer.frame
            if asyncio.iscoroutine(frame):
                tables = self._guard.tables
                return answer._replace(frame=self._checked_again(frame, admitted, peer, tables))
        return answer

    async def _checked_again(
        self,
        frame: Coroutine[Any, Any, bytes | None],
        admitted: Command,
        peer: Peer,
        tables: AccessTables,
    ) -> bytes | None:
        """The frame of a reply that took a while, or a refusal for a right that was lost.

        `tables` are those by which the request was admitted.
        """
        answer = await frame
        if answer is not None and self._guard.tables is not tables:
            try:
                self._guard.admit_again(admitted, peer)
            except CallRefused as error:
                return encode_reply(Reply(code=error.code, remark=error.remark), admitted)
        return answer
