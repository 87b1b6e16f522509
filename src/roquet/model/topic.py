"""TopicConfig and SubscriptionGroup: topics and groups as operators configure them."""

import msgspec

from roquet.model.flags import READ_WRITE as READ_WRITE
from roquet.model.flags import Permission
from roquet.model.route import MASTER_ID as MASTER_ID


class DataVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Version of a table; a name server compares it before it accepts the table."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key, newest last: by leadership, changes and time (Java's `compare`)."""
        return (self.state_version, self.counter, self.timestamp)

    def next(self, now_ms: int) -> "DataVersion":
        """The version after this one."""
        return DataVersion(
            state_version=self.state_version, timestamp=now_ms, counter=self.counter + 1
        )


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Number of queues of a topic on one broker, and their permissions."""

    topic_name: str = ""
    """Empty if a peer left it out: then the table's key is the name."""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def readable(self) -> bool:
        """Whether consumers may read."""
        return bool(self.perm & Permission.READ)

    @property
    def writable(self) -> bool:
        """Whether producers may write."""
        return bool(self.perm & Permission.WRITE)


class SubscriptionGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of a consumer group: what it may do, and how its failed messages are retried."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, object] | None = None
    broker_id: int = MASTER_ID
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[dict[str, object]] | None = None
    attributes: dict[str, str] = {}


class TopicTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All topics of one broker: the body of a registration, and config/topics.json."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    topic_ids: dict[str, str] | None = None
    """Topic ids by topic (rules.topic_id); ours only, Apache's brokers ignore them."""


class GroupTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All groups of one broker: the file config/subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroup] = {}
    forbidden_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = DataVersion()


class OffsetTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Progress of all groups of one broker: "topic@group" → queue id → offset."""

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion = DataVersion()
