"""Replica group: brokers of one name, their master and sync-state set, as a controller knows them.

    apply_broker_id   a new broker gets its id for good
    register_address  a broker says where it is
    alter_set         a master changes its sync-state set
    newer_set         a master knows a later set than is stored
    clean_group       an operator removes brokers that are gone, or all of them
    elect             a master is elected (`rules.election.elect`)

Each is a function of the group that returns the next one, or a Refusal with the response code of
Apache's controller. Epoch and version of a group only grow, even after an operator has removed all
of its brokers, and while it has brokers and had a master its set is not empty. Source: Apache
RocketMQ 5.5.0, ReplicasInfoManager.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final

import msgspec
from msgspec.structs import replace

FIRST_ID: Final = 1
"""Smallest id of a broker; 0 is what a master is called at name servers."""


REPLICAS_MAX: Final = 100
"""Brokers of a group, and ids that may be left out before a new one: a group's state stays small
enough for one request to etcd, and its ids stay within their range."""


class RefusalCode(IntEnum):
    """Why a controller refuses: response codes of the protocol."""

    FENCED_MASTER_EPOCH = 2000
    FENCED_SYNC_STATE_SET_EPOCH = 2001
    INVALID_MASTER = 2002
    INVALID_REPLICAS = 2003
    MASTER_NOT_AVAILABLE = 2004
    INVALID_REQUEST = 2005
    BROKER_NOT_ALIVE = 2006
    INVALID_CLEAN_BROKER_METADATA = 2009
    BROKER_NEED_TO_BE_REGISTERED = 2010
    MASTER_STILL_EXIST = 2011
    ELECT_MASTER_FAILED = 2012
    ALTER_SYNC_STATE_SET_FAILED = 2013
    BROKER_ID_INVALID = 2014


class Refusal(msgspec.Struct, frozen=True):
    """A request that changes nothing, and the reason."""

    code: RefusalCode
    remark: str


class RegisteredReplica(msgspec.Struct, frozen=True):
    """A broker that has an id."""

    address: str
    """`host:port`."""
    check_code: str
    """Of its application: a repeated one is the same broker's."""
    is_unused: bool = False
    """Whether it was in no sync-state set since it got its id: with too many brokers another one
    gets its place, if it is not alive."""


class ReplicaGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Whole state of a group at a controller; all of it is stored before anybody is answered."""

    cluster: str
    name: str
    next_id: int = FIRST_ID
    """Larger than every id that was ever given."""
    replicas: Mapping[int, RegisteredReplica]
    master: int | None = None
    master_epoch: int = 0
    """Number of elections, those included that found nobody; 0: there never was a master."""
    in_sync: frozenset[int] = frozenset()
    set_version: int = 0
    """Number of changes of the set (syncStateSetEpoch)."""
    lease_ms: int = 0
    """Length of the longest lease that a master was ever granted: a controller with another setting
    waits for as long when it begins to lead."""
    logs_needed: int | None = None
    """Number of logs of the set in which each message is that was acknowledged in this epoch, by
    `rules.election.lease`; None: in all of them, or nothing is promised or known."""

    @property
    def is_removed(self) -> bool:
        """Whether an operator removed all brokers: epoch, version and next id are kept, no more."""
        return not self.replicas

    @property
    def master_address(self) -> str | None:
        """Address of the master, if there is one."""
        return None if self.master is None else self.replicas[self.master].address


class BrokerSite(msgspec.Struct, frozen=True, kw_only=True):
    """Where a broker says that it is."""

    cluster: str
    """Name of its cluster; empty: not said."""
    address: str
    """`host:port`."""


class SetChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of a sync-state set as a master asks for it."""

    master: int
    master_epoch: int
    members: frozenset[int]
    set_version: int
    """Version that the master knows."""


def outdated(name: str) -> Refusal:
    """Refusal of a change of a group whose stored state is older than its brokers."""
    remark = (
        f"the controller's state of group {name} is older than its brokers: it was lost, or an old"
        " copy restored; restore the latest one, or remove the whole group (cleanBrokerMetadata)"
    )
    return Refusal(RefusalCode.INVALID_REQUEST, remark)


