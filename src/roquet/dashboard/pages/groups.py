"""Groups: a list, each with its queues, owners and members; reset, changed and deleted."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import groups, offset_reset
from roquet.admin.client import fault_lines
from roquet.admin.offset_reset import QueueEdge, QueueReset, ResetTarget
from roquet.dashboard.changes import change, done, form_number, form_text
from roquet.dashboard.facts.charts import chart
from roquet.dashboard.facts.drawings import owner_picture
from roquet.dashboard.facts.group_rows import (
    GroupRow,
    group_row,
    lag_by_topic,
    queue_rows,
    trend_until_now,
    with_curve,
)
from roquet.dashboard.form_fields import list_part, utc_time
from roquet.dashboard.rendering import confirmation, page
from roquet.dashboard.request_context import admin_of, dashboard_of, group_in_path
from roquet.model.errors import UsageError
from roquet.model.printable_text import quantity

AT_TIME = "time"
"""Value of a form's field that says to reset a group to the time in another field."""

STATES: dict[str, Callable[[GroupRow], bool]] = {
    "all": lambda _row: True,
    "lagging": lambda row: bool(row.lag),
    "idle": lambda row: row.members == 0,
    "problems": lambda row: (
        row.problems > 0 or bool(row.dead_letters) or (row.members == 0 and bool(row.lag))
    ),
}
"""Filters of the list."""

ORDERS: dict[str, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.name,
    "lag": lambda row: (-(row.lag or 0), row.name),
    "members": lambda row: (-(row.members or 0), row.name),
    "letters": lambda row: (-(row.dead_letters or 0), row.name),
}


async def list_groups(request: Request) -> Response:
    """Groups by search, state, order and page; names are asked for, numbers are of samples."""
    sampler = dashboard_of(request).sampler
    sample = sampler.latest
    known = sample.groups if sample else {}
    state = request.query_params.get("state", "all")
    wanted = STATES.get(state, STATES["all"])
    names, failed = await groups.known_names(admin_of(request))
    rows = [row for name in names if wanted(row := group_row(name, known.get(name)))]
    part = list_part(rows, request.query_params, lambda row: row.name, ORDERS)
    return page(
        request,
        "groups.html",
        groups=part,
        rows=[with_curve(row, sampler.history(row.name)) for row in part.rows],
        state=state if state in STATES else "all",
        sampled_ms=sample.at_ms if sample else None,
        problems=fault_lines(failed),
        only_html={"states": list(STATES)},
    )


async def show_group(request: Request) -> Response:
    """One group: queues, owners over time, members."""
    name = group_in_path(request)
    info = await groups.show(admin_of(request), name)
    dashboard = dashboard_of(request)
    history, now_ms = dashboard.sampler.history(name), dashboard.clock.now_ms()
    return page(
        request,
        "group.html",
        group=info,
        trend=trend_until_now(history, history.lags, info.lag, now_ms),
        queues=queue_rows(info, history, now_ms),
        only_html={
            "topics": lag_by_topic(info.queues),
            "lag_chart": chart(history.times, {"lag": history.lags}, unit="number"),
            "owners": owner_picture(history.spans),
        },
    )


@change("group.create")
async def create_group(request: Request, form: FormData) -> Response:
    """Create a group on all brokers."""
    name = form_text(form, "name")
    retries = form_number(form, "retries", 16)
    if not 0 <= retries <= 1_000:
        raise UsageError(f"retries {retries}: from 0 to 1000 are possible")
    if name in await groups.list_names(admin_of(request)):
        raise UsageError(f"there is a group {name!r} already")
    brokers = await groups.create(admin_of(request), name, {"retry_max_times": retries})
    return done(request, group_path(name), f"created on {', '.join(brokers)}")


@change("group.update")
async def update_group(request: Request, form: FormData) -> Response:
    """Change a group's retries, or whether it may consume."""
    name, changes = group_in_path(request), {}
    if retries := form_text(form, "retries", ""):
        if not retries.isascii() or not retries.isdecimal() or int(retries[:9]) > 1_000:
            raise UsageError(f"retries {retries!r}: from 0 to 1000 are possible")
        changes["retry_max_times"] = int(retries[:9])
    if enabled := form_text(form, "enabled", ""):
        changes["consume_enable"] = enabled == "yes"
    if not changes:
        raise UsageError("say what is to be changed")
    await groups.show(admin_of(request), name)
    brokers = await groups.create(admin_of(request), name, changes)
    return done(request, group_path(name), f"changed on {', '.join(brokers)}")


