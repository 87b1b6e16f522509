"""Popped: what one pop of one queue gave us, and which of its messages are handled."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from roquet.client.reading.message import InboundMessage, ReceivedMessage
from roquet.model import properties as names
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock
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
    """Who tells the broker how it went."""

    def done(self, batch: "PopBatch") -> None:
        """Some of its messages are handled."""

    def again(self, batch: "PopBatch", message: InboundMessage, delay_ms: int | None) -> None:
        """A message shall come again, or is given up."""

    async def extend(self, batch: "PopBatch", message: "PoppedMessage", invisible_ms: int) -> None:
        """A message stays ours for longer."""

    async def reply(
        self, message: InboundMessage, body: bytes, properties: Mapping[str, str]
    ) -> bool:
        """A message, which is a request, is answered."""


class PopTarget:
    """One topic of one broker, as a group pops it."""

    __slots__ = ("acks", "broker", "clock", "group", "namespace", "topic")

    def __init__(
        self, broker: str, topic: str, group: str, acks: PopAcknowledger, clock: Clock
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.group = group
        self.acks = acks
        self.clock = clock
        self.namespace: str | None = None


class PopBatch:
    """Messages of one queue that nobody else gets until their time is over."""

    __slots__ = ("acked", "expires_ms", "handle", "is_listed", "queue", "target")

    def __init__(self, target: PopTarget, handle: ReceiptHandle) -> None:
        self.target = target
        self.handle = handle
        self.queue = MessageQueue(target.topic, target.broker, handle.queue_id)
        self.expires_ms = target.clock.monotonic_ms() + handle.invisible_ms
        """By our own clock, from when we hear of it: a pop may have waited for long."""
        self.acked = 0
        """Bit n: the message at offset `start + n` is handled, and the broker not told yet."""
        self.is_listed = False

    @property
    def namespace(self) -> str | None:
        """What messages do not show of their topic's name."""
        return self.target.namespace

    @property
    def is_held(self) -> bool:
        """Whether the messages are still ours."""
        return self.target.clock.monotonic_ms() < self.expires_ms

    def finish(self, message: InboundMessage) -> None:
        """The message is handled."""
        self.acked |= 1 << message.queue_offset - self.handle.start
        if not self.is_listed:
            self.is_listed = True
            self.target.acks.done(self)

    def again(self, message: InboundMessage, delay_ms: int | None) -> None:
        """The message comes again after a time; by its group's back-off when none is given."""
        self.target.acks.again(self, message, delay_ms)

    async def reply(
        self, message: InboundMessage, body: bytes, properties: Mapping[str, str]
    ) -> bool:
        """Answer a message, which is a request."""
        return await self.target.acks.reply(message, body, properties)

    @property
    def real_topic(self) -> str:
        """The topic that the messages lie in."""
        return stored_topic(self.target.topic, self.target.group, self.handle.retry)

    def take_acks(self) -> PopAck:
        """What is handled and not told yet: told now."""
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


class PoppedMessage(ReceivedMessage):
    """A message that is ours for a time, and comes again when it is not acknowledged within it."""

    _owner: PopBatch

    async def extend(self, invisible_ms: int) -> None:
        """Keep it for so long from now on; CallRefused when its time has passed already."""
        await self._owner.target.acks.extend(self._owner, self, invisible_ms)

    @cached_property
    def first_popped_ms(self) -> int:
        """When it was given out for the first time, by the broker's clock."""
        return int(self.properties.get(names.FIRST_POP_TIME, self._owner.handle.pop_ms))

    def moved(self, batch: PopBatch) -> None:
        """It is another pop's now."""
        self._owner = batch


class PopReplyParser:
    """The messages of one reply, each with the pop of its queue."""

    def __init__(self, target: PopTarget, reply: PopReply) -> None:
        self._target = target
        self._reply = reply
        self._starts = parse_starts(reply.start_offset_info) if reply.start_offset_info else {}
        self._popped: dict[tuple[str, int], PopBatch] = {}

    def messages(self, found: Sequence[Record]) -> list[PoppedMessage]:
        """The messages of the reply's records."""
        return [self._message(record) for record in found]

    def _message(self, record: Record) -> PoppedMessage:
        if b"POP_CK\x01" in record.properties:
            batch = self._from_handle(record)
        else:
            kind = retry_kind(record.topic)
            key = (kind, record.queue_id)
            batch = self._popped.get(key) or self._from_info(kind, record)
        return PoppedMessage(batch.queue, record, batch)

    def _from_handle(self, record: Record) -> PopBatch:
        """A message of the retry topic, which brings its handle along."""
        handle = decode_receipt_handle(decode_properties(record.properties)[names.POP_CK])
        key = (handle.retry, handle.queue_id)
        known = self._popped.get(key)
        if known is None or known.handle.start != handle.start:
            known = self._popped[key] = PopBatch(self._target, handle)
        return known

    def _from_info(self, kind: str, record: Record) -> PopBatch:
        reply, key = self._reply, f"{kind}@{record.queue_id}"
        handle = ReceiptHandle(
            start=self._starts.get(key, record.queue_offset),
            pop_ms=reply.pop_time,
            invisible_ms=reply.invisible_time,
            revive_queue=reply.revive_qid,
            retry=kind,
            broker=self._target.broker,
            queue_id=record.queue_id,
            offset=record.queue_offset,
        )
        batch = PopBatch(self._target, handle)
        if self._starts:  # older brokers do not say: each message is its own pop then
            self._popped[kind, record.queue_id] = batch
        return batch
