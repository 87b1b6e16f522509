"""Each strategy's answer to a situation, how even it is, and what moves when members change."""

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
"""What a strategy gives these members, when they had those shares before."""

ALL: Final = "all"
NEARBY: Final = "MACHINE_ROOM_NEARBY-"


def _rule(name: str) -> StrategyFunction:
    strategy = STRATEGIES[name]
    return lambda given, members, _before: allocate(given.queues, members, strategy)


def _config(given: Situation, members: Sequence[str], before: GroupAssignment) -> GroupAssignment:
    """As an operator may have configured it once; nobody changes it when members change."""
    if not before:
        return allocate(given.queues, members, average)
    return {member: before.get(member, ()) for member in members}


def _machine_room(
    given: Situation, members: Sequence[str], _before: GroupAssignment
) -> GroupAssignment:
    return allocate(given.queues, members, machine_room(given.rooms))


def _nearby(inner: str) -> StrategyFunction:
    def answer(
        given: Situation, members: Sequence[str], _before: GroupAssignment
    ) -> GroupAssignment:
        strategy = nearby(STRATEGIES[inner], _room_of_broker, given.room_of_member)
        return allocate(given.queues, members, strategy)

    return answer


def _room_of_broker(name: str) -> str:
    return name.partition("@")[0]


def _sticky(given: Situation, members: Sequence[str], before: GroupAssignment) -> GroupAssignment:
    return sticky(given.queues, members, rebalance_cost.owner_map(before))


def _lag_weighted(
    given: Situation, members: Sequence[str], before: GroupAssignment
) -> GroupAssignment:
    # Each message counts: who asks here wants to see the rule, and chance is no part of it.
    return lag_weighted(given.queues, members, rebalance_cost.owner_map(before), given.lag, noise=1)


STRATEGY_FUNCTIONS: Final[Mapping[str, StrategyFunction]] = MappingProxyType(
    {
        "AVG": _rule("AVG"),
        "AVG_BY_CIRCLE": _rule("AVG_BY_CIRCLE"),
        "CONFIG": _config,
        "MACHINE_ROOM": _machine_room,
        **{f"{NEARBY}{inner}": _nearby(inner) for inner in STRATEGIES},
        "CONSISTENT_HASH": _rule("CONSISTENT_HASH"),
        "RENDEZVOUS": _rule("RENDEZVOUS"),
        "BOUNDED_LOAD": _rule("BOUNDED_LOAD"),
        "STICKY": _sticky,
        "LAG_WEIGHTED": _lag_weighted,
    }
)


class StrategyResult(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy's answers."""

    name: str
    before: GroupAssignment
    after: GroupAssignment
    """The same as before when nothing happens."""
    moved: MessageQueues
    fewest: int
    """Queues that have to move, at the least, before shares are even."""
    unowned: MessageQueues
    sizes: ShareSpread
    waiting: ShareSpread

    @property
    def is_even(self) -> bool:
        """Whether every queue has an owner, and shares differ by one at most."""
        return self.sizes.is_even and not self.unowned

    @property
    def is_least(self) -> bool:
        """Whether it is even, and no fewer moves would have made it so."""
        return self.is_even and len(self.moved) <= self.fewest


def strategy_names(strategy: str) -> Sequence[str]:
    """The strategies that a word stands for."""
    if strategy.lower() == ALL:
        return [n for n in STRATEGY_FUNCTIONS if not n.startswith(NEARBY) or n == f"{NEARBY}AVG"]
    known = {name.upper(): name for name in STRATEGY_FUNCTIONS}
    if strategy.upper() not in known:
        raise UsageError(
            f"--strategy: there is no {strategy!r}{suggest(strategy, [ALL, *STRATEGY_FUNCTIONS])}"
        )
    return [known[strategy.upper()]]


def compare(given: Situation, names: Sequence[str]) -> Sequence[StrategyResult]:
    """What each of these strategies does."""
    return [_result(given, name) for name in names]


def _result(given: Situation, name: str) -> StrategyResult:
    answer = partial(STRATEGY_FUNCTIONS[name], given)
    before = answer(given.members, {})
    after = answer(given.remaining, before) if given.then else before
    return StrategyResult(
        name=name,
        before=before,
        after=after,
        moved=rebalance_cost.moved_queues(before, after),
        fewest=rebalance_cost.fewest_moves(before, given.queues, given.remaining),
        unowned=unowned(after, given.queues),
        sizes=rebalance_cost.queue_spread(after),
        waiting=rebalance_cost.lag_spread(after, given.lag),
    )


def json_fields(given: Situation, results: Sequence[StrategyResult]) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "queues": [str(queue) for queue in given.queues],
        "members": given.members,
        "rooms": {member: given.room_of_member(member) for member in given.everybody},
        "then": given.then and {"what": given.then.value, "who": given.who},
        "lag": {str(queue): waiting for queue, waiting in given.lag.items()},
        "strategies": [_one(given, result) for result in results],
    }


def _one(given: Situation, result: StrategyResult) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": result.name,
        "shares": _texts(result.before),
        "smallest": result.sizes.least,
        "largest": result.sizes.most,
        "unowned": [str(queue) for queue in result.unowned],
    }
    if given.lag:
        content |= {"least_waiting": result.waiting.least, "most_waiting": result.waiting.most}
    if given.then:
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
    given: Situation, shares: GroupAssignment
) -> Sequence[tuple[MessageQueue, int | None]]:
    """Each queue, and the number of its owner among everybody."""
    owner_of = rebalance_cost.owner_map(shares)
    numbers = {member: number for number, member in enumerate(given.everybody)}
    return [(q, numbers[owner_of[q]] if q in owner_of else None) for q in given.queues]
