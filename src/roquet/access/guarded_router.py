"""GuardedRouter: a router whose requests an access guard admits before their handlers see them.

A fetch that waits for messages is checked again before it is answered, if users or policies have
changed meanwhile. A server without access control has a plain `Router`, so it pays a comparison.
"""

from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from roquet.access.guard import AccessGuard
from roquet.model.access import AccessTables
from roquet.model.errors import CallRefused
from roquet.net.limits.request_limits import RequestLimit
from roquet.net.router import NO_REASONS, DeferredReply, HeldReply, Peer, Router
from roquet.wire.call import Reply
from roquet.wire.codes import RequestCode
from roquet.wire.command import Command
from roquet.wire.fields import encode_reply

FETCHES: Final = frozenset(
    map(int, (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE))
)
"""Requests that may wait for minutes, and are answered with messages."""


class GuardedRouter(Router):
    """Handlers by request code, behind an access guard."""

    def __init__(self, guard: AccessGuard, unserved: Mapping[int, str] = NO_REASONS) -> None:
        super().__init__(unserved)
        self._guard = guard
        self._admit = guard.admit
        self._admits = guard.admits
        self.plain_keys = guard.plain_keys

    @property
    def user(self) -> str:
        """The user of the request that was admitted last; empty if it needed none."""
        return self._guard.user

    def defer(
        self,
        answer: Awaitable[Reply | None],
        command: Command,
        peer: Peer,
        gate: RequestLimit | None,
        begun_ms: int,
    ) -> HeldReply | DeferredReply:
        """The reply to a request whose answer is not ready; a fetch is checked again before it."""
        deferred = super().defer(answer, command, peer, gate, begun_ms)
        if type(deferred) is DeferredReply and command.code in FETCHES:
            tables = self._guard.tables
            frame = self._checked_again(deferred.frame, command, peer, tables)
            return msgspec.structs.replace(deferred, frame=frame)
        return deferred

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
