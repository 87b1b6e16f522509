"""Decisions: queue owners by each strategy at a change, compared with the fewest possible moves."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from roquet.lab.timeline import TopicLayout, room_of_member
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.rules.allocate import (
    STRATEGIES,
    GroupAssignment,
    Strategy,
    allocate,
    bounded_load,
    consistent_hash,
    lag_weighted,
    machine_room,
    md5_high,
    nearby,
    sticky,
)
from roquet.rules.balance import rebalance_cost
from roquet.rules.balance.group_consistency import ownership_fault
from roquet.rules.balance.rebalance import difference
from roquet.rules.balance.rebalance_cost import QueueLag

NOBODY: Final = -1

POP: Final = "POP"
"""Pop consumption, which shares messages and not queues; listed as one of the strategies."""

LAG_WEIGHTED: Final = "LAG_WEIGHTED"

NO_LAG: Final[QueueLag] = MappingProxyType({})


class AssignmentInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of all strategies; each uses a part of it."""

    layout: TopicLayout
    members: Sequence[str]
    """Names of the members, sorted."""
    before: GroupAssignment
    is_first: bool = False
    """Whether this is the first assignment."""
    lag: QueueLag = NO_LAG


AssignmentFunction: TypeAlias = Callable[[AssignmentInput], GroupAssignment]


_cached_hash: Final = lru_cache(maxsize=1 << 16)(md5_high)
"""Cached, because a history hashes the same names at every change, which took most of its time."""

NAME_STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        **STRATEGIES,
        "CONSISTENT_HASH": consistent_hash(hasher=_cached_hash),
        "BOUNDED_LOAD": bounded_load(hasher=_cached_hash),
    }
)
"""Strategies that need no more than names."""


def _name_strategy(name: str) -> AssignmentFunction:
    strategy = NAME_STRATEGIES[name]
    return lambda situation: allocate(situation.layout.queues, situation.members, strategy)


def _config(situation: AssignmentInput) -> GroupAssignment:
    """The first assignment, as an operator may have configured it; it never changes."""
    if situation.is_first:
        return allocate(situation.layout.queues, situation.members)
    return {member: situation.before.get(member, ()) for member in situation.members}


def _machine_room(situation: AssignmentInput) -> GroupAssignment:
    return allocate(
        situation.layout.queues, situation.members, machine_room(situation.layout.rooms)
    )


def _nearby(situation: AssignmentInput) -> GroupAssignment:
    strategy = nearby(STRATEGIES["AVG"], _room_of_broker, room_of_member)
    return allocate(situation.layout.queues, situation.members, strategy)


def _room_of_broker(name: str) -> str:
    return name.partition("@")[0]


def _sticky(situation: AssignmentInput) -> GroupAssignment:
    return sticky(
        situation.layout.queues, situation.members, rebalance_cost.owner_map(situation.before)
    )


def _lag_weighted(situation: AssignmentInput) -> GroupAssignment:
    owners = rebalance_cost.owner_map(situation.before)
    return lag_weighted(situation.layout.queues, situation.members, owners, situation.lag)


ASSIGNMENTS: Final[Mapping[str, AssignmentFunction]] = MappingProxyType(
    {
        **{name: _name_strategy(name) for name in NAME_STRATEGIES},
        "STICKY": _sticky,
        LAG_WEIGHTED: _lag_weighted,
        "MACHINE_ROOM": _machine_room,
        "MACHINE_ROOM_NEARBY-AVG": _nearby,
        "CONFIG": _config,
    }
)

INDEX_STRATEGIES: Final = frozenset({"AVG", "AVG_BY_CIRCLE", "STICKY", "MACHINE_ROOM", "CONFIG"})
"""Strategies that use only the index of a member in the sorted names. Groups whose members change
at the same indexes get the same decision, which is cached."""

NAMES: Final = (*ASSIGNMENTS, POP)


def known_strategy(name: str) -> str:
    """A strategy's name in its usual case; UsageError with a suggestion for an unknown one."""
    known = {each.upper(): each for each in NAMES}
    if name.upper() not in known:
        raise UsageError(
            f"there is no strategy {name!r}{suggest(name, NAMES)} There are {', '.join(NAMES)}."
        )
    return known[name.upper()]


OwnerIndexes: TypeAlias = tuple[int, ...]


class AssignmentDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The owners after a change, as indexes of sorted members, and how even they are."""

    owners: OwnerIndexes
    """The owner of each queue, or NOBODY."""
    moved: int = 0
    """Queues that had another owner, or have none now."""
    least: int = 0
    """The fewest moves that would make the shares even."""
    strayed: int = 0
    """Queues that moved between two members that were there before and after."""
    spread: int
    """The largest share minus the smallest, in queues."""
    max_mean: float
    """The largest share over the mean."""
    cv: float
    """The coefficient of variation of the shares."""
    idle: int
    """Members without a queue."""
    unowned: int
    """Queues without a member."""


class GroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of membership, by indexes of sorted members."""

    owners: OwnerIndexes
    """The owner of each queue before the change, by indexes of the members before it."""
    newcomer: int = NOBODY
    """The index of a new member; NOBODY for none."""
    leaver: int = NOBODY
    """The index of a member that goes; NOBODY for none."""


def decide(
    name: str,
    layout: TopicLayout,
    members: Sequence[str],
    change: GroupChange,
    lag: QueueLag = NO_LAG,
) -> AssignmentDecision:
    """Decide by a strategy; `members` are sorted, and include one that goes."""
    if name in INDEX_STRATEGIES:
        return _decide_by_index(name, layout, len(members), change)
    return _decide(name, layout, members, change, lag)


@lru_cache(maxsize=65_536)
def _decide_by_index(
    name: str, layout: TopicLayout, count: int, change: GroupChange
) -> AssignmentDecision:
    return _decide(name, layout, _placeholder_names(count), change, NO_LAG)


@lru_cache(maxsize=1_024)
def _placeholder_names(count: int) -> Sequence[str]:
    return [f"10.0.0.0@room1-{n:06d}" for n in range(count)]


def _decide(
    name: str, layout: TopicLayout, members: Sequence[str], change: GroupChange, lag: QueueLag
) -> AssignmentDecision:
    stayed = [member for place, member in enumerate(members) if place != change.newcomer]
    had: dict[str, list[MessageQueue]] = {}
    for queue, place in zip(layout.queues, change.owners, strict=True):
        if place != NOBODY:
            had.setdefault(stayed[place], []).append(queue)
    present = [member for place, member in enumerate(members) if place != change.leaver]
    is_first = not had and change.newcomer == change.leaver == NOBODY
    situation = AssignmentInput(
        layout=layout, members=present, before=had, is_first=is_first, lag=lag
    )
    shares = ASSIGNMENTS[name](situation)
    _check_single_owner(layout.queues, shares)
    moved = [
        queue
        for member, own in had.items()
        for queue in difference(own, shares.get(member, ())).drop
    ]
    return _evaluate(layout.queues, present, shares, had, moved, change)


def _evaluate(
    queues: Sequence[MessageQueue],
    present: Sequence[str],
    shares: GroupAssignment,
    had: GroupAssignment,
    moved: Sequence[MessageQueue],
    change: GroupChange,
) -> AssignmentDecision:
    place_of = {member: place for place, member in enumerate(present)}
    owner, before = rebalance_cost.owner_map(shares), rebalance_cost.owner_map(had)
    sizes = [len(shares.get(member, ())) for member in present]
    mean = sum(sizes) / len(sizes) or 1
    newcomer = present[change.newcomer] if change.newcomer != NOBODY else ""
    spread = rebalance_cost.queue_spread({member: shares.get(member, ()) for member in present})
    return AssignmentDecision(
        owners=tuple(place_of[owner[queue]] if queue in owner else NOBODY for queue in queues),
        moved=len(moved),
        least=rebalance_cost.fewest_moves(had, queues, present),
        strayed=sum(
            before[queue] in place_of and owner.get(queue, newcomer) != newcomer for queue in moved
        ),
        spread=spread.most - spread.least,
        max_mean=spread.most / mean,
        cv=(sum((size - mean) ** 2 for size in sizes) / len(sizes)) ** 0.5 / mean,
        idle=sizes.count(0),
        unowned=len(queues) - len(owner),
    )


def _check_single_owner(queues: Sequence[MessageQueue], shares: GroupAssignment) -> None:
    """Raise UsageError for a queue with two owners, which is a defect of the strategy."""
    if sum(map(len, shares.values())) <= len(queues):
        return
    for queue in queues:
        having = [member for member, share in shares.items() if queue in share]
        if fault := ownership_fault(having, wanted=False):
            raise UsageError(f"{queue} has {fault}: {', '.join(having)}")
