"""Topics: a list, each with its queues; created, changed, resized and deleted."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import resizing, topic_preview, topics
from roquet.admin.topics import TopicInfo, TopicSettings, parse_permission
from roquet.dashboard.changes import change, done, form_number, form_text
from roquet.dashboard.facts.paging import list_part
from roquet.dashboard.facts.topic_readers import QueueOwner, queue_owners, topic_readers
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of, dashboard_of, visitor_of
from roquet.dashboard.sampling.topic_sample import TopicSample
from roquet.model.errors import UsageError

MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the list; no sample yet for one that was just made."""

    name: str
    sample: TopicSample | None


ORDERS = {
    "name": lambda row: row.name,
    "messages": lambda row: (-((row.sample.messages or 0) if row.sample else -1), row.name),
    "rate": lambda row: (-((row.sample.in_per_s or 0) if row.sample else -1), row.name),
    "newest": lambda row: (-((row.sample.stored_ms or 0) if row.sample else -1), row.name),
}


async def list_topics(request: Request) -> Response:
    """Topics by search, order and page; names are asked for, sizes are of the newest sample."""
    is_system = request.query_params.get("system") == "1"
    names = await topics.list_names(admin_of(request), system=is_system)
    sample = dashboard_of(request).sampler.latest
    known = sample.topics if sample else {}
    rows = [TopicRow(name=name, sample=known.get(name)) for name in names]
    part = list_part(rows, request.query_params, lambda row: row.name, ORDERS)
    return page(
        request,
        "topics.html",
        topics=part,
        with_system=is_system,
        sampled_ms=sample.at_ms if sample else None,
        only_html={"types": MESSAGE_TYPES},
    )


async def show_topic(request: Request) -> Response:
    """One topic with its queues and groups."""
    name = request.path_params["name"]
    dashboard = dashboard_of(request)
    info = await topics.show(admin_of(request), name)
    sample = dashboard.sampler.latest
    known = sample.topics.get(name) if sample else None
    groups = sample.groups if sample else {}
    listed = info.groups or ()
    owners = queue_owners(name, listed, groups)
    return page(
        request,
        "topic.html",
        topic=info,
        in_per_s=known.in_per_s if known else None,
        resize=dashboard.resizes.progress(name),
        readers=topic_readers(name, listed, groups),
        owners=owners,
        only_html={"owners_of": _by_queue(owners)},
    )


def _by_queue(owners: Sequence[QueueOwner]) -> Mapping[tuple[str, int], Sequence[QueueOwner]]:
    by_queue: dict[tuple[str, int], list[QueueOwner]] = {}
    for one in owners:
        by_queue.setdefault((one.broker, one.queue_id), []).append(one)
    return by_queue


@change("topic.create")
async def create_topic(request: Request, form: FormData) -> Response:
    """Create a topic on all brokers."""
    name, count = form_text(form, "name"), form_number(form, "queues", 8)
    resizing.check_queue_count(count)
    message_type = form_text(form, "type", "NORMAL")
    if message_type not in MESSAGE_TYPES:
        raise UsageError(f"type {message_type!r}: {', '.join(MESSAGE_TYPES)} are possible")
    settings = TopicSettings(
        read_queues=count,
        write_queues=count,
        permission=parse_permission(form_text(form, "permission", "RW")),
        attributes=None if message_type == "NORMAL" else f"+message.type={message_type}",
    )
    brokers = await topics.create(admin_of(request), name, settings)
    return done(request, topic_path(name), f"created on {', '.join(brokers)}")


async def preview_update(request: Request) -> Response:
    """Preview of a change of settings."""
    name, settings = request.path_params["name"], _settings(request.query_params)
    info = await topics.show(admin_of(request), name)
    planned = topic_preview.TopicChange(info, settings, [p.broker for p in info.places])
    return _preview(
        request, info, "update", list(planned.preview()), dict(request.query_params), "Change"
    )


