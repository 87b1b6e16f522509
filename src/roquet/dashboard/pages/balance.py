"""Balance: each strategy's shares for a group, and what moves if a member leaves or joins."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import groups
from roquet.dashboard.facts.balance import BalanceFacts, balance_of
from roquet.dashboard.form_fields import text_of
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of
from roquet.model.errors import RoquetError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment
from roquet.rules.balance.rebalance_cost import owner_map

JOINS: Final = "+"
"""Value of the field of who leaves that lets a member join instead."""

CELLS_MAX: Final = 512
"""Queues that the picture shows."""


async def overview(request: Request) -> Response:
    """The choice of a group, and the strategies for it."""
    query, admin = request.query_params, admin_of(request)
    group, topic = text_of(query, "group"), text_of(query, "topic")
    change = text_of(query, "change")
    facts: BalanceFacts | None = None
    problem = ""
    if group is not None:
        leaves = None if change in (None, JOINS) else change
        try:
            facts = await balance_of(admin, group, topic, leaves, joins=change == JOINS)
        except RoquetError as error:
            problem = str(error)
    return page(
        request,
        "balance.html",
        status=400 if problem else 200,
        only_html={
            "groups": await groups.list_names(admin),
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