def apply_broker_id(
    group: ReplicaGroup | None,
    cluster: str,
    name: str,
    broker_id: int,
    check_code: str,
    live: Collection[int] = (),
) -> ReplicaGroup | Refusal:
    """Give an id to a new broker, or again to the one that has it; None: the name is new.

    A group that is full forgets an id that was never used, by none of the brokers that are `live`.

    The check code begins with the broker's address: `host:port;millis`. Apache's controller counts
    the next id from the number of applications, and takes a broker of another cluster; here no id
    is offered twice. A group whose brokers were all removed becomes the cluster's that asks first.
    """
    if (refusal := foreign_cluster(group, cluster)) is not None:
        return refusal
    if group is None:
        if broker_id != FIRST_ID:
            remark = f"{name} has no broker yet: the first one has id {FIRST_ID}, not {broker_id}"
            return Refusal(RefusalCode.BROKER_ID_INVALID, remark)
        group = ReplicaGroup(cluster=cluster, name=name, replicas={})
    if group.is_removed:
        group = replace(group, cluster=cluster or group.cluster)
    known = group.replicas.get(broker_id)
    if broker_id < FIRST_ID or (known is not None and known.check_code != check_code):
        remark = f"Fail to apply brokerId: {broker_id} in broker-set: {name}"
        return Refusal(RefusalCode.BROKER_ID_INVALID, remark)
    if known is not None:
        return group
    replicas = _with_room(group.replicas, live)
    if len(replicas) >= REPLICAS_MAX or broker_id >= group.next_id + REPLICAS_MAX:
        remark = (
            f"broker id {broker_id} in {name}: a group has at most {REPLICAS_MAX} brokers, and its"
            f" next id is {group.next_id}"
        )
        return Refusal(RefusalCode.BROKER_ID_INVALID, remark)
    replica = RegisteredReplica(check_code.partition(";")[0], check_code, is_unused=True)
    return replace(
        group, replicas={**replicas, broker_id: replica}, next_id=max(group.next_id, broker_id + 1)
    )


def _with_room(
    replicas: Mapping[int, RegisteredReplica], live: Collection[int]
) -> Mapping[int, RegisteredReplica]:
    unused = [key for key, one in replicas.items() if one.is_unused and key not in live]
    if len(replicas) < REPLICAS_MAX or not unused:
        return replicas
    return {key: one for key, one in replicas.items() if key != min(unused)}


def with_set(group: ReplicaGroup, members: frozenset[int]) -> ReplicaGroup:
    """The group with another sync-state set; members of one are never forgotten."""
    replicas = {
        key: replace(one, is_unused=False) if key in members else one
        for key, one in group.replicas.items()
    }
    return replace(group, replicas=replicas, in_sync=members, set_version=group.set_version + 1)


def register_address(
    group: ReplicaGroup | None, broker_id: int, site: BrokerSite, live: Collection[int]
) -> ReplicaGroup | Refusal:
    """Record where a broker with an id is now; `live` are the brokers that are alive.

    A broker that is alive where it is registered is not anywhere else: the other one runs in a copy
    of its directory. A master that has another address was started again, so that somebody has to
    be elected: two processes must not lead in one epoch. Apache's controller takes each address.
    """
    if group is None or broker_id not in group.replicas:
        remark = f"BrokerId: {broker_id} hasn't been registered"
        return Refusal(RefusalCode.BROKER_NEED_TO_BE_REGISTERED, remark)
    if (refusal := foreign_cluster(group, site.cluster)) is not None:
        return refusal
    known = group.replicas[broker_id]
    if known.address == site.address:
        return group
    if broker_id in live:
        remark = (
            f"broker {broker_id} of {group.name} is alive at {known.address}, and {site.address}"
            " has a copy of its directory: stop one of the two, or start this one in an empty"
            " directory"
        )
        return Refusal(RefusalCode.BROKER_ID_INVALID, remark)
    moved = {**group.replicas, broker_id: replace(known, address=site.address)}
    if broker_id != group.master:
        return replace(group, replicas=moved)
    return replace(group, replicas=moved, master=None, master_epoch=group.master_epoch + 1)


def foreign_cluster(group: ReplicaGroup | None, cluster: str) -> Refusal | None:
    """Refusal of a broker of another cluster, whose group has the same name by chance.

    None: it is of the group's cluster, or one of the two is not known.
    """
    if group is None or group.is_removed or is_of_cluster(group.cluster, cluster):
        return None
    remark = (
        f"the group {group.name} is of cluster {group.cluster}, not {cluster}: give this broker"
        " another brokerName, or the address of its own controller"
    )
    return Refusal(RefusalCode.INVALID_REQUEST, remark)


def is_of_cluster(cluster: str, other: str) -> bool:
    """Whether two names of clusters may be the same one's; an empty one is not known."""
    return not cluster or not other or cluster == other


def misplaced(group: ReplicaGroup, broker_id: int, site: BrokerSite) -> Refusal | None:
    """Refusal of what a broker says that is not where its id is registered; None: it is there.

    A broker without an id is taken for one that the stored state has lost.
    """
    if (refusal := foreign_cluster(group, site.cluster)) is not None:
        return Refusal(RefusalCode.BROKER_NEED_TO_BE_REGISTERED, refusal.remark)
    known = group.replicas.get(broker_id)
    if known is None or known.address == site.address:
        return None
    remark = (
        f"broker {broker_id} of {group.name} is registered at {known.address}, not at"
        f" {site.address}: it has to register again"
    )
    return Refusal(RefusalCode.BROKER_NEED_TO_BE_REGISTERED, remark)


