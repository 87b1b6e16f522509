"""Outgoing: a batch of messages as one request, and the receipts that its reply is."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from roquet.client.config import Around, ProducerConfig
from roquet.client.sending.prepare import PreparedMessage
from roquet.client.sending.send_contexts import send_within
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import encode_batch

if TYPE_CHECKING:
    from roquet.client.spans.client_spans import ClientSpans

SEND_STATUSES: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class OutgoingBatch(msgspec.Struct, frozen=True):
    """Messages of one topic that are sent to one queue in one request."""

    items: Sequence[PreparedMessage]
    lead: PreparedMessage
    """The message that decides on the queue."""

    @classmethod
    def of(cls, items: Sequence[PreparedMessage]) -> "OutgoingBatch":
        """A batch led by its first message with a fixed queue, if it has one."""
        lead = items[0]
        if len(items) > 1 and not lead.is_bound:
            lead = next((item for item in items if item.is_bound), lead)
        return cls(items, lead)

    @property
    def topic(self) -> str:
        """The topic of all messages."""
        return self.lead.topic


StoredListener: TypeAlias = Callable[
    [OutgoingBatch, Sequence[SendReceipt], str, str | None, int], object
]
"""Called with a stored batch, its receipts, the address and region of its broker, and the time at
which the send began, on the monotonic clock."""


def with_create_span(spans: "ClientSpans", prepared: PreparedMessage) -> PreparedMessage:
    """The message with the context of a span of its own."""
    context = spans.create(prepared.topic, prepared.properties, len(prepared.body))
    return prepared.with_context(context)


async def send_in_span(
    spans: "ClientSpans | None",
    outgoing: OutgoingBatch,
    send: Callable[[OutgoingBatch], Awaitable[Sequence[SendReceipt]]],
    around: Sequence[Around] = (),
) -> Sequence[SendReceipt]:
    """Send messages that have spans of their own, in one span that is linked to those.

    All of it is within the contexts of `around`.
    """
    if around:
        given = [item.message for item in outgoing.items]
        return await send_within(around, given, lambda: send_in_span(spans, outgoing, send))
    if spans is None:
        return await send(outgoing)
    with spans.send_created(outgoing.topic, [item.properties for item in outgoing.items]) as span:
        receipts = await send(outgoing)
        span.stored(receipts[0])
        return receipts


def send_call(
    outgoing: OutgoingBatch, queue: MessageQueue, group: str, config: ProducerConfig
) -> Send:
    """The request that stores a batch in a queue."""
    first = outgoing.items[0]
    if len(outgoing.items) == 1:
        body, sys_flag = first.compressed(config)
        return Send(
            body=body,
            producer_group=group,
            topic=first.topic,
            default_topic_queue_nums=config.new_topic_queues,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=first.born_ms,
            flag=first.flag,
            properties=first.properties,
        )
    return SendBatch(
        batch=True,
        body=encode_batch(outgoing.items),
        producer_group=group,
        topic=first.topic,
        default_topic_queue_nums=config.new_topic_queues,
        queue_id=queue.queue_id,
        born_timestamp=first.born_ms,
    )


def build_receipts(
    outgoing: OutgoingBatch, queue: MessageQueue, reply: SendReply, tries: int = 1
) -> Sequence[SendReceipt]:
    """The receipts of a reply: a batch has consecutive offsets in its queue."""
    if reply.queue_id != queue.queue_id:  # the broker chose another queue
        queue = MessageQueue(queue.topic, queue.broker_name, reply.queue_id)
    status = SEND_STATUSES[reply.code]
    if len(outgoing.items) == 1:
        return (
            SendReceipt(
                status=status,
                message_id=outgoing.lead.message_id,
                offset_message_id=reply.msg_id,
                queue=queue,
                queue_offset=reply.queue_offset,
                tries=tries,
                recall_handle=reply.recall_handle,
            ),
        )
    ids = reply.msg_id.split(",")
    if len(ids) != len(outgoing.items):  # a topic of whole batches stores them under one id
        ids = [reply.msg_id] * len(outgoing.items)
    return [
        SendReceipt(
            status=status,
            message_id=item.message_id,
            offset_message_id=offset_id,
            queue=queue,
            queue_offset=offset,
            tries=tries,
        )
        for offset, (item, offset_id) in enumerate(
            zip(outgoing.items, ids, strict=True), reply.queue_offset
        )
    ]
