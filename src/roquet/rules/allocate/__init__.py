"""Queues to consumers: whose queue is whose, decided for the whole group at once.

Every member of a group asks with the same queues and members and so gets the same answer; its own
share is a look-up. A member that is not listed has no share.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from roquet.model.errors import UsageError
from roquet.rules.allocate.check import checked, faults, unowned
from roquet.rules.allocate.genuine import average, circle, from_config
from roquet.rules.allocate.hashing import bounded_load, consistent_hash, md5_high, rendezvous
from roquet.rules.allocate.remembering import lag_weighted, sticky
from roquet.rules.allocate.rooms import machine_room, nearby
from roquet.rules.allocate.shares import Owners, Queues, Shares, Strategy, in_order

__all__ = [
    "BROKER_DECIDED",
    "STRATEGIES",
    "Owners",
    "Queues",
    "Shares",
    "Strategy",
    "allocate",
    "average",
    "bounded_load",
    "checked",
    "circle",
    "consistent_hash",
    "faults",
    "from_config",
    "lag_weighted",
    "machine_room",
    "md5_high",
    "nearby",
    "rendezvous",
    "share_of",
    "sticky",
    "unowned",
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
"""By their names on the wire: members of one group must all use the same. The last two are ours."""

BROKER_DECIDED: Final = frozenset({"STICKY", "LAG_WEIGHTED"})
"""They need the previous owners and the lag, which only the broker knows."""


def allocate(queues: Queues, members: Sequence[str], strategy: Strategy = average) -> Shares:
    """Everybody's share; the order in which queues and members are given does not matter."""
    return strategy(*in_order(queues, members))


def share_of(member: str, shares: Shares) -> Queues:
    """One member's share: a look-up. Who is not listed has none."""
    if not member:
        raise UsageError("a member without an id has no share")
    return shares.get(member, ())
