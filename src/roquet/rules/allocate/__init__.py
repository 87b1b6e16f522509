"""Allocation strategies: queues to consumers, decided for the whole group at once.

Every member of a group computes the assignment from the same queues and members, and so gets the
same result; its own share is a look-up. A member that is not listed has no share.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from roquet.model.errors import UsageError
from roquet.rules.allocate.assignment import (
    GroupAssignment,
    MessageQueues,
    QueueOwners,
    Strategy,
    faults,
    in_java_order,
    unowned,
    validated_assignment,
)
from roquet.rules.allocate.hashing import bounded_load, consistent_hash, md5_high, rendezvous
from roquet.rules.allocate.rocketmq import (
    ConfigStrategy,
    MachineRoomStrategy,
    average,
    circle,
    from_config,
    leaves_out,
    machine_room,
    nearby,
)
from roquet.rules.allocate.sticky_strategies import lag_weighted, sticky

__all__ = [
    "BROKER_DECIDED",
    "STRATEGIES",
    "ConfigStrategy",
    "GroupAssignment",
    "MachineRoomStrategy",
    "MessageQueues",
    "QueueOwners",
    "Strategy",
    "allocate",
    "average",
    "bounded_load",
    "circle",
    "consistent_hash",
    "faults",
    "from_config",
    "lag_weighted",
    "leaves_out",
    "machine_room",
    "md5_high",
    "name_of",
    "nearby",
    "rendezvous",
    "share_of",
    "sticky",
    "unowned",
    "validated_assignment",
]

STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        "AVG": average,
        "AVG_BY_CIRCLE": circle,
        "CONSISTENT_HASH": consistent_hash(),
        "RENDEZVOUS": rendezvous,
        "BOUNDED_LOAD": bounded_load(),
    }
)
"""By name on the wire; members of one group must all use the same. The last two are ours."""

BROKER_DECIDED: Final = frozenset({"STICKY", "LAG_WEIGHTED"})
"""Strategies that need the previous owners and the lag, which only the broker knows."""


def allocate(
    queues: MessageQueues, members: Sequence[str], strategy: Strategy = average
) -> GroupAssignment:
    """Assignment of the whole group; queues and members may be given in any order."""
    return strategy(*in_java_order(queues, members))


def name_of(strategy: Strategy) -> str:
    """Operators' name of a strategy; for a user's function, its own name."""
    for name, known in STRATEGIES.items():
        if strategy is known:
            return name
    if isinstance(strategy, ConfigStrategy):
        return "CONFIG"
    if isinstance(strategy, MachineRoomStrategy):
        return "MACHINE_ROOM"
    name = getattr(strategy, "__qualname__", type(strategy).__qualname__)
    return name.partition(".<locals>")[0]


def share_of(member: str, shares: GroupAssignment) -> MessageQueues:
    """One member's share; empty for a member that is not listed."""
    if not member:
        raise UsageError("a member without an id has no share")
    return shares.get(member, ())
