"""JSON bodies that are no nouns of the model: envelopes around them."""

import msgspec

from roquet.model.queue import MessageQueue
from roquet.model.subscription import Subscription
from roquet.model.topic import DataVersion, TopicConfig


class TopicsOfBroker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker's topics as it registers them (Java's TopicConfigAndMappingSerializeWrapper)."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_detail_map: dict[str, object] = {}
    topic_queue_mapping_info_map: dict[str, object] = {}


class RegisterBrokerBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a broker registers."""

    filter_server_list: list[str] = []
    topic_config_serialize_wrapper: TopicsOfBroker = TopicsOfBroker()


class KVTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names and values."""

    table: dict[str, str] = {}


class TopicList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names of topics."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class ConsumerIdList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Client ids of a group's members."""

    consumer_id_list: list[str] = []


class LockBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who wants which queues locked, or gives them back."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockedBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues that the member holds now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


class CheckClientBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A subscription to be checked before it is used."""

    client_id: str
    group: str
    namespace: str | None = None
    subscription_data: Subscription
