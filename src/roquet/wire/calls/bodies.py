"""JSON bodies that are not in the model: envelopes and answers."""

from typing import Final

import msgspec

from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from roquet.model.topic import DataVersion, SubscriptionGroup, TopicConfig
from roquet.wire.codes import Language


class TopicsOfBroker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker's topics as it registers them (Java's TopicConfigAndMappingSerializeWrapper)."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_detail_map: dict[str, object] = {}
    topic_queue_mapping_info_map: dict[str, object] = {}
    topic_ids: dict[str, str] | None = None
    """Ours: ids of these topics (rules.topic_id). Apache's brokers ignore it, and give none."""
    deleted_topics: dict[str, int] | None = None
    """Ours, with the first page: topics that were deleted, and the position of the log in front of
    which their records are. One may have been made anew since."""


class RegisterBrokerBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Content of a broker's registration."""

    filter_server_list: list[str] = []
    topic_config_serialize_wrapper: TopicsOfBroker = TopicsOfBroker()


class KVTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names and values."""

    table: dict[str, str] = {}


class TopicList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Topic names."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class ConsumerIdList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Client ids of a group's members."""

    consumer_id_list: list[str] = []


class MultiQueueOffsets(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Ours, with a pull: other queues whose messages may be returned too, and the offset of each.

    A broker that does not know it, or where other messages lie between, returns only the one
    queue's.
    """

    offsets: dict[int, int]


class LockBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Queues that a member wants to lock or unlock."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockedQueues(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Queues that the member has locked now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


class CheckClientBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A subscription to check before it is used."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: Subscription | None = None
    """None: there is nothing to check."""


PULL: Final = "PULL"
POP: Final = "POP"
"""How a group gets a topic's messages: by pull from its queues, or by pop of any."""


class AssignmentQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The asking member, and how the queues are to be divided; Java may leave out any field."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING


class QueueAssignment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue of a member; id -1 stands for all of a broker's queues, to be popped."""

    message_queue: MessageQueue
    mode: str = PULL
    attachments: dict[str, str] | None = None


class QueueAssignments(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member's queues; None: the broker cannot say, the member keeps the queues that it has."""

    message_queue_assignments: list[QueueAssignment] | None = None


class RequestMode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a group gets a topic's messages, and how many queues members share when they pop."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = PULL
    pop_share_queue_num: int = 0


class ClientConnection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One member of a group, as operators see it."""

    client_id: str = ""
    """Empty for a member that gave none."""
    client_addr: str = ""
    language: Language | None = None
    version: int = 0
    subscriptions: dict[str, str] | None = None
    """Ours: its subscriptions, topic to filter."""
    message_model: MessageModel | None = None
    """Ours: whether it shares the messages with the others."""
    consume_type: ConsumeType | None = None
    """Ours: whether it pushes, pulls or pops."""
    strategy: str | None = None
    """Ours: its allocation strategy, as it reported or as it asked the broker to apply."""
    release: str | None = None
    """Ours: the version that a gRPC client says it has."""
    properties: dict[str, str] | None = None
    """Ours: what a gRPC client says of itself, as `app` or `zone`."""


class ConsumerConnection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Members and subscriptions of a group."""

    connection_set: list[ClientConnection] = []
    subscription_table: dict[str, Subscription] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class QueueProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets of a queue and of a group in it (Java's OffsetWrapper)."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0
    owners: list[str] | None = None
    """Ours: members seen at work on the queue; None if not asked for, or if all may pop from it."""

    @property
    def lag(self) -> int:
        """Number of waiting messages."""
        return max(self.broker_offset - self.consumer_offset, 0)


class TopicAssignment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker's assignment of a topic's queues: its number, and the owner of each queue."""

    topic: str
    strategy: str
    number: int
    owners: dict[MessageQueue, str] = {}


class ConsumeStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group's progress in the queues of one broker."""

    offset_table: dict[MessageQueue, QueueProgress] = {}
    consume_tps: float = 0.0
    decisions: list[TopicAssignment] | None = None
    """Ours: this broker's assignments for the group."""


class ResetOffsetBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets at which the members of a group continue."""

    offset_table: dict[MessageQueue, int] = {}


class OffsetOfQueue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue's line of a ResetOffsetList (Java's MessageQueueForC)."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class ResetOffsetList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The offsets in the form that members written in C++ read (Java's ResetOffsetBodyForC)."""

    offset_table: list[OffsetOfQueue] = []


class ClientStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets of members in their queues (Java's GetConsumerStatusBody)."""

    message_queue_table: dict[MessageQueue, int] | None = {}
    """One member's answer to a broker."""
    consumer_table: dict[str, dict[MessageQueue, int]] | None = {}
    """The broker's answer to an operator, by client id."""


class TopicConfigs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Several topics to be created (Java's CreateTopicListRequestBody)."""

    topic_config_list: list[TopicConfig] = []


class SubscriptionGroups(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Several groups to be created (Java's SubscriptionGroupList)."""

    group_config_list: list[SubscriptionGroup] = []


class GroupForbidden(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a group may read a topic."""

    group: str = ""
    topic: str = ""
    readable: bool | None = None
