"""Producer: send, send_oneway, send_batch, send_many, request and recall."""

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack, overload

from msgspec.structs import replace

from roquet.client.arguments import check_number, check_plain_function
from roquet.client.config import ProducerConfig, Selector, config_or_default
from roquet.client.connection.session import Session
from roquet.client.sending.delivery import MessageDelivery, RoundRobin
from roquet.client.sending.outgoing import OutgoingBatch, send_in_span, with_create_span
from roquet.client.sending.outstanding_sends import KeyOrder, OrderKey
from roquet.client.sending.prepare import (
    MessageFields,
    MessagePreparer,
    PreparedMessage,
    build_message,
    check_messages,
)
from roquet.client.sending.send_contexts import send_within
from roquet.client.sending.send_many import IN_FLIGHT, SendMany
from roquet.client.tracing import open_tracer
from roquet.log_records import logger
from roquet.model.errors import FieldError, MessageIllegal, UsageError
from roquet.model.message import Message, V
from roquet.model.names import check_group, check_topic
from roquet.model.namespaces import wrap
from roquet.model.results import ReplyMessage, SendReceipt
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.rules.health import ClientHealth

if TYPE_CHECKING:
    from roquet.client.reading.request_reply import PendingRequests
    from roquet.client.sending.batching import BatchAccumulator

log = logger(__name__)

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"
"""Java's name; the group of a producer matters to transactions only."""


