"""PopBatch: the messages that one pop took from one queue, and their acknowledgements."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from roquet.client.arguments import check_number
from roquet.client.reading.message import InboundMessage, MessageContext, ReceivedMessage
from roquet.model import properties as names
from roquet.model.message import V_co
from roquet.model.queue import MessageQueue
from roquet.wire.calls.pop import PopAck, PopReply, encode_bits
from roquet.wire.receipt_handle import (
    ReceiptHandle,
    decode_receipt_handle,
    parse_starts,
    retry_kind,
    stored_topic,
)
from roquet.wire.records.record import Record, decode_properties


class PopAcknowledger(Protocol):
    """Tells the broker how messages were settled."""

    def ack(self, batch: "PopBatch") -> None:
        """Acknowledge the newly finished messages of a batch."""

    def retry(self, batch: "PopBatch", message: InboundMessage, delay_ms: int | None) -> None:
        """Let a message come again after a delay, or give it up."""

    async def extend(
        self,
        batch: "PopBatch",
        message: "PoppedMessage[Any]",
        invisible_ms: int,
        suspend: bool | None = None,
    ) -> "PopBatch":
        """Change a message's invisible time; return its new batch, of this message alone.

        With `suspend` its next delivery does not count as a try.
        """


class PopTarget(msgspec.Struct, frozen=True):
    """One topic of one broker, as a group pops it."""

    broker: str
    topic: str
    group: str
    acks: PopAcknowledger
    elapsed_ms: Callable[[], int]
    """Monotonic time in ms: see `boottime`, since a broker counts while this machine sleeps."""
    messages: MessageContext = MessageContext()


class PopBatch:
    """Messages of one queue that are invisible to other members for a time."""

    __slots__ = ("acked", "expires_ms", "failed", "handle", "is_listed", "queue", "target")

    def __init__(self, target: PopTarget, handle: ReceiptHandle) -> None:
        self.target = target
        self.handle = handle
        self.queue = MessageQueue(target.topic, target.broker, handle.queue_id)
        self.expires_ms = target.elapsed_ms() + handle.invisible_ms
        """On this client's clock, from the arrival of the reply: a pop may have waited for long."""
        self.acked = 0
        """Bit n is set while the message at offset `start + n` is finished and not acknowledged
        yet."""
        self.failed = 0
        """Bit n is set once the message at offset `start + n` has become a dead letter."""
        self.is_listed = False

    @property
    def context(self) -> MessageContext:
        """Context that the messages share with all others of their consumer."""
        return self.target.messages

    @property
    def is_held(self) -> bool:
        """Whether the messages are still invisible to others."""
        return self.target.elapsed_ms() < self.expires_ms

    def finish(self, message: InboundMessage, *, has_failed: bool = False) -> None:
        """Mark the message as finished, after a success or as a dead letter."""
        bit = 1 << message.queue_offset - self.handle.start
        self.acked |= bit
        if has_failed:
            self.failed |= bit
        if not self.is_listed:
            self.is_listed = True
            self.target.acks.ack(self)

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        """Let the message come again after a delay; None takes the group's back-off."""
        self.target.acks.retry(self, message, delay_ms)

    @property
    def real_topic(self) -> str:
        """The topic that stores the messages."""
        return stored_topic(self.target.topic, self.target.group, self.handle.retry)

    def take_acks(self) -> PopAck:
        """Take the pending acknowledgements of the batch."""
        handle, bits = self.handle, self.acked
        self.acked, self.is_listed = 0, False
        return PopAck(
            group=self.target.group,
            topic=self.target.topic,
            retry=handle.retry,
            start=handle.start,
            queue_id=handle.queue_id,
            revive_queue=handle.revive_queue,
            pop_ms=handle.pop_ms,
            invisible_ms=handle.invisible_ms,
            bits=encode_bits(bits),
        )


class BatchInExtension(PopBatch):
    """Owner of a message while it is extended: keeps its settlement for the new handle.

    The handle under which it was popped settles nothing any more once the broker has extended it.
    """

    __slots__ = ("_settlement", "ended")

    def __init__(self, batch: PopBatch) -> None:
        super().__init__(batch.target, batch.handle)
        self.expires_ms = batch.expires_ms
        self._settlement: Callable[[PopBatch], object] | None = None
        self.ended = asyncio.Event()

    def finish(self, message: InboundMessage, *, has_failed: bool = False) -> None:
        """See PopBatch."""
        self._settlement = lambda batch: batch.finish(message, has_failed=has_failed)

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        """See PopBatch."""
        self._settlement = lambda batch: batch.retry(message, delay_ms)

    def end(self, batch: PopBatch) -> None:
        """Settle the message in its new batch, or in the old one if it was not extended."""
        self.ended.set()
        if self._settlement is not None:
            self._settlement(batch)


