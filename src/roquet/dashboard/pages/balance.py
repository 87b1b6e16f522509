"""Balance: each strategy's shares for a group, and what moves if a member leaves or joins."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.admin.group_info import GroupInfo
from roquet.dashboard.facts.group_rows import GroupRow, group_row
from roquet.dashboard.form_fields import list_part, text_of
from roquet.dashboard.rendering import page, status_of
from roquet.dashboard.request_context import admin_of, dashboard_of
from roquet.model.errors import NotFound, RoquetError, UsageError
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import (
    STRATEGIES,
    GroupAssignment,
    MessageQueues,
    QueueOwners,
    allocate,
    lag_weighted,
    sticky,
)
from roquet.rules.balance import rebalance_cost
from roquet.rules.balance.rebalance_cost import owner_map

NEWCOMER: Final = "(a new member)"
"""Name of the member that joins in a forecast."""


class BalanceInput(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's queues in a group: their owners, their lag, and the group's members."""

    topic: str
    queues: MessageQueues
    members: Sequence[str]
    """Members that listen to the topic, or all of them when they do not say."""
    owners: QueueOwners
    """Owners as brokers report them; queues without a known one are left out."""
    lag: Mapping[MessageQueue, int]


class StrategyForecast(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy's shares now and after a change of the members."""

    name: str
    is_used: bool
    """Whether a member of the group reports that it uses it."""
    shares: GroupAssignment
    moves_now: int
    """Queues that would change owners if the group took this strategy; 0 where none is known."""
    after: GroupAssignment
    """Equal to `shares` when no member changes."""
    moves: int
    """Queues that change owners with the members."""
    fewest: int
    """Fewest moves after which shares are even."""
    least: int
    most: int
    """Smallest and largest share after the change, in queues."""
    least_lag: int
    most_lag: int
    """Smallest and largest number of waiting messages of a member after the change."""


class BalanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All strategies for one topic of a group."""

    group: str
    topics: Sequence[str]
    """Topics of the group, without its retry topic."""
    topic: str
    members: Sequence[str]
    queues: MessageQueues
    owners: Sequence[str | None]
    """Owner of each queue now; None where none is known."""
    change: str
    """The change that is forecast, as `c1 leaves`; empty without one."""
    members_after: Sequence[str]
    strategies: Sequence[StrategyForecast]


_Allocation: TypeAlias = Callable[[BalanceInput, Sequence[str], QueueOwners], GroupAssignment]


def _by_rule(
    name: str, given: BalanceInput, members: Sequence[str], _: QueueOwners
) -> GroupAssignment:
    return allocate(given.queues, members, STRATEGIES[name])


def _sticky(given: BalanceInput, members: Sequence[str], owners: QueueOwners) -> GroupAssignment:
    return sticky(given.queues, members, owners)


def _lag_weighted(
    given: BalanceInput, members: Sequence[str], owners: QueueOwners
) -> GroupAssignment:
    return lag_weighted(given.queues, members, owners, given.lag)


_ALLOCATIONS: Final[Mapping[str, _Allocation]] = {
    **{name: partial(_by_rule, name) for name in STRATEGIES},
    "STICKY": _sticky,
    "LAG_WEIGHTED": _lag_weighted,
}


async def balance_of(
    admin: AdminClient, group: str, topic: str | None, leaves: str | None, *, joins: bool = False
) -> BalanceFacts:
    """The shares that each strategy gives a group's members now, and after a change.

    Raises NotFound for an unknown group, topic or member, UsageError for a group without members.
    """
    info = await groups.show(admin, group)
    topics = sorted({queue.topic for queue in info.queues if not is_retry(queue.topic)})
    if not topics:
        raise UsageError(f"group {group} has read no topic yet: there is nothing to balance")
    chosen = topic or topics[0]
    if chosen not in topics:
        raise NotFound(f"group {group} reads no topic {chosen!r}")
    return forecast(info, topics, balance_input(info, chosen), leaves, joins=joins)


def balance_input(info: GroupInfo, topic: str) -> BalanceInput:
    """A topic's queues, members, owners and lag.

    Raises UsageError for a group without members, and when they are not known.
    """
    if info.members is None:
        raise UsageError(f"the members of {info.name} are not known: {'; '.join(info.problems)}")
    rows = [row for row in info.queues if row.topic == topic]
    queues = {MessageQueue(topic, row.broker, row.queue_id): row for row in rows}
    members = [
        member.client_id
        for member in info.members
        if member.subscriptions is None or topic in member.subscriptions
    ]
    if not members:
        raise UsageError(f"no member of group {info.name} reads {topic} now")
    owners = {
        queue: row.owners[0]
        for queue, row in queues.items()
        if row.owners and row.owners[0] in members
    }
    return BalanceInput(
        topic=topic,
        queues=list(queues),
        members=members,
        owners=owners,
        lag={queue: max(row.lag, 0) for queue, row in queues.items()},
    )


def forecast(
    info: GroupInfo, topics: Sequence[str], given: BalanceInput, leaves: str | None, *, joins: bool
) -> BalanceFacts:
    """All strategies, before and after a member leaves or joins."""
    if leaves is not None and leaves not in given.members:
        raise NotFound(f"{leaves!r} is no member that reads {given.topic}")
    after = [member for member in given.members if member != leaves]
    after += [NEWCOMER] if joins else []
    if not after:
        raise UsageError("nobody would be left: the queues would wait for the next member")
    changes = [f"{leaves} leaves"] * (leaves is not None) + ["a member joins"] * joins
    used = {member.strategy for member in info.members or ()}
    return BalanceFacts(
        group=info.name,
        topics=topics,
        topic=given.topic,
        members=given.members,
        queues=given.queues,
        owners=[given.owners.get(queue) for queue in given.queues],
        change=" and ".join(changes),
        members_after=after,
        strategies=[_forecast(name, given, after, is_used=name in used) for name in _ALLOCATIONS],
    )


def _forecast(
    name: str, given: BalanceInput, members: Sequence[str], *, is_used: bool
) -> StrategyForecast:
    allocation = _ALLOCATIONS[name]
    before = allocation(given, given.members, given.owners)
    owners = rebalance_cost.owner_map(before)
    after = before if members == given.members else allocation(given, members, owners)
    sizes = rebalance_cost.queue_spread(after)
    waiting = rebalance_cost.lag_spread(after, given.lag)
    return StrategyForecast(
        name=name,
        is_used=is_used,
        shares=before,
        moves_now=sum(owners.get(queue) != owner for queue, owner in given.owners.items()),
        after=after,
        moves=len(rebalance_cost.moved_queues(before, after)),
        fewest=rebalance_cost.fewest_moves(before, given.queues, members),
        least=sizes.least,
        most=sizes.most,
        least_lag=waiting.least,
        most_lag=waiting.most,
    )


JOINS: Final = "+"
"""Value of the field of who leaves that lets a member join instead."""

ORDERS: Final[Mapping[str, Callable[[GroupRow], object]]] = {
    "members": lambda row: (-(row.members or 0), row.name)
}
"""Groups to choose from: those with the most members first."""

CELLS_MAX: Final = 512
"""Queues that the picture shows."""


async def overview(request: Request) -> Response:
    """The choice of a group, and the strategies for it."""
    query, admin = request.query_params, admin_of(request)
    group, topic = text_of(query, "group"), text_of(query, "topic")
    change = text_of(query, "change")
    facts: BalanceFacts | None = None
    problem, status = "", 200
    if group is not None:
        leaves = None if change in (None, JOINS) else change
        try:
            facts = await balance_of(admin, group, topic, leaves, joins=change == JOINS)
        except RoquetError as error:
            problem, status = str(error), status_of(error)
    names, unlisted = list[str](), ""
    try:
        names = await groups.list_names(admin)
    except RoquetError as error:  # a visitor may see some group, and not the list of all
        unlisted = str(error)
    sample = dashboard_of(request).sampler.latest
    known = sample.groups if sample else {}
    rows = [group_row(name, known.get(name)) for name in names]
    return page(
        request,
        "balance.html",
        status=status,
        only_html={
            "groups": names,
            "unlisted": unlisted,
            "choices": list_part(rows, query, lambda row: row.name, ORDERS),
            "group": group or "",
            "change": change or "",
            "joins": JOINS,
            "picture": {} if facts is None else cells(facts),
            "cells_max": CELLS_MAX,
        },
        facts=_plain(facts),
        problem=problem,
    )


def cells(facts: BalanceFacts) -> Mapping[str, Sequence[int | None]]:
    """The number of each queue's owner, by strategy and as it is now; None without an owner."""
    names = [*facts.members, *(m for m in facts.members_after if m not in facts.members)]
    numbers = {member: number for number, member in enumerate(names)}
    queues = facts.queues[:CELLS_MAX]

    def row(shares: GroupAssignment) -> list[int | None]:
        owners = owner_map(shares)
        return [numbers.get(owners.get(queue, "")) for queue in queues]

    now = [None if owner is None else numbers[owner] for owner in facts.owners[:CELLS_MAX]]
    return {"": now} | {one.name: row(one.after) for one in facts.strategies}


def _plain(facts: BalanceFacts | None) -> object:
    """The facts with queues as texts: JSON has no other keys, and members see BROKER:ID."""
    if facts is None:
        return None
    fields = {name: getattr(facts, name) for name in facts.__struct_fields__}
    strategies = [
        {
            **{name: getattr(one, name) for name in one.__struct_fields__},
            "shares": _texts(one.shares),
            "after": _texts(one.after),
        }
        for one in facts.strategies
    ]
    return fields | {"queues": [*map(queue_text, facts.queues)], "strategies": strategies}


def _texts(shares: GroupAssignment) -> Mapping[str, Sequence[str]]:
    return {member: [*map(queue_text, share)] for member, share in shares.items()}


def queue_text(queue: MessageQueue) -> str:
    """A queue of a known topic, as `broker-a:3`."""
    return f"{queue.broker_name}:{queue.queue_id}"


ROUTES = [Route("/balance", overview)]
