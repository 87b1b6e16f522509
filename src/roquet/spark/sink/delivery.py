"""Delivery: sends a request until a broker has stored it or the timeout is over.

A request that an order key binds to a queue waits for that queue's broker. All others avoid brokers
that failed and go to any other. A request whose fate is unknown is sent again: its messages may
then be stored twice, with the same row keys. So is one that was stored less durably than its broker
promises, unless the write accepts that.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final

import msgspec

from roquet.client.connection.routes import Routes
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, ConnectFailed, UsageError
from roquet.model.flags import SysFlag
from roquet.model.names import AUTO_CREATE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.backoff import backoff_ms
from roquet.rules.queue_selection import (
    ERROR_LATENCY_MS,
    BrokerFault,
    brokers_to_avoid,
    next_queue,
    updated_fault,
)
from roquet.rules.send_retry import LESS_DURABLE, TRANSIENT, Retry, retry_of
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.send_requests import SendRequest
from roquet.spark.wait_warning import WARN_AFTER_MS, WaitWarning
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.codes import ResponseCode

log = logger(__name__)

ATTEMPT_TIMEOUT_MS: Final = 10_000
"""Timeout of one attempt: mebibytes to a cold disk take longer than the usual three seconds."""

RETRY_PAUSE_MS: Final = 20
"""First pause between attempts; each further one is twice as long."""

RETRY_PAUSE_MS_MAX: Final = 1_000
"""Longest pause between attempts: a broker that comes back is found within it."""

LESS_DURABLE_PAUSE_MS: Final = 1_000
"""First pause after a reply that promises too little: the messages are stored, and each further
attempt stores them once more."""

LESS_DURABLE_PAUSE_MS_MAX: Final = 16_000
"""Longest pause after such a reply: about six copies in a minute, with a slaveTimeout of 3 s."""

LESS_DURABLE_REPLY_MS: Final = 5_000
"""How long such a reply takes at most, with slaveTimeout and syncFlushTimeout as they are by
default: no attempt follows one that would be answered after the write's timeout."""

AVOID_MS: Final = 2_000
"""How long other requests avoid a broker that failed."""

NEW_QUEUES: Final = 8
"""Queues of a topic that brokers create with its first message, if they create topics."""

TRANSIENT_AT_SINK: Final = TRANSIENT | LESS_DURABLE
"""Refusals that are retried, and replies that promise less than the broker's settings."""

UNKNOWN_TOPIC_MS: Final = 3_000
"""How long name servers that know a topic of nearly the same name are asked for one."""

UNKNOWN_QUEUE_TRIES: Final = 13
"""Most attempts at queues that a broker does not know, about six seconds: the topic was just
created or changed, and name servers know of it soon."""


class DeliveredRequest(msgspec.Struct, frozen=True, gc=False):
    """A stored request and the broker's reply."""

    request: SendRequest
    broker: str
    reply: SendReply


def is_slip(name: str, other: str) -> bool:
    """Whether names differ by one letter, by two that changed places, or by case.

    `orders-1` and `orders-2`, `paid_eu` and `paid_us` are names of a family, and no slips.
    """
    name, other = name.lower(), other.lower()
    start = _common_length(name, other)
    end = _common_length(name[start:][::-1], other[start:][::-1])
    left, right = name[start : len(name) - end], other[start : len(other) - end]
    is_short = max(len(left), len(right)) <= 1 or (len(left) == 2 and left == right[::-1])
    return is_short and not any(map(str.isdigit, left + right))


