"""Groups to begin with."""

from typing import Any

from msgspec.structs import replace

from roquet.rules.election.group import RegisteredReplica, ReplicaGroup

ADDRESSES = {1: "h:1", 2: "h:2", 3: "h:3"}


def group_of(*ids: int, **state: Any) -> ReplicaGroup:
    """A group with these brokers."""
    replicas = {one: RegisteredReplica(ADDRESSES[one], f"{ADDRESSES[one]};17") for one in ids}
    return ReplicaGroup(
        cluster="C", name="bc", replicas=replicas, next_id=max(ids, default=0) + 1, **state
    )


def led(group: ReplicaGroup, master: int, epoch: int = 1, *members: int) -> ReplicaGroup:
    """The group with a master, in version 5 of its set."""
    in_sync = frozenset(members or {master})
    return replace(group, master=master, master_epoch=epoch, in_sync=in_sync, set_version=5)
