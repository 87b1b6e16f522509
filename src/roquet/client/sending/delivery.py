"""Delivery: send a batch to a queue, and retry it on that queue or on another one.

A batch with a fixed queue (by an order key, or by a selector that chose it) is retried on that
queue or fails: a retry never overtakes, and its receipt or error names that queue. Other batches go
to another broker, if there is one. A message keeps its unique key in every attempt. A broker with
replicas may get a new master, which is waited for until the deadline.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from roquet.client.arguments import check_timeout
from roquet.client.config import ProducerConfig
from roquet.client.connection.chosen_pauses import ChosenPauses
from roquet.client.connection.session import Session
from roquet.client.sending.fault_tolerance import FaultTolerance
from roquet.client.sending.outgoing import OutgoingBatch, StoredListener, build_receipts, send_call
from roquet.client.sending.outstanding_sends import KeyOrder, OutstandingSends
from roquet.client.sending.prepare import PreparedMessage
from roquet.model.errors import CallError, ConnectFailed, RoquetError
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt
from roquet.rules.backoff import backoff_ms
from roquet.rules.queue_selection import by_hash, next_queue
from roquet.rules.send_retry import (
    Retry,
    is_retryable,
    may_be_failover,
    needs_fresh_route,
    retry_of,
)
from roquet.wire.calls.send import Send

if TYPE_CHECKING:
    from roquet.client.metrics import SendSeries

RETRY_PAUSE_MS: Final = 100
"""Pause before the first retry on the same broker; it doubles. Another broker is tried at once."""

RETRY_PAUSE_MS_MAX: Final = 500
"""Longest pause between two attempts: a new master is found within it."""

FAILOVER_PAUSE_MS: Final = 50
"""Pause before the second question who is the master now: an election takes about 100 ms."""


class RoundRobin:
    """A sender's round-robin position: starts anywhere, and only grows."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class MessageDelivery:
    """Sends batches to the queue that a key, a selector or round robin chooses."""

    def __init__(self, session: Session, config: ProducerConfig, group: str) -> None:
        self._session = session
        self.config = config
        self._group = group
        self._turn = self.new_round_robin()
        self.on_stored: StoredListener | None = None
        self.tolerance = FaultTolerance(session, config)
        self._series: dict[str, SendSeries] = {}
        self.send = self._send if config.metrics is None else self._send_counted
        self.chosen_pauses = ChosenPauses(config.backoff)
        self.outstanding = OutstandingSends()
        self._routing = KeyOrder(config.clock)
        """Messages with a fixed queue whose route is unknown wait here, in order."""

    def new_round_robin(self) -> RoundRobin:
        """A round-robin position that starts at a random queue."""
        return RoundRobin(self.config.rng.getrandbits(16))

    def known_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The known queues of a topic for writing; a new list whenever the route has changed."""
        return self._session.routes.writable(topic)

    def deadline_ms(self, timeout_ms: int | None = None) -> int:
        """The deadline of a send that begins now, on the monotonic clock."""
        if timeout_ms is None:
            timeout_ms = self.config.send_timeout_ms
        else:
            check_timeout(timeout_ms, least=1)
        return self.config.clock.monotonic_ms() + timeout_ms

    async def queues(self, topic: str, deadline_ms: int | None = None) -> Sequence[MessageQueue]:
        """The queues of a topic for writing; waits for the first one, by default as a send does."""
        routes = self._session.routes
        deadline_ms = self.deadline_ms() if deadline_ms is None else deadline_ms
        queues = routes.writable(topic)
        while not queues:
            await routes.find_writable(topic, self.config.new_topic_queues, deadline_ms)
            queues = routes.writable(topic)
        return queues

    def choose(
        self,
        queues: Sequence[MessageQueue],
        prepared: PreparedMessage,
        avoid: str | None = None,
        turn: RoundRobin | None = None,
    ) -> MessageQueue:
        """Choose a queue by the message's selector, its order key, or round robin."""
        usable = self.tolerance.usable() if self.tolerance.faults else None
        if prepared.selection is not None:
            return prepared.selection.choose(queues, avoid, usable)
        if prepared.order_hash is not None:
            return queues[by_hash(prepared.order_hash, len(queues))]
        turn = turn or self._turn
        queue, turn.value = next_queue(queues, turn.value, avoid=avoid, at_fault=usable)
        return queue

    async def choose_in_order(
        self, prepared: PreparedMessage, deadline_ms: int, turn: RoundRobin | None = None
    ) -> MessageQueue:
        """Choose a queue for an ordered message, also while its topic's route is unknown."""
        queues = self.known_queues(prepared.topic)
        line = (prepared.topic, 0)
        if queues is None or line in self._routing:
            ticket = await self._routing.acquire(line, deadline_ms)
            try:
                queues = await self.queues(prepared.topic, deadline_ms)
            finally:
                self._routing.release(line, ticket)
        return self.choose(queues, prepared, turn=turn)

    async def _send_counted(
        self,
        outgoing: OutgoingBatch,
        deadline_ms: int | None = None,
        queue: MessageQueue | None = None,
        turn: RoundRobin | None = None,
    ) -> Sequence[SendReceipt]:
        return await self.count(outgoing, self._send(outgoing, deadline_ms, queue, turn))

    async def count(
        self, outgoing: OutgoingBatch, sending: Awaitable[Sequence[SendReceipt]]
    ) -> Sequence[SendReceipt]:
        """Wait for a send with all its tries, and count it where metrics are wanted."""
        metrics, clock, topic = self.config.metrics, self.config.clock, outgoing.topic
        if metrics is None:
            return await sending
        began_ms, is_stored = clock.monotonic_ms(), False
        if (series := self._series.get(topic)) is None:
            series = self._series[topic] = metrics.send_series(topic, self._group)
        try:
            receipts = await sending
            is_stored = True
        finally:
            series.count(len(outgoing.items), clock.monotonic_ms() - began_ms, is_stored=is_stored)
        return receipts

    async def _send(
        self,
        outgoing: OutgoingBatch,
        deadline_ms: int | None = None,
        queue: MessageQueue | None = None,
        turn: RoundRobin | None = None,
    ) -> Sequence[SendReceipt]:
        """Send a batch; return one receipt for each message. `queue` is the one to try first."""
        if deadline_ms is None:
            deadline_ms = self.deadline_ms()
        if queue is None:
            queues = self.known_queues(outgoing.topic) or await self.queues(
                outgoing.topic, deadline_ms
            )
            queue = self.choose(queues, outgoing.lead, turn=turn)
        try:
            receipts = await self.attempt(outgoing, queue, deadline_ms, 1)
        except CallError as error:
            return await SendRetries(self, outgoing, deadline_ms, turn).run(queue, error)
        if self.config.retry_less_durable and not receipts[0].ok:
            return await self._send_more_durably(outgoing, queue, deadline_ms, turn, receipts)
        return receipts

    async def send_oneway(self, outgoing: OutgoingBatch, turn: RoundRobin | None = None) -> None:
        """Hand a batch to the network without an acknowledgement."""
        queues = await self.queues(outgoing.topic)
        queue = self.choose(queues, outgoing.lead, turn=turn)
        address = self._session.routes.leader(queue.broker_name)
        await self._session.pool.oneway(address, self._call(outgoing, queue))

    def is_failover(self, error: CallError, broker_name: str, *, is_known: bool) -> bool:
        """Whether an attempt failed at a broker that may get a new master, and may be retried.

        With `is_known` the broker has replicas, though the route may not name them now.
        """
        has_replicas = is_known or self._has_replicas(broker_name)
        return bool(self.config.retry_times) and has_replicas and may_be_failover(error)

    def may_get_new_master(self, topic: str, error: CallError) -> bool:
        """Whether a send failed as it does while a broker of the topic changes its master."""
        brokers = self._session.routes.brokers_of(topic)
        has_replicas = any(self._has_replicas(broker.broker_name) for broker in brokers)
        return bool(self.config.retry_times) and has_replicas and may_be_failover(error)

    def _has_replicas(self, broker_name: str) -> bool:
        return bool(self._session.routes.followers(broker_name))

    async def refresh_route(self, topic: str, left_ms: int) -> None:
        """Refresh the topic's route, which may name a new master; without one the old one stays."""
        with suppress(RoquetError, TimeoutError):
            await asyncio.wait_for(self._session.routes.refresh(topic), left_ms / 1000)

    async def has_stale_queue(
        self, error: CallError, outgoing: OutgoingBatch, queue: MessageQueue
    ) -> bool:
        """Whether a broker refused a queue that a fresh route does not name any more."""
        if outgoing.lead.is_bound or retry_of(error) is not Retry.FRESH_ROUTE:
            return False
        try:
            return not await self._session.routes.is_still_writable(queue)
        except ConnectFailed:  # no fresh route
            return False

    async def _send_more_durably(
        self,
        outgoing: OutgoingBatch,
        queue: MessageQueue,
        deadline_ms: int,
        turn: RoundRobin | None,
        receipts: Sequence[SendReceipt],
    ) -> Sequence[SendReceipt]:
        """Send a batch again to durable brokers; return the first receipts if none stores it."""
        for tries in range(1, self.config.retry_times + 1):
            if outgoing.lead.is_bound or deadline_ms <= self.config.clock.monotonic_ms():
                break
            failed = queue
            queue = await self.another_queue(outgoing, failed, deadline_ms, turn)
            if queue.broker_name == failed.broker_name:
                break  # a second copy on this broker would be no more durable
            try:
                durable = await self.attempt(outgoing, queue, deadline_ms, tries + 1)
            except CallError:
                continue
            if durable[0].ok:
                return durable
        return receipts

    async def another_queue(
        self,
        outgoing: OutgoingBatch,
        failed: MessageQueue,
        deadline_ms: int,
        turn: RoundRobin | None,
    ) -> MessageQueue:
        """Choose a queue after an attempt at one has failed, of another broker if there is one."""
        queues = await self.queues(outgoing.topic, deadline_ms)
        return self.choose(queues, outgoing.lead, failed.broker_name, turn)

    async def attempt(
        self, outgoing: OutgoingBatch, queue: MessageQueue, deadline_ms: int, tries: int
    ) -> Sequence[SendReceipt]:
        """Send a batch once; `tries` is the number of this attempt. Raises CallError."""
        session, config = self._session, self.config
        began_ms = config.clock.monotonic_ms()
        timeout_ms = max(deadline_ms - began_ms, 1)
        if config.try_timeout_ms is not None:
            timeout_ms = min(timeout_ms, config.try_timeout_ms)
        try:
            address = session.routes.leader(queue.broker_name)
            reply = await session.pool.call(address, self._call(outgoing, queue), timeout_ms)
        except CallError as error:
            has_replicas = self._has_replicas(queue.broker_name)
            if needs_fresh_route(error, has_replicas=has_replicas):
                session.routes.invalidate()
            if config.fault_tolerance:
                self.tolerance.record_failure(queue, config.clock.monotonic_ms() - began_ms, error)
            raise
        if config.fault_tolerance:
            self.tolerance.record_success(queue, config.clock.monotonic_ms() - began_ms)
        receipts = build_receipts(outgoing, queue, reply, tries)
        if self.on_stored is not None:
            self.on_stored(outgoing, receipts, address, reply.region, began_ms)
        return receipts

    def _call(self, outgoing: OutgoingBatch, queue: MessageQueue) -> Send:
        return send_call(outgoing, queue, self._group, self.config)


