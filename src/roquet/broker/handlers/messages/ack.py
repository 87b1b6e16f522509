"""Ack, batch ack, change invisible time: the requests about popped messages.

A receipt handle is accepted only if its broker, queue and message are those of the request, and the
broker has delivered that message.
"""

from typing import TypeVar

from msgspec.structs import replace

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.refusals import invalid_parameter, no_topic
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model import names
from roquet.model.errors import CallRefused, FieldError
from roquet.net.router import HandlerReply, Peer
from roquet.rules.consumption.ordered_pop import (
    acknowledge,
    blocked_until,
    change_visibility,
    is_free,
)
from roquet.rules.consumption.pop import CheckpointKey, PopCheckpoint
from roquet.wire.call import Reply
from roquet.wire.calls.pop import (
    Ack,
    BatchAck,
    ChangeInvisible,
    ChangeInvisibleReply,
    PopAck,
    decode_acks,
    decode_bits,
)
from roquet.wire.codes import HELP, ResponseCode
from roquet.wire.receipt_handle import (
    LONG_MAX,
    ORDER_QUEUE,
    RETRY_V2,
    ReceiptHandle,
    decode_receipt_handle,
    retry_kind,
    stored_topic,
)

PopCall = TypeVar("PopCall", Ack, ChangeInvisible)

ACKS_MAX = 4_096
"""Most pops that one batch acknowledges."""


