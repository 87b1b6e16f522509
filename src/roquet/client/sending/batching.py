"""Batching: concurrent awaited sends leave as batches.

    send ──▶ queue of the topic      ▣▣▣▣ ──▶ a batch to the next queue in turn ──▶ receipts
    send ──▶ queue of an order key   ▣▣   ──▶ one batch at a time, in order     ──▶ receipts

A batch is sent after `linger_ms`, or when it is full. Each message has its own receipt or error.
Delayed messages, and retries of other groups' messages, cannot be part of a batch.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, TypeAlias

import msgspec

from roquet.client.config import ProducerConfig
from roquet.client.connection.background import BackgroundTasks
from roquet.client.sending.delivery import MessageDelivery, RoundRobin
from roquet.client.sending.outgoing import OutgoingBatch
from roquet.client.sending.prepare import PreparedMessage
from roquet.client.sending.send_many import BATCH_COUNT_MAX
from roquet.model.errors import CallError, ConnectFailed, ConnectionLost
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt
from roquet.rules.send_retry import is_retryable

DEADLINE_SPREAD_MS: Final = 500
"""Largest difference of deadlines in one batch, which has the deadline of its first message."""

CLOSED_MEANWHILE: Final = "the producer was closed before the answer came: it may be stored"

ReceiptFuture: TypeAlias = asyncio.Future[SendReceipt]


class PendingSend(msgspec.Struct, frozen=True):
    """A message that waits, the future of its receipt, and its deadline."""

    prepared: PreparedMessage
    answer: ReceiptFuture
    deadline_ms: int
    is_alone: bool
    """Whether the message is sent by itself; only then its body is compressed."""

    def fits(self, first: "PendingSend") -> bool:
        """Whether the message may be in one batch with another."""
        return not (
            first.is_alone
            or self.is_alone
            or abs(self.deadline_ms - first.deadline_ms) > DEADLINE_SPREAD_MS
        )


class BatchAccumulator:
    """The waiting messages of one producer, by topic or by queue."""

    def __init__(
        self, delivery: MessageDelivery, config: ProducerConfig, background: BackgroundTasks
    ) -> None:
        self.delivery = delivery
        self.config = config
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._batch_queues: dict[str | MessageQueue, BatchQueue] = {}
        self.lingers = True
        """Whether messages wait for a batch; False while the producer is closing."""

    def send(
        self, prepared: PreparedMessage, deadline_ms: int, turn: RoundRobin
    ) -> Awaitable[SendReceipt]:
        """Send one message as part of a batch; await the result for its receipt."""
        is_alone = prepared.is_unbatchable or len(prepared.body) >= self.config.compress_from
        if prepared.selection is not None or prepared.order_hash is not None:
            return self._send_in_order(prepared, deadline_ms, turn, is_alone=is_alone)
        if is_alone:
            return self._send_alone(prepared, deadline_ms, turn)
        return self._put(prepared.topic, prepared, deadline_ms, is_alone=False)

    async def _send_in_order(
        self, prepared: PreparedMessage, deadline_ms: int, turn: RoundRobin, *, is_alone: bool
    ) -> SendReceipt:
        queue = await self.delivery.choose_in_order(prepared, deadline_ms, turn)
        return await self._put(queue, prepared, deadline_ms, is_alone=is_alone)

    async def _send_alone(
        self, prepared: PreparedMessage, deadline_ms: int, turn: RoundRobin
    ) -> SendReceipt:
        outgoing = OutgoingBatch((prepared,), prepared)
        return (await self.delivery.send(outgoing, deadline_ms, None, turn))[0]

    def _put(
        self,
        key: str | MessageQueue,
        prepared: PreparedMessage,
        deadline_ms: int,
        *,
        is_alone: bool,
    ) -> ReceiptFuture:
        batch_queue = self._batch_queues.get(key)
        if batch_queue is None:
            batch_queue = self._batch_queues[key] = BatchQueue(self, key)
        answer: ReceiptFuture = self._loop.create_future()
        batch_queue.put(PendingSend(prepared, answer, deadline_ms, is_alone))
        return answer

    def start(self, batch: Sequence[PendingSend], batch_queue: "BatchQueue") -> None:
        """Send a batch in the background."""
        self._background.start(self._deliver(batch, batch_queue), f"batch of {batch_queue.key}")

    async def _deliver(self, batch: Sequence[PendingSend], batch_queue: "BatchQueue") -> None:
        queue = batch_queue.key if isinstance(batch_queue.key, MessageQueue) else None
        try:
            await self._send(batch, queue)
        finally:
            for entry in batch:  # without an answer: the producer is being closed
                if not entry.answer.done():
                    entry.answer.set_exception(ConnectionLost(CLOSED_MEANWHILE))
            batch_queue.note_sent()

    async def _send(self, batch: Sequence[PendingSend], queue: MessageQueue | None) -> None:
        outgoing = OutgoingBatch.of([entry.prepared for entry in batch])
        try:
            receipts = await self.delivery.send(outgoing, batch[0].deadline_ms, queue)
        except Exception as error:
            if len(batch) > 1 and isinstance(error, CallError) and not is_retryable(error):
                await self._one_by_one(batch, queue)
                return
            for entry in batch:
                if not entry.answer.done():
                    entry.answer.set_exception(_copy_error(error))
            return
        for entry, receipt in zip(batch, receipts, strict=True):
            if not entry.answer.done():  # the sender may have been cancelled
                entry.answer.set_result(receipt)

    async def _one_by_one(self, batch: Sequence[PendingSend], queue: MessageQueue | None) -> None:
        """Send the messages of a refused batch one by one, so that only the faulty one fails."""
        for entry in batch:
            if not entry.answer.done():
                await self._send([entry], queue)

    def flush(self) -> None:
        """Send all waiting messages now."""
        for batch_queue in self._batch_queues.values():
            batch_queue.flush()

    def close(self) -> None:
        """Fail all waiting messages."""
        for batch_queue in self._batch_queues.values():
            batch_queue.close()


class BatchQueue:
    """Messages that may share a batch: of one topic for any queue, or of one fixed queue."""

    def __init__(self, owner: BatchAccumulator, key: str | MessageQueue) -> None:
        self.key = key
        self._owner = owner
        self._linger_s = (owner.config.linger_ms or 0) / 1000
        self._size_max = min(owner.config.batch_bytes, owner.config.body_size_max)
        self._is_bound = isinstance(key, MessageQueue)
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[PendingSend] = deque()
        self._size = 0
        self._under_way = 0
        self._timer: asyncio.Handle | None = None

    def put(self, entry: PendingSend) -> None:
        """Add a message."""
        waiting = self._waiting
        waiting.append(entry)
        self._size += entry.prepared.batch_size
        if self._is_bound and self._under_way:
            return  # it leaves with the next batch, after the one under way
        is_full = self._size >= self._size_max or len(waiting) >= BATCH_COUNT_MAX
        if is_full or not self._owner.lingers:
            self._send_waiting()
        elif self._timer is None:
            self._timer = (
                self._loop.call_later(self._linger_s, self._send_waiting)
                if self._linger_s
                else self._loop.call_soon(self._send_waiting)
            )

    def note_sent(self) -> None:
        """Note that a batch has its receipts."""
        self._under_way -= 1
        if self._is_bound and self._waiting:
            self._send_waiting()

    def flush(self) -> None:
        """Send the waiting messages now."""
        if self._waiting and not (self._is_bound and self._under_way):
            self._send_waiting()

    def close(self) -> None:
        """Fail the waiting messages with a definite error."""
        self._stop_timer()
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(ConnectFailed("the producer was closed; it was not sent"))

    def _send_waiting(self) -> None:
        """Send the waiting messages: all of them, or the first batch of a fixed queue."""
        self._stop_timer()
        while self._waiting and not (self._is_bound and self._under_way):
            if batch := self._batch():
                self._under_way += 1
                self._owner.start(batch, self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _batch(self) -> list[PendingSend]:
        """Take the next messages that may share a batch; empty when all their senders gave up."""
        waiting, batch = self._waiting, list[PendingSend]()
        room_bytes = self._size_max
        now_ms = self._owner.config.clock.monotonic_ms()
        while waiting and len(batch) < BATCH_COUNT_MAX:
            entry = waiting[0]
            room_bytes -= entry.prepared.batch_size
            if batch and (room_bytes < 0 or not entry.fits(batch[0])):
                break
            waiting.popleft()
            self._size -= entry.prepared.batch_size
            if _is_awaited(entry, now_ms):
                batch.append(entry)
        return batch


def _is_awaited(entry: PendingSend, now_ms: int) -> bool:
    """Whether the sender still waits; a message past its deadline gets an error."""
    if entry.answer.done():
        return False
    if entry.deadline_ms > now_ms:
        return True
    late = CallError("its timeout passed while it waited; it was not sent", definite=True)
    entry.answer.set_exception(late)
    return False


def _copy_error(error: Exception) -> Exception:
    """Copy an error: raising one object in many tasks would make its traceback grow."""
    twin = type(error).__new__(type(error))
    twin.args = error.args
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error
    return twin