class PoppedMessage(ReceivedMessage[V_co]):
    """A message taken for a limited time; it comes again unless it is acknowledged within it."""

    _owner: PopBatch

    async def extend(self, invisible_ms: int) -> None:
        """Keep the message for this long from now; CallRefused when its time has passed already.

        Does nothing to a message that is settled; one that is settled meanwhile stays so.
        """
        check_number(invisible_ms, "invisible_ms", 1)
        batch = await self._extended()
        if self._is_settled:
            return
        self._owner = extension = BatchInExtension(batch)
        try:
            batch = await batch.target.acks.extend(batch, self, invisible_ms)
        finally:
            self._owner = batch
            extension.end(batch)

    async def suspend(self, delay_ms: int) -> None:
        """Let the message come again after a pause, without counting a try.

        Raises CallRefused when its time has passed already. Brokers older than this feature count
        the try.
        """
        check_number(delay_ms, "delay_ms", 1)
        batch = await self._extended()
        if not self._is_settled:
            await batch.target.acks.extend(batch, self, delay_ms, suspend=True)
            self._is_settled = True

    async def _extended(self) -> PopBatch:
        """Its batch, once no extension is under way."""
        while isinstance(self._owner, BatchInExtension):
            await self._owner.ended.wait()
        return self._owner

    @cached_property
    def first_popped_ms(self) -> int:
        """Time of the first pop, by the broker's clock."""
        return int(self.properties.get(names.FIRST_POP_TIME, self._owner.handle.pop_ms))


class ReplyHandles:
    """Receipt handles of the records of one pop reply."""

    def __init__(self, reply: PopReply, broker: str) -> None:
        self._reply = reply
        self._broker = broker
        self.starts = parse_starts(reply.start_offset_info) if reply.start_offset_info else {}
        """First offset popped of each queue; empty if the broker does not say."""

    def handle_of(self, record: Record) -> ReceiptHandle:
        """The handle of a record; FieldError for one of a retry topic that cannot be read."""
        if (own := self.own_handle_of(record)) is not None:
            return own
        reply, kind = self._reply, retry_kind(record.topic)
        return ReceiptHandle(
            start=self.starts.get(f"{kind}@{record.queue_id}", record.queue_offset),
            pop_ms=reply.pop_time,
            invisible_ms=reply.invisible_time,
            revive_queue=reply.revive_qid,
            retry=kind,
            broker=self._broker,
            queue_id=record.queue_id,
            offset=record.queue_offset,
        )

    def own_handle_of(self, record: Record) -> ReceiptHandle | None:
        """The handle that a record of a retry topic carries; None for other records."""
        if b"POP_CK\x01" not in record.properties:  # spares others the decoding
            return None
        text = decode_properties(record.properties).get(names.POP_CK)
        return None if text is None else decode_receipt_handle(text)


class PopReplyParser:
    """Builds the messages of one pop reply, each with the batch of its queue."""

    def __init__(self, target: PopTarget, reply: PopReply) -> None:
        self._target = target
        self._handles = ReplyHandles(reply, target.broker)
        self._popped: dict[tuple[str, int], PopBatch] = {}
        """By kind of topic and queue id. Retry messages come under the popped topic's name, which
        does not tell them from others."""

    def messages(self, records: Sequence[Record]) -> list[PoppedMessage]:
        """Build the messages of the reply's records."""
        return [self._message(record) for record in records]

    def _message(self, record: Record) -> PoppedMessage:
        batch = self._batch(record)
        return PoppedMessage(batch.queue, record, batch)

    def _batch(self, record: Record) -> PopBatch:
        if (handle := self._handles.own_handle_of(record)) is None:
            batch = self._popped.get((retry_kind(record.topic), record.queue_id))
            if batch is not None:
                return batch
            handle = self._handles.handle_of(record)
            if not self._handles.starts:
                # Older brokers do not say where a pop begins: each message is a batch of its own.
                return PopBatch(self._target, handle)
        else:
            batch = self._popped.get((handle.retry, handle.queue_id))
            if batch is not None and batch.handle.start == handle.start:
                return batch
        batch = self._popped[handle.retry, handle.queue_id] = PopBatch(self._target, handle)
        return batch