class AckHandler(BrokerComponent, frozen=True):
    """Settles popped messages, or changes when they are redelivered."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    control: ControlPlane
    replies: SafeReplies

    def ack(self, call: Ack, _peer: Peer) -> HandlerReply:
        """Acknowledge a message: it is not redelivered."""
        call, handle = self._checked(call)
        self._check_offset(call)
        if handle.revive_queue == ORDER_QUEUE:
            self._ack_ordered(
                (call.consumer_group, call.topic, call.queue_id), call.offset, handle.pop_ms
            )
            return Reply()
        checkpoint = self.delivery.revive.in_flight.find(_key(call, handle))
        if checkpoint is None:
            return self._too_late(handle)
        if not checkpoint.bit(call.offset):
            raise invalid_parameter("the receipt handle's pop did not give this out")
        self.delivery.revive.settle(checkpoint, checkpoint.bit(call.offset))
        return self.replies.when_safe(Reply())

    def batch_ack(self, call: BatchAck, _peer: Peer) -> HandlerReply:
        """Acknowledge messages of several pops; those that are too late are skipped."""
        body = decode_acks(call.body)
        if not body.acks:
            return Reply(code=ResponseCode.NO_MESSAGE, remark="no message to acknowledge")
        if len(body.acks) > ACKS_MAX:
            raise invalid_parameter(f"{len(body.acks)} pops: {ACKS_MAX} are allowed")
        # All can be decoded, or none counts.
        bits = [decode_bits(acked.bits) for acked in body.acks]
        for acked, its_bits in zip(body.acks, bits, strict=True):
            topic = stored_topic(acked.topic, acked.group, acked.retry)
            if acked.revive_queue == ORDER_QUEUE:
                self._ack_many_ordered(acked, topic, its_bits)
                continue
            key = (acked.group, topic, acked.queue_id, acked.start, acked.pop_ms)
            if (checkpoint := self.delivery.revive.in_flight.find(key)) is not None:
                self.delivery.revive.settle(checkpoint, its_bits & checkpoint.delivered)
        return self.replies.when_safe(Reply())

    def change_invisible(self, call: ChangeInvisible, _peer: Peer) -> HandlerReply:
        """Change when a message is redelivered: store a new checkpoint, then close the old one."""
        call, handle = self._checked(call)
        self._check_offset(call)
        now_ms = self.control.clock.now_ms()
        if not 0 < call.invisible_time <= LONG_MAX - now_ms:
            raise invalid_parameter(
                f"invisibleTime {call.invisible_time} is not a time in ms over 0"
            )
        if handle.revive_queue == ORDER_QUEUE:
            return self._change_ordered(call, handle, now_ms)
        checkpoint = self.delivery.revive.in_flight.find(_key(call, handle))
        bit = checkpoint.bit(call.offset) if checkpoint else 0
        if checkpoint is None or not checkpoint.left & bit:
            return ChangeInvisibleReply(
                code=ResponseCode.NO_MESSAGE,
                remark="the message is acknowledged, or its time has passed: it comes again",
            )
        entry = (call.consumer_group, call.topic, call.queue_id, call.offset)
        fresh = PopCheckpoint(
            group=call.consumer_group,
            topic=call.topic,
            queue_id=call.queue_id,
            start=call.offset,
            pop_ms=self.delivery.revive.fresh_pop_ms(entry, now_ms),
            invisible_ms=call.invisible_time,
            delivered=1,
            left=1,
            revive_queue_id=self.delivery.revive.next_revive_queue_id(),
            revive_offset=0,
            is_suspended=bool(call.suspend),
        )
        self.delivery.revive.give(fresh)
        self.delivery.revive.settle(checkpoint, bit)
        reply = ChangeInvisibleReply(
            pop_time=fresh.pop_ms,
            invisible_time=fresh.invisible_ms,
            revive_qid=fresh.revive_queue_id,
        )
        return self.replies.when_safe(reply)

    def _too_late(self, handle: ReceiptHandle) -> HandlerReply:
        """The reply for a closed checkpoint: acknowledged twice, or redelivered meanwhile."""
        if self.control.clock.now_ms() < handle.pop_ms + handle.invisible_ms:
            return self.replies.when_safe(Reply())  # the first time may have been too late for it
        return Reply(
            code=ResponseCode.NO_MESSAGE,
            remark="the receipt handle is too old: if it was not acknowledged, "
            "the message comes again",
        )

    # -- ordered ---------------------------------------------------------------------------------

    def _ack_many_ordered(self, acked: PopAck, topic: str, bits: int) -> None:
        group_queue = (acked.group, topic, acked.queue_id)
        held = self.tables.ordered_pops.get(*group_queue)
        if held is None or held.pop_ms != acked.pop_ms:
            return  # too late
        for offset in held.offsets:
            if offset >= acked.start and bits >> offset - acked.start & 1:
                self._ack_ordered(group_queue, offset, acked.pop_ms)

    def _ack_ordered(self, group_queue: tuple[str, str, int], offset: int, pop_ms: int) -> None:
        group, topic, queue_id = group_queue
        progress = self.tables.offsets.get(*group_queue) or 0
        held = self.tables.ordered_pops.get(*group_queue)
        reached = acknowledge(held, offset, pop_ms, progress)
        if reached is None:
            raise CallRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset {offset} of {topic} queue {queue_id} is not held by this receipt handle",
            )
        self.tables.offsets.commit(*group_queue, reached)
        if held is not None:
            self.tables.ordered_pops.unsaved = True
            if is_free(held):
                self.tables.ordered_pops.free(*group_queue)
                self.log.arrivals.waiters.wake(group, topic, queue_id)

    def _change_ordered(
        self, call: ChangeInvisible, handle: ReceiptHandle, now_ms: int
    ) -> ChangeInvisibleReply:
        held = self.tables.ordered_pops.get(call.consumer_group, call.topic, call.queue_id)
        if held is None or held.pop_ms != handle.pop_ms or call.offset not in held.offsets:
            return ChangeInvisibleReply(
                code=ResponseCode.NO_MESSAGE,
                remark="the message is not held by this receipt handle",
            )
        visible_ms = now_ms + call.invisible_time
        change_visibility(held, call.offset, visible_ms, suspend=bool(call.suspend))
        self.tables.ordered_pops.unsaved = True
        if blocked_until(held, None, visible_ms) is None:
            # The queue may be free sooner than they expect.
            self.log.arrivals.waiters.wake(call.consumer_group, call.topic, call.queue_id)
        return ChangeInvisibleReply(
            pop_time=handle.pop_ms,
            invisible_time=visible_ms - handle.pop_ms,
            revive_qid=ORDER_QUEUE,
        )

    # -- checks ----------------------------------------------------------------------------------

    def _checked(self, call: PopCall) -> tuple[PopCall, ReceiptHandle]:
        """The call, about the topic that stores the message, and its receipt handle.

        CallRefused if they do not match. Clients of Apache's before 5.2 know only the older name of
        retry topics, and name the popped topic for a message of one with the newer name.
        """
        self._check_queue(call)
        try:
            handle = decode_receipt_handle(call.extra_info)
        except FieldError as error:
            raise invalid_parameter(str(error)) from error
        group = call.consumer_group
        if handle.retry == RETRY_V2 and not names.is_retry(call.topic):
            call = replace(call, topic=stored_topic(call.topic, group, handle.retry))
            self._check_queue(call)
        is_own = (
            not names.is_retry(call.topic)
            or names.retried_topic(group, call.topic) != call.topic
            or call.topic == names.retry_topic(group)
        )
        fits = (
            (handle.broker, handle.queue_id, handle.offset)
            == (self.control.settings.config.broker_name, call.queue_id, call.offset)
            and handle.start <= handle.offset
            and handle.retry == retry_kind(call.topic)
        )
        if not (is_own and fits):
            raise invalid_parameter(
                f"the receipt handle {call.extra_info!r} belongs to another message than offset "
                f"{call.offset} of {call.topic} queue {call.queue_id}"
            )
        return call, handle

    def _check_queue(self, call: Ack | ChangeInvisible) -> None:
        topic = self.tables.topics.get(call.topic)
        if topic is None:
            raise no_topic(f"topic[{call.topic}] not exist, apply first please! {HELP}")
        # Also of a queue removed since the pop; Apache's broker refuses, and it comes again.
        if not 0 <= call.queue_id < topic.read_queue_nums and not self.log.store.queue_stats.has(
            call.topic, call.queue_id
        ):
            raise CallRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{call.queue_id}] is illegal, topic:[{call.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )

    def _check_offset(self, call: Ack | ChangeInvisible) -> None:
        minimum, maximum = self.log.store.bounds(call.topic, call.queue_id)
        if not minimum <= call.offset < maximum:
            raise CallRefused(
                ResponseCode.NO_MESSAGE,
                f"offset {call.offset} is illegal, key: {call.topic}@{call.queue_id}, "
                f"commit: {maximum}, minOffset: {minimum}",
            )


def _key(call: Ack | ChangeInvisible, handle: ReceiptHandle) -> CheckpointKey:
    return call.consumer_group, call.topic, call.queue_id, handle.start, handle.pop_ms
