"""Answers: what each strategy decides at a change, and how it compares with the least possible."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.model.settings import nearest
from roquet.rules import moves
from roquet.rules.allocate import (
    STRATEGIES,
    Shares,
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
from roquet.rules.consistency import ownership_fault
from roquet.rules.rebalance import difference
from roquet.rules.waiting_work import Lag
from roquet.spark.lab.course import Layout, room_of_member

NOBODY: Final = -1

POP: Final = "POP"
"""The one that shares messages and not queues; it stands among the strategies' names."""

LAG_WEIGHTED: Final = "LAG_WEIGHTED"

NO_LAG: Final[Lag] = MappingProxyType({})


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy is asked; whatever it does not look at is there for others."""

    layout: Layout
    members: Sequence[str]
    """In order."""
    before: Shares
    is_first: bool = False
    """Whether nothing was decided before."""
    lag: Lag = NO_LAG


Answer: TypeAlias = Callable[[Question], Shares]


_remembered: Final = lru_cache(maxsize=1 << 16)(md5_high)
"""A history asks for the same places of a ring at every change: hashing was most of its time."""

RULES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        **STRATEGIES,
        "CONSISTENT_HASH": consistent_hash(hasher=_remembered),
        "BOUNDED_LOAD": bounded_load(hasher=_remembered),
    }
)
"""Those that need only names."""


def _rule(name: str) -> Answer:
    strategy = RULES[name]
    return lambda asked: allocate(asked.layout.queues, asked.members, strategy)


def _config(asked: Question) -> Shares:
    """As an operator may have configured it once; nobody changes it when members change."""
    if asked.is_first:
        return allocate(asked.layout.queues, asked.members)
    return {member: asked.before.get(member, ()) for member in asked.members}


def _machine_room(asked: Question) -> Shares:
    return allocate(asked.layout.queues, asked.members, machine_room(asked.layout.rooms))


def _nearby(asked: Question) -> Shares:
    strategy = nearby(STRATEGIES["AVG"], _room_of_broker, room_of_member)
    return allocate(asked.layout.queues, asked.members, strategy)


def _room_of_broker(name: str) -> str:
    return name.partition("@")[0]


def _sticky(asked: Question) -> Shares:
    return sticky(asked.layout.queues, asked.members, moves.owners(asked.before))


def _lag_weighted(asked: Question) -> Shares:
    owners = moves.owners(asked.before)
    return lag_weighted(asked.layout.queues, asked.members, owners, asked.lag)


ANSWERS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        **{name: _rule(name) for name in RULES},
        "STICKY": _sticky,
        LAG_WEIGHTED: _lag_weighted,
        "MACHINE_ROOM": _machine_room,
        "MACHINE_ROOM_NEARBY-AVG": _nearby,
        "CONFIG": _config,
    }
)

BY_PLACE: Final = frozenset({"AVG", "AVG_BY_CIRCLE", "STICKY", "MACHINE_ROOM", "CONFIG"})
"""Those that see no more of a name than its place among the others: one answer serves for all
groups whose members come and go at the same places."""

NAMES: Final = (*ANSWERS, POP)


def strategy(name: str) -> str:
    """A strategy's name as it is written; UsageError with the nearest."""
    known = {one.upper(): one for one in NAMES}
    if name.upper() not in known:
        raise UsageError(
            f"there is no strategy {name!r}{nearest(name, NAMES)} There are {', '.join(NAMES)}."
        )
    return known[name.upper()]


Places: TypeAlias = tuple[int, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Who has what after a change, and how even that is; members are told by their places."""

    owners: Places
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


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy has to answer to: who comes to which place, or goes from it."""

    owners: Places
    """Of each queue, before: places among those who were there."""
    came: int = NOBODY
    """The place that the newcomer has from now on."""
    went: int = NOBODY
    """The place that somebody had until now."""


def decide(
    name: str, layout: Layout, members: Sequence[str], change: Change, lag: Lag = NO_LAG
) -> Decision:
    """What a strategy decides for members, in order; the one who goes is among them."""
    if name in BY_PLACE:
        return _by_place(name, layout, len(members), change)
    return _decided(name, layout, members, change, lag)


@lru_cache(maxsize=65_536)
def _by_place(name: str, layout: Layout, count: int, change: Change) -> Decision:
    return _decided(name, layout, _stand_ins(count), change, NO_LAG)


@lru_cache(maxsize=1_024)
def _stand_ins(count: int) -> Sequence[str]:
    return [f"10.0.0.0@room1-{n:06d}" for n in range(count)]


def _decided(
    name: str, layout: Layout, members: Sequence[str], change: Change, lag: Lag
) -> Decision:
    stayed = [member for place, member in enumerate(members) if place != change.came]
    had: dict[str, list[MessageQueue]] = {}
    for queue, place in zip(layout.queues, change.owners, strict=True):
        if place != NOBODY:
            had.setdefault(stayed[place], []).append(queue)
    present = [member for place, member in enumerate(members) if place != change.went]
    is_first = not had and change.came == change.went == NOBODY
    asked = Question(layout=layout, members=present, before=had, is_first=is_first, lag=lag)
    shares = ANSWERS[name](asked)
    _check(layout.queues, shares)
    moved = [q for one, own in had.items() for q in difference(own, shares.get(one, ())).drop]
    return _weighed(layout.queues, present, shares, had, moved, change)


def _weighed(
    queues: Sequence[MessageQueue],
    present: Sequence[str],
    shares: Shares,
    had: Shares,
    moved: Sequence[MessageQueue],
    change: Change,
) -> Decision:
    place_of = {member: place for place, member in enumerate(present)}
    owner, before = moves.owners(shares), moves.owners(had)
    sizes = [len(shares.get(member, ())) for member in present]
    mean = sum(sizes) / len(sizes) or 1
    newcomer = present[change.came] if change.came != NOBODY else ""
    spread = moves.sizes({member: shares.get(member, ()) for member in present})
    return Decision(
        owners=tuple(place_of[owner[queue]] if queue in owner else NOBODY for queue in queues),
        moved=len(moved),
        least=moves.fewest(had, queues, present),
        strayed=sum(
            before[queue] in place_of and owner.get(queue, newcomer) != newcomer for queue in moved
        ),
        spread=spread.most - spread.least,
        max_mean=spread.most / mean,
        cv=(sum((size - mean) ** 2 for size in sizes) / len(sizes)) ** 0.5 / mean,
        idle=sizes.count(0),
        unowned=len(queues) - len(owner),
    )


def _check(queues: Sequence[MessageQueue], shares: Shares) -> None:
    """A queue with two owners is a fault of a rule: nothing that is worth a measure."""
    if sum(map(len, shares.values())) <= len(queues):
        return
    for queue in queues:
        having = [member for member, share in shares.items() if queue in share]
        if fault := ownership_fault(having, wanted=False):
            raise UsageError(f"{queue} has {fault}: {', '.join(having)}")
