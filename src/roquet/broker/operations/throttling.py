"""Throttling: requests over a quota are refused or held up, each in its protocol's own way.

    send         2    SYSTEM_BUSY at once, with the wait in its remark: clients try another broker
    pull, pop         answered once the quota allows it; without messages when that takes too long
    peek         19   PULL_NOT_FOUND at once

Handlers are wrapped only while there is a quota of their direction: a broker without pays nothing.
A message that is sent back is never refused: it would be lost to its group.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, Final

import msgspec

from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.sending import SendChecks
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import CallRefused
from roquet.model.flags import PullFlag
from roquet.net.address import host_of
from roquet.net.router import HandlerReply, Peer, RequestHandler, Router
from roquet.rules.quota import QuotaDirection, QuotaExcess, QuotaSubject
from roquet.wire.call import Call, Reply
from roquet.wire.calls.pop import Peek, Pop, PopReply
from roquet.wire.calls.pull import LitePull, Pull, PullReply
from roquet.wire.calls.reply import SendReplyLongNames, SendReplyMessage
from roquet.wire.calls.send import Send, SendBatch, SendLongNames
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import block_count

HELD_MS_MIN: Final = 1_000
"""Longest hold of a fetch that does not wait for messages: its client waits for 3 s or more."""

HELD_MS_MAX: Final = 15_000
"""Longest hold of any fetch: clients give up after 30 s."""

DIRECTIONS: Final[Mapping[type[Call[Any]], QuotaDirection]] = {
    Send: QuotaDirection.SEND,
    SendLongNames: QuotaDirection.SEND,
    SendBatch: QuotaDirection.SEND,
    SendReplyMessage: QuotaDirection.SEND,
    SendReplyLongNames: QuotaDirection.SEND,
    Pull: QuotaDirection.FETCH,
    LitePull: QuotaDirection.FETCH,
    Pop: QuotaDirection.FETCH,
    Peek: QuotaDirection.FETCH,
}
"""Requests that count to quotas."""


class Throttle:
    """Wraps the handlers of a router as the settings ask for it."""

    def __init__(
        self, message_log: MessageLog, control: ControlPlane, checks: SendChecks, router: Router
    ) -> None:
        """Apply the quotas of the settings."""
        self._store, self._control, self._checks = message_log.store, control, checks
        self._router = router
        handlers = router.handlers
        self._own = {call: handlers[call] for call in DIRECTIONS}
        self.follow(control.settings.config)

    def follow(self, config: BrokerConfig) -> None:
        """Apply changed quotas."""
        quotas = self._control.quotas
        quotas.configure(config)
        for call, direction in DIRECTIONS.items():
            own, is_free = self._own[call], quotas.buckets[direction].is_empty
            limited = self._send if direction is QuotaDirection.SEND else self._fetch
            self._router.replace(int(call.code), own if is_free else limited(own))

    def _send(self, handler: RequestHandler[Any]) -> RequestHandler[Any]:
        def send(call: Send | SendLongNames, peer: Peer) -> HandlerReply:
            subject = self._subject(call.topic, peer)
            if (excess := self._excess(QuotaDirection.SEND, subject)) is not None:
                refused = CallRefused(ResponseCode.SYSTEM_BUSY, str(excess))
                return self._checks.refusal(refused)
            self._charge(QuotaDirection.SEND, subject, 1, len(call.body))
            answer = handler(call, peer)
            # After the handler: a body that it refuses would count as a million messages.
            is_refused = isinstance(answer, Reply) and answer.code != ResponseCode.SUCCESS
            if call.batch and not is_refused:
                self._charge(QuotaDirection.SEND, subject, block_count(call.body) - 1, 0)
            return answer

        return send

    def _fetch(self, handler: RequestHandler[Any]) -> RequestHandler[Any]:
        def fetch(call: Pull | Pop | Peek, peer: Peer) -> HandlerReply:
            subject = self._subject(call.topic, peer)
            if (excess := self._excess(QuotaDirection.FETCH, subject)) is None:
                return self._charged(handler(call, peer), subject)
            if isinstance(call, Peek):
                return self._empty(call, excess)
            return self._later(handler, call, peer, subject, excess)

        return fetch

    async def _later(
        self,
        handler: RequestHandler[Any],
        call: Pull | Pop,
        peer: Peer,
        subject: QuotaSubject,
        excess: QuotaExcess,
    ) -> Reply | None:
        """The reply once the quota allows it; one without messages if that takes too long."""
        clock = self._control.clock
        begun_ms = clock.monotonic_ms()
        deadline_ms = begun_ms + _hold_ms(call)
        over: QuotaExcess | None = excess
        while over is not None:
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0:
                return self._empty(call, over)
            await clock.sleep(min(over.wait_ms, left_ms))
            over = self._control.quotas.buckets[QuotaDirection.FETCH].excess(
                subject, clock.monotonic_ms()
            )
        answer = handler(_with_less_wait(call, clock.monotonic_ms() - begun_ms), peer)
        charged = self._charged(answer, subject)
        return charged if charged is None or isinstance(charged, Reply) else await charged

    def _charged(self, answer: HandlerReply, subject: QuotaSubject) -> HandlerReply:
        """The answer of a handler, whose messages are counted once it is there."""
        if answer is None or isinstance(answer, Reply):
            self._charge_reply(answer, subject)
            return answer
        return self._charged_later(answer, subject)

    async def _charged_later(
        self, answer: Awaitable[Reply | None], subject: QuotaSubject
    ) -> Reply | None:
        reply = await answer
        self._charge_reply(reply, subject)
        return reply

    def _charge_reply(self, reply: Reply | None, subject: QuotaSubject) -> None:
        if reply is not None and reply.body:
            self._charge(QuotaDirection.FETCH, subject, block_count(reply.body), len(reply.body))

    def _subject(self, topic: str, peer: Peer) -> QuotaSubject:
        return QuotaSubject(self._router.user, topic, host_of(peer.address))

    def _excess(self, direction: QuotaDirection, subject: QuotaSubject) -> QuotaExcess | None:
        quotas = self._control.quotas
        excess = quotas.buckets[direction].excess(subject, self._control.clock.monotonic_ms())
        if excess is not None:
            quotas.note(excess)
        return excess

    def _charge(
        self, direction: QuotaDirection, subject: QuotaSubject, count: int, size: int
    ) -> None:
        now_ms = self._control.clock.monotonic_ms()
        self._control.quotas.buckets[direction].charge(subject, count, size, now_ms)

    def _empty(self, call: Pull | Pop | Peek, excess: QuotaExcess) -> Reply:
        """The answer without messages."""
        remark = str(excess)
        if isinstance(call, Pull):
            minimum, maximum = self._store.bounds(call.topic, call.queue_id)
            return PullReply(
                code=ResponseCode.PULL_NOT_FOUND,
                remark=remark,
                next_begin_offset=call.queue_offset,
                min_offset=minimum,
                max_offset=maximum,
            )
        is_pop = isinstance(call, Pop)
        code = ResponseCode.POLLING_TIMEOUT if is_pop else ResponseCode.PULL_NOT_FOUND
        return PopReply(code=code, remark=remark)


def _hold_ms(call: Pull | Pop) -> int:
    """Ms for which a fetch is held up at most: no longer than it would wait for messages."""
    if isinstance(call, Pop):
        waits_ms = call.poll_time
    else:
        waits_ms = call.suspend_timeout_millis if call.sys_flag & PullFlag.SUSPEND else 0
    return min(max(waits_ms, HELD_MS_MIN), HELD_MS_MAX)


def _with_less_wait(call: Pull | Pop, held_ms: int) -> Pull | Pop:
    """The request with the time taken off for which it was held up."""
    if isinstance(call, Pop):
        return msgspec.structs.replace(call, poll_time=max(0, call.poll_time - held_ms))
    left_ms = max(0, call.suspend_timeout_millis - held_ms)
    return msgspec.structs.replace(call, suspend_timeout_millis=left_ms)
