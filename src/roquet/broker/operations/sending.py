"""Sending: the queue that a sent message goes to, and the answer to one that is refused."""

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.ingest.append import BATCH_COUNT_MAX, SendCall
from roquet.broker.refusals import invalid_parameter, no_permission, no_topic
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model import names
from roquet.model.errors import CallRefused, MessageIllegal, RecordError, StoreError
from roquet.model.properties import WAIT
from roquet.model.topic import TopicConfig
from roquet.rules.message_type import message_type, type_fault
from roquet.rules.topic_attributes import MESSAGE_TYPE
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import decode_columns
from roquet.wire.records.property_text import decode_properties


class SendChecks(BrokerComponent, frozen=True):
    """Checks messages before they are stored, and refuses them."""

    tables: BrokerTables
    control: ControlPlane
    replication: Replication

    def select_queue(self, call: SendCall) -> int:
        """The queue to store in: the one asked for, any for a negative id.

        Creates the topic at its first message. CallRefused for a queue or topic that takes no
        messages, MessageIllegal for a message of another type than the topic's.
        """
        topic, config = self.tables.topics.sendable.get(call.topic), self.control.settings.config
        if config.check_message_types:
            _check_types(call, self.tables.topics.get(call.topic))
        if topic is None or not config.permission & 2:
            topic = self._create_topic(call)
        queue_id = call.queue_id
        if 0 <= queue_id < topic.write_queue_nums:
            return queue_id
        if queue_id < 0 < topic.write_queue_nums:
            return self.control.rng.randrange(topic.write_queue_nums)
        if queue_id >= 0 and queue_id < topic.read_queue_nums:
            return queue_id  # a topic that shrinks still takes what was on its way
        raise invalid_parameter(
            f"request queueId[{queue_id}] is illegal, topic {topic.topic_name} has "
            f"{topic.read_queue_nums} read queues and {topic.write_queue_nums} write queues"
        )

    def check_in_sync(self, call: SendCall | None = None) -> None:
        """Refuse a message before it is stored while too few logs are in sync (minInSyncReplicas).

        Raises CallRefused. `call` is a producer's send, which is taken all the same if it does not
        wait for replicas (its property waitStoreMsgOK); None: the message is the broker's own, and
        waits. What is not asked here: checkpoints, acknowledgements and invisibility changes of
        pops, and what services deliver. These are stored at the master alone; without them messages
        come again.
        """
        if self.replication.acknowledgements.is_short:
            waits = call is None or _waits_for_replicas(call) or self.must_wait(call)
            self.replication.acknowledgements.check(waits=waits)

    def must_wait(self, call: SendCall) -> bool:
        """Whether a send waits for replicas whatever its property says: a message that failed.

        Java's consumers copy the property of a copy that the broker made, and mean nothing by it.
        Where roles are fixed nothing that is stored is lost by another master, so the property
        holds.
        """
        return self.replication.acknowledgements.may_lose_stored and names.is_retry(call.topic)

    def refusal(self, error: CallRefused | MessageIllegal | StoreError) -> SendReply:
        """The reply to a message that was not stored.

        SYSTEM_ERROR, which leaves open whether it is stored, if the disk failed meanwhile.
        """
        match error:
            case CallRefused():
                code, remark = error.code, error.remark
            case MessageIllegal():
                code, remark = ResponseCode.MESSAGE_ILLEGAL, str(error)
            case StoreError(definite=False):
                code, remark = ResponseCode.SYSTEM_ERROR, str(error)
            case _:
                code, remark = ResponseCode.SERVICE_NOT_AVAILABLE, str(error)
        config = self.control.settings.config
        return SendReply(code=code, remark=remark, region=config.region, trace_on=config.trace_on)

    def _create_topic(self, call: SendCall) -> TopicConfig:
        """The topic, created if it does not exist. CallRefused when clients may not send to it."""
        topic = call.topic
        if not self.control.settings.config.writable:
            raise no_permission(
                f"the broker[{self.control.settings.config.broker_name}] is not writable"
            )
        if fault := names.topic_remark(topic):
            raise invalid_parameter(fault)
        if not names.can_clients_send_to(topic):
            raise no_permission(f"Sending message to topic[{topic}] is forbidden.")
        edition = self.tables.topics.edition
        made = self.tables.topics.create_for_send(
            topic,
            call.default_topic,
            call.default_topic_queue_nums,
            call.unit_mode,
            self.control.clock.now_ms(),
        )
        if made is None:
            raise no_topic(
                f"topic[{topic}] not exist, apply first please! Automatic creation is off here, "
                f"or the default topic {call.default_topic!r} does not allow it"
            )
        if self.tables.topics.edition != edition:
            self.tables.replica_copies.note_made(topic, self.tables.topics.edition)
        return made


def _check_types(call: SendCall, topic: TopicConfig | None) -> None:
    """Raise MessageIllegal for a message or batch of a type that the topic does not take.

    A topic that does not exist yet (None) takes NORMAL messages.
    """
    topic_type = topic.attributes.get(MESSAGE_TYPE) if topic is not None else None
    shared, texts = decode_properties(call.properties or ""), [b""]
    if call.batch:
        try:
            texts = decode_columns(call.body, BATCH_COUNT_MAX)[2]
        except RecordError as error:
            raise MessageIllegal(str(error)) from error
    for text in texts:
        kind = message_type(shared | decode_properties(text))
        fault = type_fault(kind, call.topic, topic_type)
        if fault is not None:
            raise MessageIllegal(fault)


def _waits_for_replicas(call: SendCall) -> bool:
    return decode_properties(call.properties or "").get(WAIT) != "false"