def alter_set(
    group: ReplicaGroup | None, change: SetChange, live: Collection[int]
) -> ReplicaGroup | Refusal:
    """Change the sync-state set; `live` are the brokers that are alive.

    The checks have the order of Apache's controller, which decides between several reasons.
    """
    if group is None or group.is_removed:
        return Refusal(RefusalCode.ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed")
    if change.members == group.in_sync:
        return Refusal(RefusalCode.ALTER_SYNC_STATE_SET_FAILED, "the set has these members already")
    if (refusal := _fenced(group, change)) is not None:
        return refusal
    if (refusal := _unfit_member(group, change.members, live)) is not None:
        return refusal
    if change.master not in change.members:
        return Refusal(
            RefusalCode.ALTER_SYNC_STATE_SET_FAILED, f"the set lacks its master {change.master}"
        )
    return with_set(group, change.members)


def newer_set(group: ReplicaGroup, known: SetChange) -> ReplicaGroup:
    """The group with the set that its master knows, if that is later than the stored one.

    An old copy of the state was restored. Elected from its set, a broker might lack messages that
    were acknowledged by the members of the later one. Members that the copy does not know are left
    out: the others have everything.
    """
    is_later = known.set_version > group.set_version
    if not is_later or (known.master, known.master_epoch) != (group.master, group.master_epoch):
        return group
    members = known.members & group.replicas.keys()
    if known.master not in members:
        return group
    left_out = members != known.members
    return replace(with_set(group, members), set_version=known.set_version + left_out)


def _fenced(group: ReplicaGroup, change: SetChange) -> Refusal | None:
    """Refusal of a master that is none any more, or that does not know the current set."""
    if change.master != group.master:
        remark = f"the current master is {group.master}, not {change.master}"
        return Refusal(RefusalCode.INVALID_MASTER, remark)
    if change.master_epoch != group.master_epoch:
        remark = f"the current master epoch is {group.master_epoch}, not {change.master_epoch}"
        return Refusal(RefusalCode.FENCED_MASTER_EPOCH, remark)
    if change.set_version != group.set_version:
        remark = f"the current syncStateSet epoch is {group.set_version}, not {change.set_version}"
        return Refusal(RefusalCode.FENCED_SYNC_STATE_SET_EPOCH, remark)
    return None


def _unfit_member(
    group: ReplicaGroup, members: Collection[int], live: Collection[int]
) -> Refusal | None:
    for member in sorted(members):
        if member not in group.replicas:
            return Refusal(RefusalCode.INVALID_REPLICAS, f"there is no replica {member}")
        if member not in live:
            return Refusal(RefusalCode.BROKER_NOT_ALIVE, f"replica {member} is not alive")
    return None


def clean_group(
    group: ReplicaGroup | None,
    ids: Collection[int],
    live: Collection[int],
    *,
    even_living: bool = False,
    epoch_known: int = 0,
    logs_promised: int = 1,
) -> ReplicaGroup | Refusal:
    """Remove brokers that will not come back, or all of them, as without ids.

    Refused while one of them is alive, unless `even_living`. The last members of the set stay as
    long as there are others: only they have all that was acknowledged. So does each member of a set
    of which `logs_promised` have every acknowledged message, and not all: its master leaves it out
    once the others have what it has. Only `even_living` removes it before. A group without brokers
    keeps its epoch, or `epoch_known` if brokers have told of a later one, so that the next master
    leads in an epoch that brokers with old logs follow. Apache's controller forgets such a group
    and begins again with epoch 1; with `even_living` it removes the whole group whatever the ids.
    """
    if group is None or (group.is_removed and epoch_known <= group.master_epoch):
        return _not_cleaned("there is no such group")
    alive = sorted(set(ids or group.replicas) & set(live))
    if alive and not even_living:
        return _not_cleaned(f"brokers {alive} are still alive")
    left = {key: replica for key, replica in group.replicas.items() if key not in ids}
    if not ids or not left:
        return _without_brokers(group, epoch_known)
    in_sync = group.in_sync - set(ids)
    if group.in_sync and not in_sync:
        remark = "the other brokers lack messages that these have: elect one of the others first"
        return _not_cleaned(remark)
    if in_sync != group.in_sync and 1 < logs_promised < len(group.in_sync) and not even_living:
        return _not_cleaned(_members_needed(group.in_sync & set(ids)))
    cleaned = replace(group, replicas=left)
    if in_sync != group.in_sync:
        cleaned = replace(cleaned, in_sync=in_sync, set_version=group.set_version + 1)
    if group.master is not None and group.master not in left:
        cleaned = replace(cleaned, master=None, master_epoch=group.master_epoch + 1)
    return cleaned


def _members_needed(members: Collection[int]) -> str:
    return (
        f"brokers {sorted(members)} are in the sync-state set, and may have acknowledged messages"
        " that others lack: wait until the master has taken them out of the set, or remove them"
        " even so with cleanLivingBroker (mqadmin: -l)"
    )


def _without_brokers(group: ReplicaGroup, epoch_known: int) -> ReplicaGroup:
    return replace(
        group,
        replicas={},
        master=None,
        master_epoch=max(group.master_epoch, epoch_known),
        in_sync=frozenset(),
        set_version=group.set_version + 1,
        logs_needed=None,
    )


def _not_cleaned(remark: str) -> Refusal:
    return Refusal(RefusalCode.INVALID_CLEAN_BROKER_METADATA, f"{remark}, clean up failure")
