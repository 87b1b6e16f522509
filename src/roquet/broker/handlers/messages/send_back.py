"""Send back: a message whose handler failed is retried later, or becomes a dead letter.

Retries wait by delay level, from 10 s to two hours. The group's `groupRetryPolicy` has no effect
here, as in the genuine broker: it is for popped messages.
"""

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.operations.sending import SendChecks
from roquet.broker.refusals import no_permission, system_error
from roquet.broker.replication.replication import Replication
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import MessageIllegal, StoreError
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
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import Record, decode

log = logger(__name__)


class SendBackHandler(BrokerComponent, frozen=True):
    """Stores failed messages for another delivery, or as dead letters."""

    log: MessageLog
    delivery: DeliveryServices
    control: ControlPlane
    replication: Replication
    checks: SendChecks
    replies: SafeReplies

    def send_back(self, call: SendBack, _peer: Peer) -> HandlerReply:
        """Store the message again; the reply comes when it is as safe as any message."""
        group = self.delivery.retry_topics.group(call.group)
        if not self.control.settings.config.writable:
            raise no_permission(
                f"the broker[{self.control.settings.config.broker_name}] is not writable"
            )
        if group.retry_queue_nums <= 0:  # the group has no retries: the message is done
            return Reply()
        self.checks.check_in_sync()
        try:
            appended = self._stored(call, group)
        except (StoreError, MessageIllegal) as error:
            raise system_error(f"the message could not be stored: {error}") from error
        if self.replication.acknowledgements.is_needed:
            return self.replies.when_certain(Reply(), appended.position + appended.size)
        return Reply()

    def _stored(self, call: SendBack, group: SubscriptionGroup) -> AppendResult:
        record = self._record(call.offset)
        limit = tries_limit(call.max_reconsume_times, group.retry_max_times)
        level = next_level(call.delay_level, record.reconsume_times, limit)
        held = decode_properties(lossless_text(record.properties))
        own_id = offset_message_id(record.store_host, record.position)
        origin = held.get(props.RETRY_TOPIC, record.topic)
        self.control.statistics.sent_back(origin, group.group_name)
        if level == DEAD_LETTER:
            topic = self.delivery.retry_topics.dlq_topic(group.group_name)
            properties = dead_letter_properties(held, record.topic, own_id)
        else:
            topic = self.delivery.retry_topics.retry_topic(group, call.unit_mode)
            properties = retry_properties(held, record.topic, own_id, level)
        try:
            appended = self._append(record, topic, properties)
        except MessageIllegal as error:  # no room for the properties of a retry: its own fit
            topic = self.delivery.retry_topics.dlq_topic(group.group_name)
            fields = {"topic": record.topic, "group": group.group_name}
            log.warning("%s goes to %s at once: %s", own_id, topic.topic_name, error, extra=fields)
            held.pop(props.DELAY, None)
            appended = self._append(record, topic, held)
            level = DEAD_LETTER
        if level == DEAD_LETTER:
            self.log.counts.dead_letters.add(group.group_name, origin)
        return appended

    def _record(self, position: int) -> Record:
        raw = self.log.store.message_at(position) if position >= 0 else None
        if raw is None:
            raise system_error(f"look message by offset failed, {position}")
        record = decode(raw)
        # No member got these: they would be delivered too early, or with an open transaction.
        if record.topic in names.INTERNAL_TOPICS or record.topic.startswith(names.REVIVE_PREFIX):
            raise system_error(f"the message at {position} was not given to anybody")
        return record

    def _append(
        self, record: Record, topic: TopicConfig, properties: dict[str, str]
    ) -> AppendResult:
        count = min(topic.write_queue_nums, topic.read_queue_nums)
        if not topic.writable or count <= 0:
            raise no_permission(f"the topic[{topic.topic_name}] sending message is forbidden")
        return self.log.ingest.reappend(
            record,
            topic=topic.topic_name,
            queue_id=self.control.rng.randrange(count),
            properties=properties,
            reconsume_times=times_after(record.reconsume_times),
        )
