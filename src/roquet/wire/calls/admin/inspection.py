"""Inspection: connections, subscriptions and content of a broker, without changing anything."""

from typing import ClassVar

import msgspec

from roquet.model.subscription import Subscription
from roquet.model.topic import DataVersion
from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.calls.bodies import ClientConnection
from roquet.wire.codes import Language, RequestCode


class GetProducers(Call[Reply], frozen=True, kw_only=True):
    """Get the members of a producer group; the reply's body is a ProducerConnection."""

    code: ClassVar = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


class GetAllProducers(Call[Reply], frozen=True, kw_only=True):
    """Get the members of all producer groups; the reply's body is a ProducerTable."""

    code: ClassVar = RequestCode.GET_ALL_PRODUCER_INFO


class GetGroupsOfTopic(Call[Reply], frozen=True, kw_only=True):
    """Get the groups that subscribe to a topic, or have progress in it; the body is a GroupList."""

    code: ClassVar = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


class GetTopicsOfGroup(Call[Reply], frozen=True, kw_only=True):
    """Get the topics in which a group has progress; the reply's body is a TopicList."""

    code: ClassVar = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


class GetSubscription(Call[Reply], frozen=True, kw_only=True):
    """Get a group's subscription to a topic; the reply's body is a SubscriptionAnswer."""

    code: ClassVar = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str


class GetSystemTopics(Call[Reply], frozen=True, kw_only=True):
    """Get the topics that belong to the system; the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER


class GetEntries(Call[Reply], frozen=True, kw_only=True):
    """Get entries of a queue from an offset on; the reply's body is a QueueEntries."""

    code: ClassVar = RequestCode.QUERY_CONSUME_QUEUE

    topic: str
    queue_id: Int = 0
    index: Long = 0
    """A queue offset."""
    count: Int = 0
    consumer_group: str | None = None
    """Group whose subscription to the topic is included in the reply."""


class AllOffsetsReply(Reply, frozen=True, kw_only=True):
    """Progress of groups, and ours for replicas: how far the master was when it was read."""

    editions: str | None = None
    """Ours: wire.replication.table_editions; only for a request with `known_editions`."""
    log_end: Long | None = None
    """Ours: end of the log after the progress was read. A log that reaches it holds every message
    that the progress counts. Only from a master: a replica's log may be cut."""


class GetAllOffsets(Call[AllOffsetsReply], frozen=True, kw_only=True):
    """Get the progress of all groups; the reply's body is an AllOffsets.

    A replica of ours asks for changes: the reply waits until a table is of another edition than it
    knows, and has only the offsets that have changed since. Apache's broker ignores both fields and
    replies at once with everything, without editions.
    """

    code: ClassVar = RequestCode.GET_ALL_CONSUMER_OFFSET

    known_editions: str | None = None
    """Ours: the editions that the replica knows; empty for none."""
    copied_editions: str | None = None
    """Ours: the editions of the tables that it has copied and saved."""
    wait_millis: Int | None = None
    """Ours: longest wait for a change."""


class GetDelayOffsets(Call[Reply], frozen=True, kw_only=True):
    """Get the progress of each delay level; the body has the content of delayOffset.json."""

    code: ClassVar = RequestCode.GET_ALL_DELAY_OFFSET


class GetRequestModes(Call[Reply], frozen=True, kw_only=True):
    """Get which groups pull and which pop; the body has the content of messageRequestMode.json."""

    code: ClassVar = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE


class ProducerConnection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The members of a producer group."""

    connection_set: list[ClientConnection] = []


class ProducerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a producer group, with all details."""

    client_id: str = msgspec.field(name="clientId")
    remote_ip: str = msgspec.field(name="remoteIP")
    """Address as Java writes it: /ip:port."""
    language: Language | None = None
    version: int = 0
    last_update_timestamp: int = msgspec.field(default=0, name="lastUpdateTimestamp")


class ProducerTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Group to members (Java's ProducerTableInfo)."""

    data: dict[str, list[ProducerInfo]] = {}


class GroupList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names of groups."""

    group_list: list[str] = []


class SubscriptionAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group's subscription to a topic; None while the group is not online."""

    subscription_data: Subscription | None = None
    group: str
    topic: str


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of a queue (Java's ConsumeQueueData)."""

    physic_offset: int
    """Position in the log, in bytes."""
    physic_size: int
    tags_code: int
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueueEntries(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Some entries of a queue, and its first and last offset."""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: list[QueueEntry] | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0


class AllOffsets(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All progress: "topic@group" → queue id → offset, of handled and of delivered messages."""

    offset_table: dict[str, dict[int, int]] = {}
    pull_offset_table: dict[str, dict[int, int]] = {}
    group_topic_map: dict[str, list[str]] = {}
    data_version: DataVersion | None = None