def _common_length(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class RequestDelivery:
    """Sends the requests of one task."""

    def __init__(
        self, routes: Routes, pool: ChannelPool, options: SinkOptions, clock: Clock, turn: int
    ) -> None:
        """`turn` is where the round robin over queues begins; tasks begin at different ones."""
        self._routes = routes
        self._pool = pool
        self._options = options
        self._clock = clock
        self._turn = turn
        self._faults: dict[str, BrokerFault] = {}
        self._queues: dict[str, tuple[object, list[MessageQueue]]] = {}

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic in order; ConnectFailed when there are none within the timeout.

        Raises UsageError for a topic that does not exist, unless brokers are to make it.
        """
        queues = self._routes.writable(topic)
        if queues is None:
            deadline_ms = self._clock.monotonic_ms() + self._options.timeout_ms
            text = "topic %r: no queue to write to at %s yet; waiting up to %g s (option timeout)"
            place = (topic, ", ".join(self._options.namesrv), self._options.timeout_ms / 1000)
            loop = asyncio.get_running_loop()
            warning = loop.call_later(WARN_AFTER_MS / 1000, log.warning, text, *place)
            try:
                if not self._options.creates_topics:
                    await self._check_exists(topic, deadline_ms)
                await self._routes.find_writable(topic, NEW_QUEUES, deadline_ms)
            finally:
                warning.cancel()
            queues = self._routes.writable(topic)
            assert queues is not None, "find_writable raises otherwise"
        return queues

    async def _check_exists(self, topic: str, deadline_ms: int) -> None:
        """Raise UsageError, with the nearest name, for a topic that name servers do not know.

        A topic whose brokers restart is unknown for a while, too: only with a name one slip away
        from it, a misspelling by all appearances, the deadline is not waited for.
        """
        began_ms = self._clock.monotonic_ms()
        with suppress(ConnectFailed):  # `find_writable` waits for an answer
            while await self._routes.refresh(topic) is None:
                known = await self._routes.known_topics()
                slips = [name for name in known if is_slip(topic, name)]
                hint = suggest(topic, slips or known)
                now_ms = self._clock.monotonic_ms()
                if now_ms >= deadline_ms or (slips and now_ms - began_ms >= UNKNOWN_TOPIC_MS):
                    raise UsageError(
                        f"topic {topic!r} does not exist: create it by `roquet topic create`, or "
                        f"by its first row with option createTopic=true{hint}"
                    )
                await self._clock.sleep(RETRY_PAUSE_MS_MAX)

    async def send(self, request: SendRequest) -> DeliveredRequest:
        """Send a request until it is stored; raises the last CallError otherwise.

        When the time is over that is the last reply that promised too little, if there was one: the
        messages are stored, whatever happened to later attempts.
        """
        now_ms, timeout_ms = self._clock.monotonic_ms(), self._options.timeout_ms
        deadline_ms, wait = now_ms + timeout_ms, WaitWarning(now_ms, timeout_ms)
        pauses_ms, is_first = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX), True
        long_pauses_ms = backoff_ms(LESS_DURABLE_PAUSE_MS, LESS_DURABLE_PAUSE_MS_MAX)
        refused: list[str] = []
        failed: str | None = None
        stored: CallError | None = None
        while True:
            queue = request.queue or await self._next(request.topic, failed)
            try:
                reply = await self._try(request, queue, deadline_ms)
            except CallError as error:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if isinstance(error, CallRefused) and error.code in LESS_DURABLE:
                    reply_ms = min(LESS_DURABLE_REPLY_MS, self._options.timeout_ms // 2)
                    stored, left_ms = error, left_ms - reply_ms
                    pause_ms = min(next(long_pauses_ms), left_ms)
                else:
                    is_free = is_first and request.queue is None  # another broker is tried at once
                    pause_ms = 0 if is_free else next(pauses_ms)
                    left_ms -= pause_ms
                if not self._may_retry(error, request, queue, refused, is_over=left_ms <= 0):
                    if stored is not None and left_ms <= 0:
                        raise stored from None
                    error.add_note(_failure_note(request, queue, error))
                    raise
                wait.failed(self._clock.monotonic_ms(), queue, error)
                # The broker may have moved, or have another master, which alone takes messages: a
                # former one refuses them as a busy one does. Nothing else refreshes the routes.
                with suppress(CallError):
                    await self._routes.refresh(request.topic)
            else:
                self._faults.pop(queue.broker_name, None)
                wait.ended(self._clock.monotonic_ms(), queue)
                return DeliveredRequest(request, queue.broker_name, reply)
            failed, is_first = queue.broker_name, False
            await self._clock.sleep(pause_ms)

    def _may_retry(
        self,
        error: CallError,
        request: SendRequest,
        queue: MessageQueue,
        refused: list[str],
        *,
        is_over: bool,
    ) -> bool:
        """Whether another attempt may succeed; the broker that failed is avoided for a while."""
        name = queue.broker_name
        self._faults[name] = updated_fault(
            self._faults.get(name), ERROR_LATENCY_MS, AVOID_MS, self._clock.monotonic_ms()
        )
        if is_over:
            return False
        retry = retry_of(error, TRANSIENT_AT_SINK)
        if retry is Retry.ANY_BROKER:
            return True
        refused.append(name)
        if request.queue is not None:  # the order of its key would be lost elsewhere
            return False
        if retry is Retry.FRESH_ROUTE:
            return len(refused) < UNKNOWN_QUEUE_TRIES
        others = {other.broker_name for other in self._routes.writable(request.topic) or ()}
        return retry is Retry.OTHER_BROKER and not others <= set(refused)

    async def _next(self, topic: str, failed: str | None) -> MessageQueue:
        queues = self._by_turns(topic, await self.queues(topic))
        around = (
            brokers_to_avoid(self._faults, self._clock.monotonic_ms()) if self._faults else None
        )
        queue, self._turn = next_queue(queues, self._turn, avoid=failed, at_fault=around)
        return queue

    def _by_turns(self, topic: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """The queues ordered so that neighbours are of different brokers."""
        known = self._queues.get(topic)
        if known is None or known[0] is not queues:
            mixed = sorted(queues, key=lambda queue: (queue.queue_id, queue.broker_name))
            known = self._queues[topic] = (queues, mixed)
        return known[1]

    async def _try(self, request: SendRequest, queue: MessageQueue, deadline_ms: int) -> SendReply:
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 1)
        address = self._routes.leader(queue.broker_name)
        reply = await self._pool.call(
            address, self._call(request, queue), min(left_ms, ATTEMPT_TIMEOUT_MS)
        )
        if reply.code != ResponseCode.SUCCESS and not self._options.accepts_less_durable:
            # A new master may lack the messages, and half messages could not be committed then.
            remark = reply.remark or "stored less durably than promised"
            error = CallRefused(reply.code, remark, definite=False)
            error.add_note(_less_durable_note(request, queue))
            raise error
        return reply

    def _call(self, request: SendRequest, queue: MessageQueue) -> Send:
        now_ms, group = self._clock.now_ms(), self._options.group
        # Brokers make an unknown topic as a copy of this one: of itself there is none.
        template = AUTO_CREATE_TOPIC if self._options.creates_topics else request.topic
        if request.properties is None:
            return SendBatch(
                batch=True,
                body=request.body,
                producer_group=group,
                topic=request.topic,
                default_topic=template,
                default_topic_queue_nums=NEW_QUEUES,
                queue_id=queue.queue_id,
                born_timestamp=now_ms,
            )
        return Send(
            body=request.body,
            producer_group=group,
            topic=request.topic,
            default_topic=template,
            default_topic_queue_nums=NEW_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=int(SysFlag.TRANSACTION_PREPARED) if self._options.transactional else 0,
            born_timestamp=now_ms,
            flag=request.flag,
            properties=request.properties,
        )


def _rows_of(request: SendRequest) -> str:
    last = request.row + request.count - 1
    rows = f"row {last}" if request.count == 1 else f"rows from {request.row} to about {last}"
    return f"{rows} of this partition"


def _less_durable_note(request: SendRequest, queue: MessageQueue) -> str:
    return (
        f"{_rows_of(request)} are stored in {queue}, but less durably than its broker promises, "
        "and a new master may lack them: bring back its replicas or its disk, or lower its "
        "inSyncReplicas, and write again; where roles are fixed lessDurable=accept counts such "
        "rows as written"
    )


def _failure_note(request: SendRequest, queue: MessageQueue, error: CallError) -> str:
    text = f"{_rows_of(request)} could not be sent to {queue}"
    if isinstance(error, CallRefused) and error.code == ResponseCode.MESSAGE_ILLEGAL:
        return f"{text}; if the broker's limits are lower, set maxMessageSize and batchBytes"
    return text
