"""Pending calls: calls without a reply yet, with one timer for all their deadlines."""

import asyncio
from typing import Any, cast

from roquet.model.errors import CallRefused, CallTimeout, ConnectionLost
from roquet.net.clock import Clock
from roquet.net.router import R
from roquet.wire.call import Call
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command
from roquet.wire.connection import Connection
from roquet.wire.fields import decode_reply

CallFuture = asyncio.Future[Command]


class PendingCalls:
    """The calls on one connection that wait for replies."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._waiting: dict[int, tuple[CallFuture, Call[Any], int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, call: Call[Any], timeout_ms: int) -> tuple[bytes, CallFuture]:
        """The frame of a call, and the future of its reply."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        opaque, frame = self._connection.send_call(call, deadline_ms)
        answer: CallFuture = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = (answer, call, timeout_ms)
        if self._timer is None or deadline_ms < self._timer_ms:
            self._ring_at(deadline_ms)
        return frame, answer

    def answer(self, command: Command) -> None:
        """Complete a call with its reply; the connection has matched them."""
        answer, _, _ = self._waiting.pop(command.opaque)
        if not answer.done():  # the caller may have been cancelled meanwhile
            answer.set_result(command)

    def lose(self, reason: str) -> None:
        """Fail all pending calls with ConnectionLost."""
        if self._timer is not None:
            self._timer.cancel()
        self._connection.close()
        left, self._waiting = self._waiting, {}
        for answer, _, _ in left.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(reason))

    def _ring_at(self, deadline_ms: int) -> None:
        """Set the timer. Replies do not stop it: it may find nothing due."""
        if self._timer is not None:
            self._timer.cancel()
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 1)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        for opaque in self._connection.expire(self._clock.monotonic_ms()):
            answer, call, timeout_ms = self._waiting.pop(opaque)
            if not answer.done():
                name = type(call).__name__
                answer.set_exception(CallTimeout(f"{name}: no answer within {timeout_ms} ms"))
        deadline_ms = self._connection.next_deadline()
        if deadline_ms is not None:
            self._ring_at(deadline_ms)


def parse_reply(call: Call[R], command: Command) -> R:
    """Decode the reply to a call. Raises CallRefused for a code that the call does not accept."""
    kind = type(call)
    if command.code not in kind.accepts:
        # Before a system error the request may have been carried out.
        definite = command.code != ResponseCode.SYSTEM_ERROR
        raise CallRefused(command.code, command.remark, definite=definite)
    return cast("R", decode_reply(command, kind.reply, kind.accepts))