class Producer(Generic[V]):
    """Sends messages.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            receipt = await producer.send("orders", b"...", tag="new", keys=("4711",))

    `encode` makes the bodies of values: then `send("orders", order)` takes an order in the place of
    bytes, and so does the body of a `Message`. The name of the value's type is the property
    `body_type`.

    Safe for use by many tasks at once. It may be started before its name server or broker: a send
    waits for them until its timeout.

    Messages with the same order key go to one queue, one after the other; Java's hash of the key
    chooses it. Retries use that queue only. When the number of queues changes, a key may move to
    another queue, and its newer messages can then be consumed before the older ones. To avoid that,
    stop sending until the old queues are drained, or never change a topic's number of queues.
    """

    _batching: "BatchAccumulator | None" = None
    _requests: "PendingRequests | None" = None

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        config: ProducerConfig | None = None,
        encode: Callable[[V], bytes] | None = None,
    ) -> None:
        config = config_or_default(ProducerConfig, config)
        self._encode: Callable[[Message[V]], Message] | None = None
        if encode is not None:
            from roquet.client.sending.encoding import encode_message  # few encode

            check_plain_function(encode, "encode", "the value")
            self._encode = partial(encode_message, encode=encode)
        self.group = check_group(wrap(config.namespace, group))
        self._config = config
        self._session = Session(namesrv, config)
        self._session.open_spans()
        self._deliver = (
            self._deliver_plainly if self._session.spans is None else self._deliver_in_span
        )
        if config.around:
            self._deliver = self._deliver_in_contexts
        self._preparer = MessagePreparer(self._session.identity.keys, config)
        self._delivery = MessageDelivery(self._session, config, self.group)
        self._tracer = open_tracer(self._session, config, group)
        self._delivery.on_stored = self._tracer.sent if self._tracer is not None else None
        self._key_order = KeyOrder(config.clock)
        self._turn = self._new_round_robin()

    @property
    def client_id(self) -> str:
        """The id by which brokers know this producer."""
        return self._session.identity.client_id

    def health(self) -> ClientHealth:
        """Whether the producer is ready, and why not: at once, without asking anybody.

        A producer that has not sent yet knows no brokers, and is ready.
        """
        return self._session.health()

    async def start(self) -> None:
        """Open connections; `async with` does this."""
        self._session.start(self._data)
        self._session.membership.is_awaited = lambda: bool(self._requests)
        background = self._session.background
        if self._tracer is not None:
            self._tracer.start()
        if self._config.linger_ms is not None:
            from roquet.client.sending.batching import BatchAccumulator  # as few linger

            self._batching = BatchAccumulator(self._delivery, self._config, background)
        if self._config.fault_tolerance and self._config.fault_detector:
            background.supervise(self._delivery.tolerance.detect, "detector", self._config.clock)

    async def flush(self, timeout_ms: int | None = None) -> bool:
        """Send lingering messages now and wait until all earlier sends have a receipt or an error.

        Returns False when some are still under way after `timeout_ms`; None waits for their own
        timeouts.
        """
        self._session.check()
        if self._batching is not None:
            self._batching.flush()
        return await self._delivery.outstanding.flushed(timeout_ms)

    async def close(self) -> None:
        """Send lingering messages, leave the group and close the connections.

        Sends under way get `close_timeout_ms` to finish. After that, unsent messages fail with a
        definite error, and those that wait for a broker's answer with an indefinite one.
        """
        if self._session.is_open and not self._session.is_closing:
            self._session.check_owner()
            await asyncio.sleep(0)  # tasks that are about to send go first
            self._session.is_closing = True
            try:
                await self._finish_sends()
                if self._tracer is not None:
                    await self._tracer.close()
                await self._session.membership.leave(producer=self.group)
            finally:
                if self._batching is not None:
                    self._batching.close()
                if self._requests is not None:
                    self._requests.close()
                await self._session.close()

    async def _finish_sends(self) -> None:
        if self._batching is not None:
            self._batching.lingers = False
            self._batching.flush()
        limit_ms = self._config.close_timeout_ms
        if not await self._delivery.outstanding.flushed(limit_ms):
            log.warning("sends still under way after %d ms fail: the producer is closed", limit_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    async def send(
        self,
        message: Message[V],
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt: ...
    @overload
    async def send(
        self,
        topic: str,
        /,
        body: V,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt: ...
    async def send(
        self,
        message: Message[V] | str,
        body: V | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send one message, a `Message` or its parts, and return when the broker has stored it.

        The parts are a topic, a body, and as keywords tag, keys, order_key, properties, flag,
        delay_level, delay, deliver_at, priority.

        Messages with the same order key go to one queue, one after the other. Otherwise `selector`
        chooses the queue, and its messages for that queue also go one after the other, unless the
        selector spreads. A failed send is retried on another broker, up to `retry_times` and within
        the timeout; when a key or a selector fixes the queue, it is retried on that queue.
        """
        prepared = self._prepare(build_message(message, body, fields), selector)
        return await self._deliver(self._turn, prepared, self._delivery.deadline_ms(timeout_ms))

    async def _send_in_turn(
        self,
        turn: RoundRobin,
        message: Message[V],
        selector: Selector | None,
        timeout_ms: int | None,
    ) -> SendReceipt:
        """Send one message with a round-robin position of the caller's own, as each thread has."""
        prepared = self._prepare(message, selector)
        return await self._deliver(turn, prepared, self._delivery.deadline_ms(timeout_ms))

    async def _deliver_in_contexts(
        self, turn: RoundRobin, prepared: PreparedMessage, deadline_ms: int
    ) -> SendReceipt:
        spans = self._session.spans
        deliver = self._deliver_plainly if spans is None else self._deliver_in_span
        return await send_within(
            self._config.around, prepared.message, lambda: deliver(turn, prepared, deadline_ms)
        )

    async def _deliver_in_span(
        self, turn: RoundRobin, prepared: PreparedMessage, deadline_ms: int
    ) -> SendReceipt:
        spans = self._session.spans
        assert spans is not None, "this is called where spans are made"
        with spans.send(prepared.topic, prepared.properties, len(prepared.body)) as sending:
            prepared = prepared.with_context(sending.context)
            receipt = await self._deliver_plainly(turn, prepared, deadline_ms)
            sending.stored(receipt)
            return receipt

    async def _deliver_plainly(
        self, turn: RoundRobin, prepared: PreparedMessage, deadline_ms: int
    ) -> SendReceipt:
        with self._delivery.outstanding.current:
            if self._batching is not None:
                return await self._batching.send(prepared, deadline_ms, turn)
            outgoing = OutgoingBatch((prepared,), prepared)
            if prepared.order_hash is None and prepared.selection is None:
                return (await self._delivery.send(outgoing, deadline_ms, None, turn))[0]
            return (await self._in_order(turn, outgoing, deadline_ms))[0]

    async def _in_order(
        self, turn: RoundRobin, outgoing: OutgoingBatch, deadline_ms: int
    ) -> Sequence[SendReceipt]:
        """Send messages with a fixed queue after the earlier ones of that queue have ended."""
        lead, queue = outgoing.lead, None
        if not lead.is_bound:
            return await self._delivery.send(outgoing, deadline_ms, None, turn)
        if lead.selection is None:
            assert lead.order_hash is not None
            key: OrderKey = (lead.topic, lead.order_hash)
        else:
            key = queue = await self._delivery.choose_in_order(lead, deadline_ms, turn)
        ticket = await self._key_order.acquire(key, deadline_ms)
        try:
            return await self._delivery.send(outgoing, deadline_ms, queue)
        finally:
            self._key_order.release(key, ticket)

    @overload
    async def request(
        self,
        message: Message[V],
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> ReplyMessage: ...
    @overload
    async def request(
        self,
        topic: str,
        /,
        body: V,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> ReplyMessage: ...
    async def request(
        self,
        message: Message[V] | str,
        body: V | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> ReplyMessage:
        """Send one message and return the reply of the consumer that handles it.

        Raises CallTimeout when no reply comes within the timeout, which includes the send. The
        message is stored then and may still be handled; a late reply is dropped.
        """
        prepared = self._prepare(build_message(message, body, fields), selector)
        limit_ms = self._config.send_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._delivery.deadline_ms(limit_ms)
        if not self._delivery.known_queues(prepared.topic):
            await self._delivery.queues(prepared.topic, deadline_ms)
        if self._requests is None:
            from roquet.client.reading.request_reply import PendingRequests  # few ask

            self._requests = PendingRequests(self._session, self._config)
        return await self._requests.ask(
            prepared, limit_ms, lambda request: self._deliver(self._turn, request, deadline_ms)
        )

    async def recall(self, topic: str, handle: str | None, *, timeout_ms: int | None = None) -> str:
        """Cancel a delayed message by its receipt's handle, before it is due; return its id.

            receipt = await producer.send("orders", b"...", delay=timedelta(hours=1))
            await producer.recall("orders", receipt.recall_handle)

        Raises CallRefused when the delivery time has passed, or when the broker does not allow
        recalls (recall_message).
        """
        self._session.check()
        if handle is None:
            raise UsageError(
                "there is no recall handle: only receipts of messages with delay or deliver_at "
                "have one, and only from brokers of version 5"
            )
        # Here: few producers take messages back.
        from roquet.wire.calls.timer import Recall
        from roquet.wire.receipt_handle import decode_recall_handle

        if not isinstance(handle, str):
            raise UsageError(f"a recall handle is a str, not {handle!r:.80}: use that of a receipt")
        try:
            decoded = decode_recall_handle(handle)
        except FieldError:
            raise UsageError(
                f"{handle[:80]!r} is not a recall handle: use that of a receipt"
            ) from None
        deadline_ms = self._delivery.deadline_ms(timeout_ms)
        topic = check_topic(wrap(self._config.namespace, topic))
        await self._delivery.queues(topic, deadline_ms)
        call = Recall(
            producer_group=self.group, topic=topic, recall_handle=handle, broker_name=decoded.broker
        )
        left_ms = max(deadline_ms - self._config.clock.monotonic_ms(), 1)
        message_id = (await self._session.call(decoded.broker, call, left_ms)).msg_id
        if self._tracer is not None:
            self._tracer.recalled(topic, message_id)
        return message_id

    def _new_round_robin(self) -> RoundRobin:
        """A round-robin position of its own, starting at a random queue."""
        return self._delivery.new_round_robin()

    @overload
    async def send_oneway(
        self, message: Message[V], *, selector: Selector | None = None
    ) -> None: ...
    @overload
    async def send_oneway(
        self,
        topic: str,
        /,
        body: V,
        *,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None: ...
    async def send_oneway(
        self,
        message: Message[V] | str,
        body: V | None = None,
        *,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Hand one message to the network without an acknowledgement: fastest, and may lose it."""
        prepared = self._prepare(build_message(message, body, fields), selector)
        around = self._config.around
        await send_within(around, prepared.message, lambda: self._hand_out(prepared))

    async def _hand_out(self, prepared: PreparedMessage) -> None:
        if (spans := self._session.spans) is None:
            await self._delivery.send_oneway(OutgoingBatch.of([prepared]), self._turn)
            return
        with spans.send(prepared.topic, prepared.properties, len(prepared.body)) as sending:
            prepared = prepared.with_context(sending.context)
            await self._delivery.send_oneway(OutgoingBatch.of([prepared]), self._turn)

    async def send_batch(
        self,
        messages: Iterable[Message[V]],
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send messages of one topic to one queue, all or none, with one receipt for all of them.

        Messages with an order key must share it; `selector` is asked about the first message.
        Batches of one key leave one after the other, in turn with single messages of that key
        unless those linger. `send_many` accepts any messages, and any number.
        """
        spans = self._session.spans
        check_messages(messages)
        prepared = [self._prepare(message, selector) for message in messages]
        self._check_batch(prepared)
        if spans is not None:
            traced = [with_create_span(spans, message) for message in prepared]
            # The broker would refuse a larger batch: rather it has no contexts.
            prepared = traced if _size(traced) <= self._config.body_size_max else prepared
        outgoing = OutgoingBatch.of(prepared)
        deadline_ms = self._delivery.deadline_ms(timeout_ms)
        with self._delivery.outstanding.current:
            return _join_receipts(
                await send_in_span(
                    spans,
                    outgoing,
                    lambda batch: self._in_order(self._turn, batch, deadline_ms),
                    self._config.around,
                )
            )

    def send_many(
        self,
        messages: Iterable[Message[V]] | AsyncIterable[Message[V]],
        *,
        in_flight: int = IN_FLIGHT,
    ) -> SendMany:
        """Send any number of messages in batches that form on the way.

            receipts = await producer.send_many(messages)       # in the order of the messages
            async for receipt in producer.send_many(messages):  # as brokers store them

        Messages with the same order key keep their order, also when a batch is retried, but only
        within one call: await it before you send more with the same key. At most `in_flight`
        messages are without a receipt at one time. After a failure nothing more is sent, and the
        error is raised once the batches under way have their receipts.
        """
        self._session.check()
        if not isinstance(messages, AsyncIterable):
            check_messages(messages)
        check_number(in_flight, "in_flight", 1)
        spans = self._session.spans
        prepare = self._prepared if spans is None else self._prepared_in_span
        return SendMany(messages, prepare, self._delivery, in_flight, spans=spans)

    def _prepare(self, message: Message[V], selector: Selector | None = None) -> PreparedMessage:
        self._session.check()
        return self._prepared(message, selector)

    def _prepared(self, message: Message[V], selector: Selector | None = None) -> PreparedMessage:
        plain: Message[Any] = message
        if self._encode is not None:
            plain = self._encode(message)
        prepared = self._preparer.prepare(plain, self._config.clock.now_ms(), selector)
        return replace(prepared, message=message) if self._config.around else prepared

    def _prepared_in_span(self, message: Message[V]) -> PreparedMessage:
        spans = self._session.spans
        assert spans is not None, "this is called where spans are made"
        return with_create_span(spans, self._prepared(message))

    def _check_batch(self, prepared: Sequence[PreparedMessage]) -> None:
        if not prepared:
            raise UsageError("a batch holds at least one message")
        if len({message.topic for message in prepared}) > 1:
            raise UsageError("a batch holds messages of one topic: send_many takes any")
        if len({message.order_hash for message in prepared} - {None}) > 1:
            raise UsageError("a batch goes to one queue: send_many takes several order keys")
        if any(message.is_unbatchable for message in prepared):
            raise UsageError("delayed messages, and those of retry topics, cannot be in a batch")
        if (size := _size(prepared)) > self._config.body_size_max:
            raise MessageIllegal(
                f"a batch of {size} bytes is over the limit of {self._config.body_size_max}: "
                "send_many splits it"
            )

    def _data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id, producer_data_set=[ProducerData(group_name=self.group)]
        )


def _size(batch: Sequence[PreparedMessage]) -> int:
    return sum(message.batch_size for message in batch)


def _join_receipts(receipts: Sequence[SendReceipt]) -> SendReceipt:
    """One receipt for a batch: the first message's offset, and the ids of all."""
    first = receipts[0]
    return SendReceipt(
        status=first.status,
        message_id=",".join(receipt.message_id for receipt in receipts),
        offset_message_id=",".join(receipt.offset_message_id for receipt in receipts),
        queue=first.queue,
        queue_offset=first.queue_offset,
    )
