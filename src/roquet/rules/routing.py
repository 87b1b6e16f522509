"""Routing: merges broker registrations into topic routes, for the name server.

Registrations are kept by broker name and id. Among brokers of one name, the member with the lowest
id determines the topics. While that is the leader (id 0) its topics can be written; while only
followers are left they can only be read.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from roquet.model.flags import Permission
from roquet.model.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from roquet.model.topic import READ_WRITE, DataVersion, TopicConfig

UNIT: Final = 1
UNIT_SUBSCRIBED: Final = 2
"""Flags of topics in clusters that are divided into units (Java's TopicSysFlag)."""


class BrokerRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's registration: address, topics and their version."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    enable_acting_master: bool = False
    version: DataVersion = DataVersion()
    topics: Mapping[str, TopicConfig] = {}
    filter_servers: tuple[str, ...] = ()

    @property
    def broker_key(self) -> "BrokerKey":
        """Name and id of the broker."""
        return (self.broker_name, self.broker_id)


BrokerKey: TypeAlias = tuple[str, int]
"""A broker's name and id, which belong to at most one address."""

BrokerRegistrations: TypeAlias = Mapping[BrokerKey, BrokerRegistration]


class RegistrationVerdict(Enum):
    """Outcome of a new registration."""

    TAKEN = "taken"
    OUTDATED = "another address has registered newer topics for it"
    INCOMPLETE = "one topic of a broker whose other topics are unknown"


def judge(known: BrokerRegistrations, new: BrokerRegistration) -> RegistrationVerdict:
    """Decide whether a registration is accepted.

    Two addresses with one broker key are a failover or a mistake: the newer version of the topics
    wins (`DataVersion.order`), and between equal versions the later registration. A broker that
    creates a topic registers only that topic; a name server that does not know the broker's other
    topics must refuse it, so that the broker registers all of them.
    """
    old = known.get(new.broker_key)
    if old is None:
        return RegistrationVerdict.INCOMPLETE if len(new.topics) == 1 else RegistrationVerdict.TAKEN
    if old.address != new.address and old.version.order > new.version.order:
        return RegistrationVerdict.OUTDATED
    return RegistrationVerdict.TAKEN


def merge(
    known: BrokerRegistrations, new: BrokerRegistration, *, whole: bool = False
) -> BrokerRegistrations:
    """Registrations with a new one added.

    From the same address it adds to the topics known before, unless it is the `whole` table: a
    broker may register only what has changed. An address has one key of its broker name at a time
    (a follower that became the leader gives up its old key).
    """
    old = known.get(new.broker_key)
    if old is not None and old.address == new.address:
        if new.version == old.version:  # what operators changed here meanwhile stays
            new = msgspec.structs.replace(new, topics=old.topics)
        elif not whole:
            new = msgspec.structs.replace(new, topics={**old.topics, **new.topics})
    rest = {
        broker_key: r
        for broker_key, r in known.items()
        if r.broker_name != new.broker_name or r.address != new.address
    }
    return {**rest, new.broker_key: new}


def without(known: BrokerRegistrations, gone: Iterable[BrokerKey]) -> BrokerRegistrations:
    """Registrations without some brokers."""
    keys = set(gone)
    return {broker_key: r for broker_key, r in known.items() if broker_key not in keys}


def route(known: BrokerRegistrations, topic: str, order: str | None = None) -> TopicRoute | None:
    """Route of a topic; None if no broker has it."""
    homes = [members for members in _by_name(known) if topic in members[0].topics]
    if not homes:
        return None
    return TopicRoute(
        order_topic_conf=order,
        queue_datas=[_queues(members[0], topic) for members in homes],
        broker_datas=[_broker(members) for members in homes],
        filter_server_table={
            r.address: list(r.filter_servers) for m in homes for r in m if r.filter_servers
        },
    )


def cluster(known: BrokerRegistrations) -> ClusterInfo:
    """All brokers, and the cluster of each."""
    names: dict[str, set[str]] = {}
    for registration in known.values():
        names.setdefault(registration.cluster, set()).add(registration.broker_name)
    return ClusterInfo(
        broker_addr_table={members[0].broker_name: _broker(members) for members in _by_name(known)},
        cluster_addr_table={name: sorted(brokers) for name, brokers in sorted(names.items())},
    )


def topics(known: BrokerRegistrations, cluster: str | None = None) -> list[str]:
    """Names of all topics, or of those of one cluster."""
    speakers = (members[0] for members in _by_name(known))
    chosen = [broker for broker in speakers if cluster is None or broker.cluster == cluster]
    return sorted({topic for speaker in chosen for topic in speaker.topics})


def topics_with(known: BrokerRegistrations, flag: int) -> list[str]:
    """Names of the topics whose first broker sets a flag."""
    first: dict[str, TopicConfig] = {}
    for members in _by_name(known):
        first = {**members[0].topics, **first}
    return sorted(topic for topic, config in first.items() if config.topic_sys_flag & flag)


def members(known: BrokerRegistrations, broker_name: str) -> dict[int, str]:
    """Addresses of one broker name, by id."""
    return {i: known[name, i].address for name, i in sorted(known) if name == broker_name}


# Changes by operators, which hold until the broker registers another version of its topics.


def topic_count(known: BrokerRegistrations, broker_name: str) -> int:
    """Number of a broker's topics."""
    tables = [m[0].topics for m in _by_name(known) if m[0].broker_name == broker_name]
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
        return {name: config for name, config in broker.topics.items() if name != topic}

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


def _by_name(known: BrokerRegistrations) -> list[list[BrokerRegistration]]:
    """Members of each broker name, sorted; the first one of each determines the topics."""
    groups: dict[str, list[BrokerRegistration]] = {}
    for broker_key in sorted(known):
        groups.setdefault(broker_key[0], []).append(known[broker_key])
    return list(groups.values())


def _queues(speaker: BrokerRegistration, topic: str) -> QueueData:
    config = speaker.topics[topic]
    return QueueData(
        broker_name=speaker.broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


def _broker(members: list[BrokerRegistration]) -> BrokerData:
    return BrokerData(
        cluster=members[0].cluster,
        broker_name=members[0].broker_name,
        broker_addrs={member.broker_id: member.address for member in members},
        enable_acting_master=members[0].enable_acting_master,
    )
