"""Route changes by operators, which hold until the broker registers other topics."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from roquet.model.flags import Permission
from roquet.model.route import QueueData
from roquet.model.topic import READ_WRITE, TopicConfig
from roquet.rules.routing import BrokerRegistration, BrokerRegistrations, by_name


def topic_count(known: BrokerRegistrations, broker_name: str) -> int:
    """Number of a broker's topics."""
    tables = [m[0].topics for m in by_name(known) if m[0].broker_name == broker_name]
    return len(tables[0]) if tables else 0


def with_write_permission(
    known: BrokerRegistrations, broker_name: str, *, may_write: bool
) -> BrokerRegistrations:
    """Registrations after a broker's write permission is removed, or read and write are allowed."""

    def changed(config: TopicConfig) -> TopicConfig:
        perm = READ_WRITE if may_write else config.perm & ~Permission.WRITE
        return msgspec.structs.replace(config, perm=int(perm))

    def topics_of(broker: BrokerRegistration) -> Mapping[str, TopicConfig]:
        if broker.broker_name != broker_name:
            return broker.topics
        return {topic: changed(config) for topic, config in broker.topics.items()}

    return _with_topics(known, topics_of)


def without_topic(
    known: BrokerRegistrations, topic: str, cluster: str | None = None
) -> BrokerRegistrations:
    """Registrations without a topic, in one cluster or everywhere."""

    def topics_of(broker: BrokerRegistration) -> Mapping[str, TopicConfig]:
        if topic not in broker.topics or (cluster and broker.cluster != cluster):
            return broker.topics
        left = dict(broker.topics)
        del left[topic]
        return left

    return _with_topics(known, topics_of)


def with_topic(
    known: BrokerRegistrations, topic: str, queues: Iterable[QueueData]
) -> BrokerRegistrations:
    """Registrations with a topic on some brokers; unchanged if one of the brokers is unknown."""
    queues_by_broker = {data.broker_name: data for data in queues}
    if not queues_by_broker.keys() <= {name for name, _ in known}:
        return known

    def topics_of(broker: BrokerRegistration) -> Mapping[str, TopicConfig]:
        if (data := queues_by_broker.get(broker.broker_name)) is None:
            return broker.topics
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=data.read_queue_nums,
            write_queue_nums=data.write_queue_nums,
            perm=data.perm,
            topic_sys_flag=data.topic_sys_flag,
        )
        return {**broker.topics, topic: config}

    return _with_topics(known, topics_of)


def _with_topics(
    known: BrokerRegistrations, topics_of: Callable[[BrokerRegistration], Mapping[str, TopicConfig]]
) -> BrokerRegistrations:
    return {
        broker_key: msgspec.structs.replace(broker, topics=topics_of(broker))
        for broker_key, broker in known.items()
    }
