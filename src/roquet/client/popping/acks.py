"""Acks: tell brokers how popped messages were settled, acknowledgements in bulk.

An acknowledgement waits a moment for others, and for the reply to the ones before it. After a
failure it is sent again, as long as the message's invisible time lasts.
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import msgspec

from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import ErrorLogThrottle, Wakeup
from roquet.client.connection.session import Session
from roquet.client.metrics import HANDLED
from roquet.client.popping.pop_batch import PopBatch, PoppedMessage
from roquet.client.reading.message import (
    DEAD_LETTER,
    RELEASE_MS,
    RELEASED,
    UNREADABLE,
    UNREADABLE_PAUSE_MS,
    InboundMessage,
)
from roquet.client.reading.retry import RetrySender
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, RoquetError
from roquet.model.topic import SubscriptionGroup
from roquet.rules.delay.delay_levels import retry_delay_ms
from roquet.wire.calls.admin.topic import GetGroup
from roquet.wire.calls.pop import (
    Ack,
    AckBatch,
    BatchAck,
    ChangeInvisible,
    ChangeInvisibleReply,
    PopAck,
    decode_bits,
    encode_acks,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.receipt_handle import ReceiptHandle, stored_topic

log = logger(__name__)

LINGER_MS: Final = 2
"""Time that an acknowledgement waits for others."""

PAUSE_MS: Final = 1_000
"""Pause after a failed acknowledgement."""

BATCH_MAX: Final = 512
"""Pop batches that one call acknowledges."""


class PopAcks:
    """Sends one member's acknowledgements, retries and extensions to the brokers."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self._group = group
        self._pending: dict[str, list[PopBatch]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._without_batches: set[str] = set()
        """Brokers that do not support batches."""
        self._groups: dict[str, SubscriptionGroup] = {}
        self._changing: set[asyncio.Task[None]] = set()
        self._wakeup = Wakeup()
        self.acked_ms: int | None = None
        """Time of the last acknowledgement that a broker took; None before the first one."""
        self._retries = RetrySender(session, config, group)

    # -- acknowledged ------------------------------------------------------------------------

    def ack(self, batch: PopBatch) -> None:
        """Acknowledge the newly finished messages of a batch."""
        broker = batch.target.broker
        pending = self._pending.get(broker)
        if pending is None:
            pending = self._pending[broker] = []
        pending.append(batch)
        if broker not in self._senders:
            self._senders[broker] = self._session.background.start(
                self._send_pending(broker), f"acknowledgements to {broker}"
            )

    async def _send_pending(self, broker: str) -> None:
        throttle = ErrorLogThrottle(f"acknowledgements to {broker}")
        pending = self._pending[broker]
        try:
            await self._wakeup.wait(LINGER_MS)
            while pending:
                batches = pending[:BATCH_MAX]
                del pending[:BATCH_MAX]
                acks = [batch.take_acks() for batch in batches]
                try:
                    with self._span(broker, acks):
                        await self._send(broker, acks)
                    throttle.clear()
                    self.acked_ms = self._config.clock.monotonic_ms()
                    self._count(batches, acks)
                except CallError as error:
                    throttle.report(error)
                    self._session.routes.invalidate()
                    self._put_back(batches, acks)
                    await self._wakeup.wait(PAUSE_MS)
        finally:
            del self._senders[broker]

    def _count(self, batches: list[PopBatch], acks: list[PopAck]) -> None:
        if (metrics := self._config.metrics) is not None:
            for batch, ack in zip(batches, acks, strict=True):
                count = (decode_bits(ack.bits) & ~batch.failed).bit_count()
                metrics.add(HANDLED, count, ack.topic, self._group, "ok")

    def _span(self, broker: str, acks: list[PopAck]) -> AbstractContextManager[object]:
        if (spans := self._session.spans) is None:
            return nullcontext()
        topics = {ack.topic for ack in acks}
        count = sum(decode_bits(ack.bits).bit_count() for ack in acks)
        return spans.settle_many("ack", topics.pop() if len(topics) == 1 else "", broker, count)

    def _put_back(self, batches: list[PopBatch], acks: list[PopAck]) -> None:
        """Queue acknowledgements again, unless the messages' invisible time has passed."""
        for batch, ack in zip(batches, acks, strict=True):
            if batch.is_held:
                batch.acked |= decode_bits(ack.bits)
                if not batch.is_listed:
                    batch.is_listed = True
                    self._pending[batch.target.broker].append(batch)

    async def _send(self, broker: str, acks: list[PopAck]) -> None:
        if broker not in self._without_batches:
            body = encode_acks(AckBatch(broker_name=broker, acks=acks))
            try:
                await self._session.call(broker, BatchAck(body=body))
            except CallRefused as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                self._without_batches.add(broker)
            else:
                return
        for ack in acks:
            await self._send_one_by_one(broker, ack)

    async def _send_one_by_one(self, broker: str, ack: PopAck) -> None:
        bits, offset = decode_bits(ack.bits), ack.start
        while bits:
            if bits & 1:
                try:
                    await self._session.call(broker, _single(broker, ack, offset))
                except CallRefused as error:  # a retry would be refused, too
                    log.info("offset %d of %s is not acknowledged: %s", offset, ack.topic, error)
            bits, offset = bits >> 1, offset + 1

    # -- retried -----------------------------------------------------------------------------

    def retry(self, batch: PopBatch, message: InboundMessage, delay_ms: int | None) -> None:
        """Let a message come again after a delay, or give it up."""
        task = self._session.background.start(
            self._retry(batch, message, delay_ms), f"next try of {message}"
        )
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)

    async def _retry(self, batch: PopBatch, message: InboundMessage, delay_ms: int | None) -> None:
        broker, times = batch.target.broker, message.reconsume_times
        if (metrics := self._config.metrics) is not None and delay_ms != RELEASED:
            metrics.add(HANDLED, 1, batch.target.topic, self._group, "failed")
        try:
            if delay_ms in (UNREADABLE, RELEASED):
                pause_ms = RELEASE_MS if delay_ms == RELEASED else UNREADABLE_PAUSE_MS
                await self._change(batch, message, pause_ms, suspend=True)
                return
            group = await self._settings(broker)
            if delay_ms == DEAD_LETTER or times >= self._limit(group):
                await self._send_to_dead_letters(batch, message)
                return
            if delay_ms is None:
                delay_ms = retry_delay_ms(group.group_retry_policy, times)
            with self._session.settle_span("nack", message):
                await self._change(batch, message, max(delay_ms, 1))
        except RoquetError as error:
            log.warning("%r comes again when its time is over: %s", message, error)

    async def _send_to_dead_letters(self, batch: PopBatch, message: InboundMessage) -> None:
        """Send a message to the dead letters, and acknowledge it after that."""
        await self._retries.send_back(message, DEAD_LETTER)
        batch.finish(message, has_failed=True)
        self._retries.note_dead_letter(message)

    async def _change(
        self,
        batch: PopBatch,
        message: InboundMessage,
        invisible_ms: int,
        suspend: bool | None = None,
    ) -> ChangeInvisibleReply:
        handle = msgspec.structs.replace(batch.handle, offset=message.queue_offset)
        call = ChangeInvisible(
            consumer_group=self._group,
            topic=batch.real_topic,
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=message.queue_offset,
            invisible_time=invisible_ms,
            suspend=suspend,
        )
        return await self._session.call(batch.target.broker, call)

    async def extend(
        self,
        batch: PopBatch,
        message: PoppedMessage[Any],
        invisible_ms: int,
        suspend: bool | None = None,
    ) -> PopBatch:
        """Change a message's invisible time; CallRefused when it has passed already.

        Returns its new batch, of this message alone.
        """
        reply = await self._change(batch, message, invisible_ms, suspend)
        if reply.code != ResponseCode.SUCCESS:
            raise CallRefused(reply.code, reply.remark or "its time has passed")
        handle = msgspec.structs.replace(
            batch.handle,
            start=message.queue_offset,
            offset=message.queue_offset,
            pop_ms=reply.pop_time,
            invisible_ms=reply.invisible_time,
            revive_queue=reply.revive_qid,
        )
        return PopBatch(batch.target, handle)

    # -- limits ------------------------------------------------------------------------------

    async def limit(self, broker: str) -> int:
        """The number of retries before a message is given up."""
        return self._limit(await self._settings(broker))

    def _limit(self, group: SubscriptionGroup) -> int:
        retries_max = self._config.retries_max
        return group.retry_max_times if retries_max is None else retries_max

    async def _settings(self, broker: str) -> SubscriptionGroup:
        """The group's settings at a broker; those of a new group when it does not answer."""
        if (settings := self._groups.get(broker)) is None:
            try:
                reply = await self._session.call(broker, GetGroup(group=self._group))
                settings = codec.loads(reply.body, SubscriptionGroup)
            except RoquetError as error:
                log.debug(
                    "broker %s returned no settings of group %s: %s", broker, self._group, error
                )
                return SubscriptionGroup(group_name=self._group)
            self._groups[broker] = settings
        return settings

    # -- close -------------------------------------------------------------------------------

    async def close(self, timeout_ms: int) -> None:
        """Send everything that is pending, up to a timeout."""
        clock = self._config.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        # In rounds: messages that were given up are acknowledged last.
        while tasks := {*self._senders.values(), *self._changing}:
            self._wakeup.set()
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0:
                break
            await asyncio.wait(tasks, timeout=left_ms / 1000)


def _single(broker: str, ack: PopAck, offset: int) -> Ack:
    handle = ReceiptHandle(
        start=ack.start,
        pop_ms=ack.pop_ms,
        invisible_ms=ack.invisible_ms,
        revive_queue=ack.revive_queue,
        retry=ack.retry,
        broker=broker,
        queue_id=ack.queue_id,
        offset=offset,
    )
    return Ack(
        consumer_group=ack.group,
        topic=stored_topic(ack.topic, ack.group, ack.retry),
        queue_id=ack.queue_id,
        extra_info=handle.text(),
        offset=offset,
    )
