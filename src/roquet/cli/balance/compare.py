"""Comparison: each strategy's assignment, how even it is, and what moves when members change."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from roquet.cli.balance.situation import Situation
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.rules.allocate import (
    STRATEGIES,
    GroupAssignment,
    MessageQueues,
    allocate,
    average,
    lag_weighted,
    machine_room,
    nearby,
    sticky,
    unowned,
)
from roquet.rules.balance import rebalance_cost
from roquet.rules.balance.rebalance_cost import ShareSpread

StrategyFunction: TypeAlias = Callable[[Situation, Sequence[str], GroupAssignment], GroupAssignment]
"""Assigns queues to members, given their shares before."""

ALL: Final = "all"
NEARBY: Final = "MACHINE_ROOM_NEARBY-"


def _rule(name: str) -> StrategyFunction:
    strategy = STRATEGIES[name]
    return lambda situation, members, _before: allocate(situation.queues, members, strategy)


def _config(
    situation: Situation, members: Sequence[str], before: GroupAssignment
) -> GroupAssignment:
    """The CONFIG strategy: assigned once by an operator, unchanged when members change."""
    if not before:
        return allocate(situation.queues, members, average)
    return {member: before.get(member, ()) for member in members}


def _nearby(inner: str) -> StrategyFunction:
    return lambda situation, members, _before: allocate(
        situation.queues,
        members,
        nearby(STRATEGIES[inner], _room_of_broker, situation.room_of_member),
    )


def _room_of_broker(name: str) -> str:
    return name.partition("@")[0]


def _lag_weighted(
    situation: Situation, members: Sequence[str], before: GroupAssignment
) -> GroupAssignment:
    # Every message counts: noise, which hides small differences in lag, would hide the rule here.
    return lag_weighted(
        situation.queues, members, rebalance_cost.owner_map(before), situation.lag, noise=1
    )


STRATEGY_FUNCTIONS: Final[Mapping[str, StrategyFunction]] = MappingProxyType(
    {
        "AVG": _rule("AVG"),
        "AVG_BY_CIRCLE": _rule("AVG_BY_CIRCLE"),
        "CONFIG": _config,
        "MACHINE_ROOM": lambda situation, members, _before: allocate(
            situation.queues, members, machine_room(situation.rooms)
        ),
        **{f"{NEARBY}{inner}": _nearby(inner) for inner in STRATEGIES},
        "CONSISTENT_HASH": _rule("CONSISTENT_HASH"),
        "RENDEZVOUS": _rule("RENDEZVOUS"),
        "BOUNDED_LOAD": _rule("BOUNDED_LOAD"),
        "STICKY": lambda situation, members, before: sticky(
            situation.queues, members, rebalance_cost.owner_map(before)
        ),
        "LAG_WEIGHTED": _lag_weighted,
    }
)


class StrategyResult(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy's assignments and measures."""

    name: str
    before: GroupAssignment
    after: GroupAssignment
    """Equal to `before` when no member changes."""
    moved: MessageQueues
    fewest: int
    """Fewest moves after which shares are even."""
    unowned: MessageQueues
    sizes: ShareSpread
    waiting: ShareSpread

    @property
    def is_even(self) -> bool:
        """Whether every queue has an owner, and shares differ by one at most."""
        return self.sizes.is_even and not self.unowned

    @property
    def is_least(self) -> bool:
        """Whether it is even with the fewest possible moves."""
        return self.is_even and len(self.moved) <= self.fewest


def strategy_names(strategy: str) -> Sequence[str]:
    """Names of the strategies that --strategy means. Raises UsageError for an unknown one."""
    if strategy.lower() == ALL:
        return [n for n in STRATEGY_FUNCTIONS if not n.startswith(NEARBY) or n == f"{NEARBY}AVG"]
    known = {name.upper(): name for name in STRATEGY_FUNCTIONS}
    if strategy.upper() not in known:
        raise UsageError(
            f"--strategy: there is no {strategy!r}{suggest(strategy, [ALL, *STRATEGY_FUNCTIONS])}"
        )
    return [known[strategy.upper()]]


def compare(situation: Situation, names: Sequence[str]) -> Sequence[StrategyResult]:
    """The result of each strategy."""
    return [_result(situation, name) for name in names]


def _result(situation: Situation, name: str) -> StrategyResult:
    answer = partial(STRATEGY_FUNCTIONS[name], situation)
    before = answer(situation.members, {})
    after = answer(situation.remaining, before) if situation.then else before
    return StrategyResult(
        name=name,
        before=before,
        after=after,
        moved=rebalance_cost.moved_queues(before, after),
        fewest=rebalance_cost.fewest_moves(before, situation.queues, situation.remaining),
        unowned=unowned(after, situation.queues),
        sizes=rebalance_cost.queue_spread(after),
        waiting=rebalance_cost.lag_spread(after, situation.lag),
    )


def json_fields(situation: Situation, results: Sequence[StrategyResult]) -> dict[str, Any]:
    """The comparison for JSON."""
    return {
        "queues": [str(queue) for queue in situation.queues],
        "members": situation.members,
        "rooms": {member: situation.room_of_member(member) for member in situation.all_members},
        "then": situation.then and {"what": situation.then.value, "who": situation.changed_member},
        "lag": {str(queue): waiting for queue, waiting in situation.lag.items()},
        "strategies": [_one(situation, result) for result in results],
    }


def _one(situation: Situation, result: StrategyResult) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": result.name,
        "shares": _texts(result.before),
        "smallest": result.sizes.least,
        "largest": result.sizes.most,
        "unowned": [str(queue) for queue in result.unowned],
    }
    if situation.lag:
        content |= {"least_waiting": result.waiting.least, "most_waiting": result.waiting.most}
    if situation.then:
        content |= {
            "shares_after": _texts(result.after),
            "moved": [str(queue) for queue in result.moved],
            "moves": len(result.moved),
            "least_moves": result.fewest,
        }
    return content


def _texts(shares: GroupAssignment) -> Mapping[str, Sequence[str]]:
    return {member: [str(queue) for queue in share] for member, share in shares.items()}


def owners_in_order(
    situation: Situation, shares: GroupAssignment
) -> Sequence[tuple[MessageQueue, int | None]]:
    """Each queue, and its owner's index among all members; None without an owner."""
    owner_of = rebalance_cost.owner_map(shares)
    numbers = {member: number for number, member in enumerate(situation.all_members)}
    return [(q, numbers[owner_of[q]] if q in owner_of else None) for q in situation.queues]
