"""Route changes by operators, and which members hear that another has the lowest broker id."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from roquet.model.flags import Permission
from roquet.model.route import QueueData
from roquet.model.topic import READ_WRITE, TopicConfig
from roquet.rules import routing
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


class LowestIdChange(msgspec.Struct, frozen=True, kw_only=True):
    """The member of a broker name that now has the lowest id, and the members that hear of it."""

    broker_name: str
    broker_id: int
    address: str
    lost_address: str | None = None
    """Address of the member that was lost, if that is the reason."""
    ha_address: str | None = None
    """Where a new member's log is streamed from; None after a loss."""
    told: tuple[str, ...]
    """Addresses to notify."""


def after_registration(
    before: BrokerRegistrations, after: BrokerRegistrations, new: BrokerRegistration
) -> LowestIdChange | None:
    """The change by a registration; None unless its id is lower than those known before.

    Every other member hears of it; a broker hears of itself when it is alone, which is a follower
    that became the leader.
    """
    known = routing.members(before, new.broker_name)
    if not known or new.broker_id >= min(known):
        return None
    members = routing.members(after, new.broker_name)
    others = tuple(address for i, address in members.items() if i != new.broker_id)
    return LowestIdChange(
        broker_name=new.broker_name,
        broker_id=new.broker_id,
        address=new.address,
        ha_address=new.ha_address,
        told=others or (new.address,),
    )


def after_loss(after: BrokerRegistrations, lost: BrokerRegistration) -> LowestIdChange | None:
    """The change by a loss, for all that are left; None unless the lost id was the lowest.

    Only brokers that stand in for a leader hear of it.
    """
    members = routing.members(after, lost.broker_name)
    if not members or lost.broker_id > (lowest := min(members)):
        return None
    if not after[lost.broker_name, lowest].enable_acting_master:
        return None
    return LowestIdChange(
        broker_name=lost.broker_name,
        broker_id=lowest,
        address=members[lowest],
        lost_address=lost.address,
        told=tuple(members.values()),
    )