@change("topic.update")
async def update_topic(request: Request, form: FormData) -> Response:
    """Change permission or numbers of queues on all of a topic's brokers."""
    name = request.path_params["name"]
    brokers = await topics.update(admin_of(request), name, _settings(form))
    return done(request, topic_path(name), f"changed on {', '.join(brokers)}")


async def preview_resize(request: Request) -> Response:
    """Preview of a resize."""
    name, admin = request.path_params["name"], admin_of(request)
    count = _count(request.query_params, "queues")
    if count is None:
        raise UsageError("queues is missing")
    resizing.check_queue_count(count)
    info = await resizing.whole_topic(admin, name)
    own = await resizing.broadcasting_groups(admin, info.groups or ())
    lines = list(topic_preview.resize_preview(info, count, own))
    return _preview(request, info, "resize", lines, {"queues": str(count)}, "Resize")


@change("topic.resize")
async def resize_topic(request: Request, form: FormData) -> Response:
    """Begin to resize a topic; its page shows how far it is."""
    name, count = request.path_params["name"], form_number(form, "queues")
    resizing.check_queue_count(count)
    admin = admin_of(request)
    await admin.known_route(name)
    dashboard_of(request).resizes.begin(admin, name, count, visitor_of(request).user)
    return done(request, topic_path(name), f"the resize to {count} queues has begun")


async def preview_delete(request: Request) -> Response:
    """Preview of a deletion: everything that goes with a topic."""
    info = await topics.show(admin_of(request), request.path_params["name"])
    lines = list(topic_preview.delete_preview(info))
    return _preview(request, info, "delete", lines, {}, "Delete")


@change("topic.delete")
async def delete_topic(request: Request, form: FormData) -> Response:
    """Delete a topic whose name was typed."""
    name = request.path_params["name"]
    if form_text(form, "typed_name", "") != name:
        raise UsageError(f"type the name of the topic, {name}, to delete it")
    await topics.delete(admin_of(request), name)
    return done(request, "/topics", f"topic {name} is deleted")


def topic_path(name: str) -> str:
    """The page of a topic."""
    return f"/topics/{quote(name, safe='')}"


def _preview(
    request: Request,
    info: TopicInfo,
    action: str,
    lines: list[str],
    fields: dict[str, str],
    verb: str,
) -> Response:
    """The page of a preview, with a form that makes the change."""
    return page(
        request,
        "confirm.html",
        title=f"{verb} topic {info.name}",
        lines=lines,
        only_html={
            "back": topic_path(info.name),
            "action": f"{topic_path(info.name)}/{action}",
            "fields": [(name, value) for name, value in fields.items() if name != "csrf"],
            "verb": verb,
            "typed_name": info.name if action == "delete" else None,
        },
    )


def _settings(fields: QueryParams | FormData) -> TopicSettings:
    permission = str(fields.get("permission") or "")
    settings = TopicSettings(
        read_queues=_count(fields, "read_queues"),
        write_queues=_count(fields, "write_queues"),
        permission=parse_permission(permission) if permission else None,
    )
    if settings == TopicSettings():
        raise UsageError("say what is to be changed")
    for count in (settings.read_queues, settings.write_queues):
        if count is not None:
            resizing.check_queue_count(count)
    return settings


def _count(fields: QueryParams | FormData, name: str) -> int | None:
    """The whole number of a field; None where it is empty."""
    text = str(fields.get(name) or "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal():
        raise UsageError(f"{name.replace('_', ' ')} {text!r} is not a whole number")
    return int(text[:9])


ROUTES = [
    Route("/topics", list_topics),
    Route("/topics", create_topic, methods=["POST"]),
    Route("/topics/{name:path}/update", preview_update),
    Route("/topics/{name:path}/update", update_topic, methods=["POST"]),
    Route("/topics/{name:path}/resize", preview_resize),
    Route("/topics/{name:path}/resize", resize_topic, methods=["POST"]),
    Route("/topics/{name:path}/delete", preview_delete),
    Route("/topics/{name:path}/delete", delete_topic, methods=["POST"]),
    Route("/topics/{name:path}", show_topic),
]
