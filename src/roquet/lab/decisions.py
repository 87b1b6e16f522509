"""Answers: what each strategy decides at a change, and how it compares with the least possible."""

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
from roquet.rules.balance.lag_facts import QueueLag
from roquet.rules.balance.rebalance import difference

NOBODY: Final = -1

POP: Final = "POP"
"""The one that shares messages and not queues; it stands among the strategies' names."""

LAG_WEIGHTED: Final = "LAG_WEIGHTED"

NO_LAG: Final[QueueLag] = MappingProxyType({})


class AssignmentInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy is asked; whatever it does not look at is there for others."""

    layout: TopicLayout
    members: Sequence[str]
    """In order."""
    before: GroupAssignment
    is_first: bool = False
    """Whether nothing was decided before."""
    lag: QueueLag = NO_LAG


AssignmentFunction: TypeAlias = Callable[[AssignmentInput], GroupAssignment]


_cached_hash: Final = lru_cache(maxsize=1 << 16)(md5_high)
"""A history asks for the same places of a ring at every change: hashing was most of its time."""

NAME_STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        **STRATEGIES,
        "CONSISTENT_HASH": consistent_hash(hasher=_cached_hash),
        "BOUNDED_LOAD": bounded_load(hasher=_cached_hash),
    }
)
"""Those that need only names."""


def _name_strategy(name: str) -> AssignmentFunction:
    known_strategy = NAME_STRATEGIES[name]
    return lambda asked: allocate(asked.layout.queues, asked.members, known_strategy)


def _config(asked: AssignmentInput) -> GroupAssignment:
    """As an operator may have configured it once; nobody changes it when members change."""
    if asked.is_first:
        return allocate(asked.layout.queues, asked.members)
    return {member: asked.before.get(member, ()) for member in asked.members}


def _machine_room(asked: AssignmentInput) -> GroupAssignment:
    return allocate(asked.layout.queues, asked.members, machine_room(asked.layout.rooms))


def _nearby(asked: AssignmentInput) -> GroupAssignment:
    known_strategy = nearby(STRATEGIES["AVG"], _room_of_broker, room_of_member)
    return allocate(asked.layout.queues, asked.members, known_strategy)


def _room_of_broker(name: str) -> str:
    return name.partition("@")[0]


def _sticky(asked: AssignmentInput) -> GroupAssignment:
    return sticky(asked.layout.queues, asked.members, rebalance_cost.owner_map(asked.before))


def _lag_weighted(asked: AssignmentInput) -> GroupAssignment:
    owners = rebalance_cost.owner_map(asked.before)
    return lag_weighted(asked.layout.queues, asked.members, owners, asked.lag)


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
"""Those that see no more of a name than its place among the others: one answer serves for all
groups whose members come and go at the same places."""

NAMES: Final = (*ASSIGNMENTS, POP)


def known_strategy(name: str) -> str:
    """A strategy's name as it is written; UsageError with the nearest."""
    known = {one.upper(): one for one in NAMES}
    if name.upper() not in known:
        raise UsageError(
            f"there is no strategy {name!r}{suggest(name, NAMES)} There are {', '.join(NAMES)}."
        )
    return known[name.upper()]


OwnerIndexes: TypeAlias = tuple[int, ...]


class AssignmentDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Who has what after a change, and how even that is; members are told by their places."""

    owners: OwnerIndexes
    """Of each queue, or NOBODY."""
    moved: int = 0
    """Queues that had another owner, or have none now."""
    least: int = 0
    """So many must move before shares are even."""
    strayed: int = 0
    """Queues that went from one who stays to another who was there already."""
    spread: int
    """The largest share less the smallest."""
    max_mean: float
    cv: float
    """Of the shares: the largest over the mean, and the coefficient of variation."""
    idle: int
    """Members without a queue."""
    unowned: int
    """Queues without a member."""


class GroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy has to answer to: who comes to which place, or goes from it."""

    owners: OwnerIndexes
    """Of each queue, before: places among those who were there."""
    came: int = NOBODY
    """The place that the newcomer has from now on."""
    went: int = NOBODY
    """The place that somebody had until now."""


def decide(
    name: str,
    layout: TopicLayout,
    members: Sequence[str],
    change: GroupChange,
    lag: QueueLag = NO_LAG,
) -> AssignmentDecision:
    """What a strategy decides for members, in order; the one who goes is among them."""
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
    stayed = [member for place, member in enumerate(members) if place != change.came]
    had: dict[str, list[MessageQueue]] = {}
    for queue, place in zip(layout.queues, change.owners, strict=True):
        if place != NOBODY:
            had.setdefault(stayed[place], []).append(queue)
    present = [member for place, member in enumerate(members) if place != change.went]
    is_first = not had and change.came == change.went == NOBODY
    asked = AssignmentInput(layout=layout, members=present, before=had, is_first=is_first, lag=lag)
    shares = ASSIGNMENTS[name](asked)
    _check_single_owner(layout.queues, shares)
    moved = [q for one, own in had.items() for q in difference(own, shares.get(one, ())).drop]
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
    newcomer = present[change.came] if change.came != NOBODY else ""
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
    """A queue with two owners is a fault of a rule: nothing that is worth a measure."""
    if sum(map(len, shares.values())) <= len(queues):
        return
    for queue in queues:
        having = [member for member, share in shares.items() if queue in share]
        if fault := ownership_fault(having, wanted=False):
            raise UsageError(f"{queue} has {fault}: {', '.join(having)}")
