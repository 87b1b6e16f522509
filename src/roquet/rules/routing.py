"""Routing: merges broker registrations into topic routes, for the name server.

Registrations are kept by broker name and id. Among brokers of one name, the member with the lowest
id determines the topics, and takes over those of its predecessor. While that is the leader (id 0)
its topics can be written; while only followers are left they can only be read. Source: Apache
RocketMQ 5.5.0, RouteInfoManager.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from roquet.model.flags import Permission
from roquet.model.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from roquet.model.topic import MASTER_ID, DataVersion, TopicConfig

UNIT: Final = 1
UNIT_SUBSCRIBED: Final = 2
"""Flags of topics in clusters that are divided into units (Java's TopicSysFlag)."""


SYNC_MEMBERS_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Begins the name of a topic by whose route brokers find the members of their own name."""


SORTED_MAX: Final = 4_096
"""Names that are sorted in one call, in a millisecond."""


class BrokerRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's registration: address, topics and their version."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    enable_acting_master: bool | None = None
    """Whether the follower with the lowest id stands in for a leader that is away; None in a
    registration of RocketMQ 4, whose followers bring no topics."""
    version: DataVersion = DataVersion()
    topics: Mapping[str, TopicConfig] = {}
    filter_servers: tuple[str, ...] = ()

    @property
    def broker_key(self) -> "BrokerKey":
        """Name and id of the broker."""
        return (self.broker_name, self.broker_id)

    @property
    def brings_topics(self) -> bool:
        """Whether the topics of this registration count while its broker id is the lowest."""
        return self.broker_id == MASTER_ID or self.enable_acting_master is not None

    @property
    def acts_as_master(self) -> bool:
        """Whether this is a follower that stands in for a leader if its broker id is the lowest."""
        return self.broker_id != MASTER_ID and bool(self.enable_acting_master)


BrokerKey: TypeAlias = tuple[str, int]
"""A broker's name and id, which belong to at most one address."""

BrokerRegistrations: TypeAlias = Mapping[BrokerKey, BrokerRegistration]


class RegistrationVerdict(Enum):
    """Outcome of a new registration."""

    TAKEN = "taken"
    OUTDATED = "another address has it with a newer state version: a master of a later epoch"
    INCOMPLETE = "one topic of a broker whose other topics are unknown"
    TOO_MANY = "too many brokers are registered"


def judge(known: BrokerRegistrations, new: BrokerRegistration) -> RegistrationVerdict:
    """Decide whether a registration is accepted.

    Two addresses with one broker key are a failover or a mistake: the larger state version wins
    (the epoch of a master, where a controller elects it), and the later registration between equal
    ones. A broker that
    creates a topic registers only that topic; a name server that does not know the broker's other
    topics must refuse it, so that the broker registers all of them.
    """
    old = known.get(new.broker_key)
    if old is None:
        return RegistrationVerdict.INCOMPLETE if len(new.topics) == 1 else RegistrationVerdict.TAKEN
    newer = old.version.state_version > new.version.state_version
    if old.address != new.address and newer:
        return RegistrationVerdict.OUTDATED
    return RegistrationVerdict.TAKEN


def merge(
    known: BrokerRegistrations, new: BrokerRegistration, *, whole: bool = False
) -> BrokerRegistrations:
    """Registrations with a new one added.

    From the same address it adds to the topics known before, unless it is the `whole` table: a
    broker may register only what has changed. An address has one key of its broker name at a time
    (a follower that became the leader gives up its old key). A new leader, or a follower that is
    now the one with the lowest id, takes over the topics that its broker name had.
    """
    old = known.get(new.broker_key)
    if old is not None and old.address == new.address:
        if new.version == old.version:  # what operators changed here meanwhile stays
            new = msgspec.structs.replace(new, topics=old.topics)
        elif not whole or not new.brings_topics:
            new = _with_more_topics(new, old.topics)
    elif not new.brings_topics:
        new = msgspec.structs.replace(new, topics={})
    if not whole and (predecessor := _predecessor(known, new)) is not None:
        new = _with_more_topics(new, predecessor.topics)
    rest = without(known, _keys_of(known, new))
    return {**rest, new.broker_key: new}


def without_address(
    known: BrokerRegistrations, outdated: BrokerRegistration
) -> BrokerRegistrations:
    """Registrations after an outdated one: its address has none of the broker's ids any more."""
    return without(known, _keys_of(known, outdated))


def without(known: BrokerRegistrations, gone: Iterable[BrokerKey]) -> BrokerRegistrations:
    """Registrations without some brokers; what is left of a name keeps the name's topics."""
    keys = set(gone)
    left = {broker_key: r for broker_key, r in known.items() if broker_key not in keys}
    for name in {name for name, _ in keys}:
        before, after = _first(known, name), _first(left, name)
        if before is not None and after is not None and before is not after:
            topics = {**after.topics, **before.topics}
            left[after.broker_key] = msgspec.structs.replace(after, topics=topics)
    return left


def _with_more_topics(
    new: BrokerRegistration, topics: Mapping[str, TopicConfig]
) -> BrokerRegistration:
    """A registration with other topics besides its own, which count first if it brings any."""
    own = new.topics if new.brings_topics else {}
    return msgspec.structs.replace(new, topics={**topics, **own})


def _predecessor(known: BrokerRegistrations, new: BrokerRegistration) -> BrokerRegistration | None:
    """The member that determined the topics so far, if the new one may do so from now on."""
    first = _first(known, new.broker_name)
    if first is None or first.broker_id > new.broker_id:
        return first
    if first.broker_id < new.broker_id:
        return first if first.address == new.address else None
    # A later epoch is another master; without one, it is a broker that moved to another address.
    is_later = first.version.state_version < new.version.state_version
    return first if is_later and first.address != new.address else None


def _first(known: BrokerRegistrations, broker_name: str) -> BrokerRegistration | None:
    """The member of a name with the lowest id."""
    ids = [broker_id for name, broker_id in known if name == broker_name]
    return known[broker_name, min(ids)] if ids else None


def _keys_of(known: BrokerRegistrations, new: BrokerRegistration) -> list[BrokerKey]:
    """The other keys of a registration's address, under its broker name."""
    return [
        broker_key
        for broker_key, r in known.items()
        if r.broker_name == new.broker_name
        and r.address == new.address
        and broker_key != new.broker_key
    ]


def route(
    known: BrokerRegistrations,
    topic: str,
    order: str | None = None,
    *,
    shows_acting_master: bool = False,
) -> TopicRoute | None:
    """Route of a topic; None if no broker has it.

    With `shows_acting_master` the follower that stands in for a leader has id 0, so that clients
    read, acknowledge and lock there; its queues cannot be written. Brokers look for the members of
    their own name in a topic of its own, which always has the true ids.
    """
    return route_among(by_name(known), topic, order, shows_acting_master=shows_acting_master)


def route_among(
    groups: Iterable[Sequence[BrokerRegistration]],
    topic: str,
    order: str | None = None,
    *,
    shows_acting_master: bool = False,
) -> TopicRoute | None:
    """Route of a topic, among the members of each broker name in order of their ids."""
    homes = [members for members in groups if topic in members[0].topics]
    if not homes:
        return None
    homes.sort(key=lambda members: members[0].broker_name)
    shows_acting_master &= not topic.startswith(SYNC_MEMBERS_PREFIX)
    return TopicRoute(
        order_topic_conf=order,
        queue_datas=[_queues(members[0], topic) for members in homes],
        broker_datas=[
            _broker(members, acts=shows_acting_master and members[0].acts_as_master)
            for members in homes
        ],
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
        broker_addr_table={members[0].broker_name: _broker(members) for members in by_name(known)},
        cluster_addr_table={name: sorted(brokers) for name, brokers in sorted(names.items())},
    )


def topics(known: BrokerRegistrations, cluster: str | None = None) -> list[str]:
    """Names of all topics, or of those of one cluster."""
    speakers = (members[0] for members in by_name(known))
    chosen = [broker for broker in speakers if cluster is None or broker.cluster == cluster]
    return _sorted({topic for speaker in chosen for topic in speaker.topics})


def topics_with(known: BrokerRegistrations, flag: int, *, without: int = 0) -> list[str]:
    """Names of the topics whose first broker sets a flag, and not another."""
    first: dict[str, TopicConfig] = {}
    for members in by_name(known):
        for topic, config in members[0].topics.items():
            first.setdefault(topic, config)
    flags = flag | without
    return _sorted({name for name, topic in first.items() if topic.topic_sys_flag & flags == flag})


def _sorted(names: set[str]) -> list[str]:
    """Names in order. Many are sorted in slices: one call would hold Python's lock all the time."""
    unsorted = iter(names)
    slices = iter(lambda: sorted(islice(unsorted, SORTED_MAX)), [])
    return list(heapq.merge(*slices))


def members(known: BrokerRegistrations, broker_name: str) -> dict[int, str]:
    """Addresses of one broker name, by id."""
    return {i: known[name, i].address for name, i in sorted(known) if name == broker_name}


def by_name(known: BrokerRegistrations) -> list[list[BrokerRegistration]]:
    """Members of each broker name, sorted; the first one of each determines the topics."""
    groups: dict[str, list[BrokerRegistration]] = {}
    for broker_key in sorted(known):
        groups.setdefault(broker_key[0], []).append(known[broker_key])
    return list(groups.values())


def _queues(speaker: BrokerRegistration, topic: str) -> QueueData:
    config = speaker.topics[topic]
    perm = config.perm & ~Permission.WRITE if speaker.acts_as_master else config.perm
    return QueueData(
        broker_name=speaker.broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=int(perm),
        topic_sys_flag=config.topic_sys_flag,
    )


def _broker(members: Sequence[BrokerRegistration], *, acts: bool = False) -> BrokerData:
    """A broker name and its members; with `acts` the first one is shown as the leader."""
    first = members[0]
    addresses = {member.broker_id: member.address for member in members}
    if acts:
        addresses = {MASTER_ID: addresses.pop(first.broker_id), **addresses}
    return BrokerData(
        cluster=first.cluster,
        broker_name=first.broker_name,
        broker_addrs=addresses,
        enable_acting_master=bool(first.enable_acting_master),
    )
