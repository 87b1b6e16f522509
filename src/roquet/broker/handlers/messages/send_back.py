"""Send back: a message whose handler failed is retried later, or becomes a dead letter.

Retries wait by delay level, from 10 s to two hours. The group's `groupRetryPolicy` has no effect
here, as in the genuine broker: it is for popped messages.
"""

from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.operations.sending import SendChecks
from roquet.broker.replication.replication import Replication
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import CallRefused, MessageIllegal, StoreError
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.net.router import HandlerReply, Peer
from roquet.rules.delay.delay_levels import (
    DEAD_LETTER,
    dead_letter_properties,
    next_level,
    retry_properties,
    times_after,
    tries_limit,
)
from roquet.store.store import AppendResult
from roquet.wire.call import Reply
from roquet.wire.calls.send import SendBack
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import Record, decode

log = logger(__name__)


class SendBackHandler:
    """Stores failed messages for another delivery, or as dead letters."""

    __slots__ = ("_checks", "_control", "_delivery", "_log", "_replication", "_replies")

    def __init__(
        self,
        log: MessageLog,
        delivery: DeliveryServices,
        control: ControlPlane,
        replication: Replication,
        checks: SendChecks,
        replies: SafeReplies,
    ) -> None:
        self._log, self._delivery, self._control = log, delivery, control
        self._replication, self._checks, self._replies = replication, checks, replies

    def send_back(self, call: SendBack, _peer: Peer) -> HandlerReply:
        """Store the message again; the reply comes when it is as safe as any message."""
        group = self._delivery.retry_topics.group(call.group)
        if not self._control.settings.config.writable:
            raise CallRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._control.settings.config.broker_name}] is not writable",
            )
        if group.retry_queue_nums <= 0:  # the group has no retries: the message is done
            return Reply()
        self._checks.check_in_sync()
        try:
            appended = self._stored(call, group)
        except (StoreError, MessageIllegal) as error:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"the message could not be stored: {error}"
            ) from error
        if self._replication.acknowledgements.is_needed:
            return self._replies.when_certain(Reply(), appended.position + appended.size)
        return Reply()

    def _stored(self, call: SendBack, group: SubscriptionGroup) -> AppendResult:
        """Store the message for its next try, or as a dead letter."""
        record = self._record(call.offset)
        limit = tries_limit(call.max_reconsume_times, group.retry_max_times)
        level = next_level(call.delay_level, record.reconsume_times, limit)
        held, own_id = _properties(record)
        origin = held.get(props.RETRY_TOPIC, record.topic)
        self._control.statistics.sent_back(origin, group.group_name)
        if level == DEAD_LETTER:
            topic = self._delivery.retry_topics.dlq_topic(group.group_name)
            properties = dead_letter_properties(held, record.topic, own_id)
        else:
            topic = self._delivery.retry_topics.retry_topic(group, call.unit_mode)
            properties = retry_properties(held, record.topic, own_id, level)
        times = times_after(record.reconsume_times)
        try:
            appended = self._log.ingest.reappend(
                record,
                topic=topic.topic_name,
                queue_id=self._queue(topic),
                properties=properties,
                reconsume_times=times,
            )
        except MessageIllegal as error:  # no room for the properties of a retry: its own fit
            topic = self._delivery.retry_topics.dlq_topic(group.group_name)
            fields = {"topic": record.topic, "group": group.group_name}
            log.warning("%s goes to %s at once: %s", own_id, topic.topic_name, error, extra=fields)
            held.pop(props.DELAY, None)
            appended = self._log.ingest.reappend(
                record,
                topic=topic.topic_name,
                queue_id=self._queue(topic),
                properties=held,
                reconsume_times=times,
            )
            level = DEAD_LETTER
        if level == DEAD_LETTER:
            self._log.counts.dead_letters.add(group.group_name, origin)
        return appended

    def _record(self, position: int) -> Record:
        raw = self._log.store.message_at(position) if position >= 0 else None
        if raw is None:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {position}"
            )
        record = decode(raw)
        # No member got these: they would be delivered too early, or with an open transaction.
        if record.topic in names.INTERNAL_TOPICS or record.topic.startswith(names.REVIVE_PREFIX):
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"the message at {position} was not given to anybody"
            )
        return record

    def _queue(self, topic: TopicConfig) -> int:
        """A random queue of a topic that can be both written and read."""
        count = min(topic.write_queue_nums, topic.read_queue_nums)
        if not topic.writable or count <= 0:
            raise CallRefused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic.topic_name}] sending message is forbidden",
            )
        return self._control.rng.randrange(count)


def _properties(record: Record) -> tuple[dict[str, str], str]:
    own_id = offset_message_id(record.store_host, record.position)
    return decode_properties(lossless_text(record.properties)), own_id
