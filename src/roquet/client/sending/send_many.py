"""send_many: any number of messages, in one growing batch for each queue.

    messages ──▶ waiting for queue 0  ▣▣▣▣ ──▶ one batch at a time ──▶ receipts
             ──▶ waiting for queue 1  ▣▣   ──▶

A queue's next batch holds what has arrived while the last one was under way. So batches grow with
the distance to the broker, and the messages of one queue never overtake each other.
"""

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.client.config import BATCH_BYTES_MAX
from roquet.client.connection.background import cancel_and_wait
from roquet.client.sending.delivery import MessageDelivery
from roquet.client.sending.outgoing import OutgoingBatch, send_in_span
from roquet.client.sending.prepare import PreparedMessage
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt

if TYPE_CHECKING:
    from roquet.client.spans.client_spans import ClientSpans

IN_FLIGHT: Final = 10_000
"""Default limit of messages without a receipt: enough to fill batches of several queues."""

BATCH_COUNT_MAX: Final = 500
"""Largest number of messages in a batch, which the broker stores in one step while others wait."""

FEED_RUN: Final = 1_000
"""Messages that are prepared before the event loop sends and reads: brokers work meanwhile."""

MessageIterable = Iterable[Message[Any]] | AsyncIterable[Message[Any]]


class NumberedBatch:
    """Messages that share a batch, each with its number among all messages of the call."""

    __slots__ = ("messages", "numbers", "size")

    def __init__(self) -> None:
        self.messages: list[PreparedMessage] = []
        self.numbers: list[int] = []
        self.size = 0
        """Size as a batch, in bytes."""


class NumberedReceipts(msgspec.Struct, frozen=True):
    """Receipts of a batch, with the numbers of their messages."""

    numbers: Sequence[int]
    receipts: Sequence[SendReceipt]