class SendRetries:
    """Retries of one batch.

        error ──▶ to be retried? ──▶ another queue, unless it is bound to one ──▶ pause ──▶ attempt
                      └──▶ its master may be changing: pause ──▶ fresh route ──▶ queue ──▶ attempt

    Another broker is tried at once; a broker that was tried before only after a pause. Attempts at
    a broker whose master may be changing are not counted: they go on, each with a fresh route,
    until the deadline.
    """

    def __init__(
        self,
        delivery: MessageDelivery,
        outgoing: OutgoingBatch,
        deadline_ms: int,
        turn: RoundRobin | None,
    ) -> None:
        self._delivery = delivery
        self._clock = delivery.config.clock
        self._outgoing = outgoing
        self._deadline_ms = deadline_ms
        self._turn = turn
        self._left_tries = delivery.config.retry_times
        self._in_failover: set[str] = set()
        """Brokers whose master may be changing."""
        self._pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        self._failover_pauses_ms = backoff_ms(FAILOVER_PAUSE_MS, RETRY_PAUSE_MS_MAX)

    async def run(self, queue: MessageQueue, error: CallError) -> Sequence[SendReceipt]:
        """Retry after the first attempt has failed. Raises the last error, a CallError."""
        for tries in count(1):
            name = queue.broker_name
            is_known = name in self._in_failover
            is_failover = self._delivery.is_failover(error, name, is_known=is_known)
            if not await self._may_retry(error, queue, is_failover=is_failover):
                raise _with_attempts(error, self._outgoing, queue, tries)
            queue = await self._next_queue(queue, error, is_failover=is_failover)
            try:
                return await self._delivery.attempt(
                    self._outgoing, queue, self._deadline_ms, tries + 1
                )
            except CallError as next_error:
                error = next_error
        raise AssertionError("the loop ends by a return or an error")

    async def _may_retry(self, error: CallError, queue: MessageQueue, *, is_failover: bool) -> bool:
        if self._left_ms() <= 0 or not (self._left_tries or is_failover):
            return False
        return is_retryable(error) or await self._delivery.has_stale_queue(
            error, self._outgoing, queue
        )

    async def _next_queue(
        self, failed: MessageQueue, error: CallError, *, is_failover: bool
    ) -> MessageQueue:
        """The queue of the next attempt, once it is time for it."""
        if is_failover:
            pauses_ms, queue, tried = self._failover_pauses_ms, failed, self._in_failover
        else:
            self._left_tries -= 1
            pauses_ms, queue = self._pauses_ms, await self._chosen(failed)
            tried = self._in_failover | {failed.broker_name}
        if queue.broker_name in tried:
            pause_ms = next(pauses_ms)
            if not is_failover:
                attempt = self._delivery.config.retry_times - self._left_tries
                chosen_ms = self._delivery.chosen_pauses.pause_ms(attempt, error)
                pause_ms = pause_ms if chosen_ms is None else chosen_ms
            await self._clock.sleep(min(pause_ms, self._left_ms()))
        if is_failover:
            await self._delivery.refresh_route(self._outgoing.topic, self._left_ms())
            self._in_failover.add(failed.broker_name)
            queue = await self._chosen(failed)
        return queue

    async def _chosen(self, failed: MessageQueue) -> MessageQueue:
        if self._outgoing.lead.is_bound:
            return failed
        return await self._delivery.another_queue(
            self._outgoing, failed, self._deadline_ms, self._turn
        )

    def _left_ms(self) -> int:
        return max(self._deadline_ms - self._clock.monotonic_ms(), 0)


def _with_attempts(
    error: CallError, outgoing: OutgoingBatch, queue: MessageQueue, tries: int
) -> CallError:
    text = f"queue {queue}, {tries} {'try' if tries == 1 else 'tries'}"
    if outgoing.lead.is_bound:
        text += "; sent to no other queue, since order or selector bind it to this one"
    if text not in getattr(error, "__notes__", ()):  # errors are shared
        error.add_note(text)
    return error