async def preview_reset(request: Request) -> Response:
    """Preview of a reset: where it would move the group in each queue."""
    name, params = group_in_path(request), request.query_params
    resets = await _planned(request, params)
    words = _target_words(params)
    lines = [
        f"{quantity(sum(r.redelivered for r in resets), 'message')} will be delivered once more",
        f"{quantity(sum(r.skipped for r in resets), 'message')} will never be delivered to it",
    ]
    return confirmation(
        request,
        f"Reset {name} in {params.get('topic', '')} to {words}",
        lines,
        action=f"{group_path(name)}/reset",
        verb="Reset",
        fields=[(n, v) for n, v in params.multi_items() if n != "csrf"],
        resets=resets,
    )


@change("group.reset")
async def reset_group(request: Request, form: FormData) -> Response:
    """Move a group's offsets."""
    name = group_in_path(request)
    resets = await _planned(request, form)
    await offset_reset.reset(admin_of(request), name, resets)
    again, skipped = sum(r.redelivered for r in resets), sum(r.skipped for r in resets)
    text = f"reset in {quantity(len(resets), 'queue')}: {again:,} again, {skipped:,} skipped"
    return done(request, group_path(name), text)


async def preview_delete(request: Request) -> Response:
    """Preview of a deletion: everything that goes with a group."""
    name = group_in_path(request)
    info = await groups.show(admin_of(request), name)
    lines = [
        f"its progress in {quantity(len(info.queues), 'queue')} on all brokers",
        "it is not known how many messages it has still to handle"
        if info.lag is None
        else f"it has {quantity(info.lag, 'message')} still to handle",
        *info.problems,
    ]
    if info.members:
        lines.append(f"it has {quantity(len(info.members), 'member')}: stop them first")
    return confirmation(
        request,
        f"Delete group {name}",
        lines,
        action=f"{group_path(name)}/delete",
        verb="Delete",
        typed_name=name,
    )


@change("group.delete")
async def delete_group(request: Request, form: FormData) -> Response:
    """Delete a group whose name was typed and that has no members."""
    name = group_in_path(request)
    if form_text(form, "typed_name", "") != name:
        raise UsageError(f"type the name of the group, {name}, to delete it")
    info = await groups.show(admin_of(request), name)
    groups.check_has_no_members(info)
    await groups.delete(admin_of(request), name)
    return done(request, "/groups", f"group {name} is deleted")


def group_path(name: str) -> str:
    """The page of a group."""
    return f"/groups/{quote(name, safe='')}"


async def _planned(request: Request, fields: QueryParams | FormData) -> list[QueueReset]:
    topic = str(fields.get("topic") or "")
    if not topic:
        raise UsageError("choose the topic in which the group is to be reset")
    only = [_queue(str(text)) for text in fields.getlist("queue") if text]
    name, target = group_in_path(request), _target(fields)
    await groups.show(admin_of(request), name)  # the reset of an unknown group would create it
    return await offset_reset.plan(admin_of(request), name, topic, target, only)


def _target(fields: QueryParams | FormData) -> ResetTarget:
    to, at = str(fields.get("to") or ""), str(fields.get("at") or "")
    if to in {edge.value for edge in QueueEdge}:
        return QueueEdge(to)
    if to != AT_TIME:
        raise UsageError("choose where the group goes on: at its beginning, end or a time")
    if not at:
        raise UsageError("choose the time at which the group goes on, or its beginning or end")
    return utc_time(at, "at")


def _target_words(fields: QueryParams) -> str:
    words = {"first": "the beginning", "last": "the end"}
    return words.get(fields.get("to", ""), f"{fields.get('at', '')} UTC")


def _queue(text: str) -> tuple[str, int]:
    broker, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal():
        raise UsageError(f"queue {text!r}: BROKER:ID is wanted, as broker-a:3")
    return broker, int(number[:9])


ROUTES = [
    Route("/groups", list_groups),
    Route("/groups", create_group, methods=["POST"]),
    Route("/groups/{name:path}/update", update_group, methods=["POST"]),
    Route("/groups/{name:path}/reset", preview_reset),
    Route("/groups/{name:path}/reset", reset_group, methods=["POST"]),
    Route("/groups/{name:path}/delete", preview_delete),
    Route("/groups/{name:path}/delete", delete_group, methods=["POST"]),
    Route("/groups/{name:path}", show_group),
]