class SendMany:
    """Messages under way: await it for all receipts, or iterate over them as they come."""

    def __init__(
        self,
        messages: MessageIterable,
        prepare: Callable[[Message[Any]], PreparedMessage],
        delivery: MessageDelivery,
        in_flight: int = IN_FLIGHT,
        *,
        spans: "ClientSpans | None" = None,
    ) -> None:
        self._messages = messages
        self._prepare = prepare
        self._delivery = delivery
        self._spans = spans
        self._in_flight_max = max(in_flight, 1)
        self._in_flight = 0
        self._number = 0
        self._without_route: PreparedMessage | None = None
        """A message that waits for its topic's route."""
        self._batchers: dict[MessageQueue, QueueBatcher] = {}
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self._sent: deque[NumberedReceipts] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._error: Exception | None = None

    def __await__(self) -> Generator[Any, None, Sequence[SendReceipt]]:
        return self._all().__await__()

    async def __aiter__(self) -> AsyncGenerator[SendReceipt, None]:
        async for sent in self._batches():
            for receipt in sent.receipts:
                yield receipt

    async def _all(self) -> Sequence[SendReceipt]:
        receipts: dict[int, SendReceipt] = {}
        async for sent in self._batches():
            receipts.update(zip(sent.numbers, sent.receipts, strict=True))
        return [receipts[number] for number in range(len(receipts))]

    async def _batches(self) -> AsyncIterator[NumberedReceipts]:
        feeding = asyncio.create_task(self._feed(), name="send_many")
        feeding.add_done_callback(lambda _: self._changed.set())
        try:
            while not feeding.done() or self._is_busy() or self._sent:
                await self._changed.wait()
                self._changed.clear()
                while self._sent:
                    yield self._sent.popleft()
                if self._error is not None:
                    feeding.cancel()
            if self._error is not None:
                raise self._error
            await feeding
        finally:
            await cancel_and_wait(
                feeding, *(batcher.task for batcher in self._batchers.values() if batcher.task)
            )

    async def _feed(self) -> None:
        """Put every message into its queue's batcher; wait while too many are under way."""
        messages, prepare, put = self._messages, self._prepare, self._put
        if isinstance(messages, AsyncIterable):
            async for message in messages:
                if not put(prepare(message)) and not await self._wait_for_room():
                    return
        else:
            for count, message in enumerate(messages, 1):
                if not put(prepare(message)) and not await self._wait_for_room():
                    return
                if not count % FEED_RUN:
                    await asyncio.sleep(0)

    def _put(self, prepared: PreparedMessage) -> bool:
        """Add a message to its queue's batcher; False when the caller has to wait or stop."""
        if self._error is not None:
            return False
        delivery, topic = self._delivery, prepared.topic
        queues = delivery.known_queues(topic)
        if queues is None or queues is not self._queues.get(topic):
            self._without_route = prepared
            return False
        queue = delivery.choose(queues, prepared)
        batcher = self._batchers.get(queue)
        if batcher is None:
            batcher = self._batchers[queue] = QueueBatcher(queue, self)
        batcher.put(self._number, prepared)
        self._number += 1
        self._in_flight += 1
        return self._in_flight < self._in_flight_max

    async def _wait_for_room(self) -> bool:
        """Wait for a route, or until fewer are under way; False after a failure."""
        while (prepared := self._without_route) is not None:
            self._without_route = None
            await self._fetch_queues(prepared.topic)
            self._put(prepared)
        if self._in_flight >= self._in_flight_max:
            await self._wait_until(self._in_flight_max * 3 // 4)
        return self._error is None

    async def _fetch_queues(self, topic: str) -> None:
        """Fetch the queues, after all earlier messages: a key may move to another queue."""
        if topic in self._queues:
            await self._wait_until(0)
        self._queues[topic] = await self._delivery.queues(topic)

    async def _wait_until(self, count: int) -> None:
        """Wait until at most `count` messages are under way, or one has failed."""
        while self._in_flight > count and self._error is None:
            self._room.clear()
            await self._room.wait()

    @property
    def _has_failed(self) -> bool:
        """Whether a batch has failed: then nothing more is sent, which might overtake it."""
        return self._error is not None

    def _is_busy(self) -> bool:
        return any(batcher.task is not None for batcher in self._batchers.values())

    async def _deliver(self, batch: NumberedBatch, queue: MessageQueue) -> None:
        """Send one queue's batch."""
        try:
            with self._delivery.outstanding.current:
                receipts = await send_in_span(
                    self._spans,
                    OutgoingBatch.of(batch.messages),
                    lambda outgoing: self._delivery.send(outgoing, None, queue),
                    self._delivery.config.around,
                )
        except Exception as error:
            if self._error is None:
                count = len(batch.messages)
                error.add_note(f"a batch of {count} messages for queue {queue} failed")
                self._error = error
        else:
            self._in_flight -= len(batch.messages)
            self._sent.append(NumberedReceipts(batch.numbers, receipts))
        self._wake()

    def _wake(self) -> None:
        """Wake the tasks that wait for a change."""
        self._room.set()
        self._changed.set()


class QueueBatcher:
    """One queue's waiting batches, and a task that sends them while there are any."""

    __slots__ = ("_open", "_owner", "_queue", "_waiting", "task")

    def __init__(self, queue: MessageQueue, owner: SendMany) -> None:
        self._queue = queue
        self._owner = owner
        self._waiting: deque[NumberedBatch] = deque()
        self._open: NumberedBatch | None = None
        """The last waiting batch, while it may grow."""
        self.task: asyncio.Task[None] | None = None

    def put(self, number: int, prepared: PreparedMessage) -> None:
        """Add a message to the last waiting batch, or to a new one; it is sent soon."""
        batch, size = self._open, prepared.batch_size
        if (
            batch is None
            or prepared.is_unbatchable
            or batch.size + size > BATCH_BYTES_MAX
            or len(batch.numbers) == BATCH_COUNT_MAX
        ):
            batch = NumberedBatch()
            self._waiting.append(batch)
            self._open = None if prepared.is_unbatchable else batch
            if self.task is None:
                self.task = asyncio.create_task(self._run(), name=f"batches of {self._queue}")
        batch.messages.append(prepared)
        batch.numbers.append(number)
        batch.size += size

    async def _run(self) -> None:
        try:
            while self._waiting and not self._owner._has_failed:
                batch = self._waiting.popleft()
                if batch is self._open:
                    self._open = None
                await self._owner._deliver(batch, self._queue)
        finally:
            self.task = None
            self._owner._wake()
