"""Topics: a list, each with its queues; created, changed, resized and deleted."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import resizing, topic_preview, topics
from roquet.admin.group_info import GroupInfo, GroupQueueInfo
from roquet.admin.topics import TopicSettings, parse_permission
from roquet.dashboard.changes import change, done, form_number, form_text
from roquet.dashboard.facts.charts import chart
from roquet.dashboard.form_fields import list_part
from roquet.dashboard.rendering import confirmation, page
from roquet.dashboard.request_context import admin_of, dashboard_of, topic_in_path, visitor_of
from roquet.dashboard.sampling.sampler import TopicSample
from roquet.model.errors import UsageError


class TopicReader(msgspec.Struct, frozen=True, kw_only=True):
    """A group that reads a topic; numbers are of the newest sample, None where it has none."""

    group: str
    members: int | None = None
    lag: int | None = None
    """Messages of this topic alone."""


class QueueOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a group that own a queue, as its broker sees it."""

    broker: str
    queue_id: int
    group: str
    owners: Sequence[str]
    """Client ids; more than one where members do not agree."""


def topic_readers(
    topic: str, groups: Sequence[str], sample: Mapping[str, GroupInfo]
) -> list[TopicReader]:
    """The groups that read a topic, in their order."""
    return [_reader(topic, name, sample.get(name)) for name in groups]


def queue_owners(
    topic: str, groups: Sequence[str], sample: Mapping[str, GroupInfo]
) -> list[QueueOwner]:
    """The owners of a topic's queues that are known, by group."""
    return [
        QueueOwner(
            broker=queue.broker, queue_id=queue.queue_id, group=name, owners=queue.owners or ()
        )
        for name in groups
        for queue in _queues(topic, sample.get(name))
        if queue.owners
    ]


def _reader(topic: str, name: str, info: GroupInfo | None) -> TopicReader:
    if info is None:
        return TopicReader(group=name)
    lag = None if info.lag is None else sum(queue.lag for queue in _queues(topic, info))
    return TopicReader(group=name, members=info.member_count, lag=lag)


def _queues(topic: str, info: GroupInfo | None) -> Iterator[GroupQueueInfo]:
    return (queue for queue in (info.queues if info else ()) if queue.topic == topic)


MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY")


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
    name = topic_in_path(request)
    dashboard = dashboard_of(request)
    info = await topics.show(admin_of(request), name)
    sample, totals = dashboard.sampler.latest, dashboard.sampler.totals
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
        only_html={
            "owners_of": _by_queue(owners),
            "in_chart": chart(totals.times, {"in": totals.topic_rates(name)}, unit="rate"),
        },
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
    name, settings = topic_in_path(request), _settings(request.query_params)
    info = await topics.show(admin_of(request), name)
    planned = topic_preview.TopicChange(info, settings, [p.broker for p in info.places])
    return confirmation(
        request,
        f"Change topic {info.name}",
        list(planned.preview()),
        action=f"{topic_path(info.name)}/update",
        verb="Change",
        fields=[(n, value) for n, value in dict(request.query_params).items() if n != "csrf"],
    )


@change("topic.update")
async def update_topic(request: Request, form: FormData) -> Response:
    """Change permission or numbers of queues on all of a topic's brokers."""
    name = topic_in_path(request)
    brokers = await topics.update(admin_of(request), name, _settings(form))
    return done(request, topic_path(name), f"changed on {', '.join(brokers)}")


async def preview_resize(request: Request) -> Response:
    """Preview of a resize."""
    name, admin = topic_in_path(request), admin_of(request)
    count = _count(request.query_params, "queues")
    if count is None:
        raise UsageError("queues is missing")
    resizing.check_queue_count(count)
    info = await resizing.whole_topic(admin, name)
    own = await resizing.broadcasting_groups(admin, info.groups or ())
    return confirmation(
        request,
        f"Resize topic {info.name}",
        list(topic_preview.resize_preview(info, count, own)),
        action=f"{topic_path(info.name)}/resize",
        verb="Resize",
        fields=[("queues", str(count))],
    )


@change("topic.resize")
async def resize_topic(request: Request, form: FormData) -> Response:
    """Begin to resize a topic; its page shows how far it is."""
    name, count = topic_in_path(request), form_number(form, "queues")
    resizing.check_queue_count(count)
    admin = admin_of(request)
    await admin.known_route(name)
    dashboard_of(request).resizes.begin(admin, name, count, visitor_of(request).user)
    return done(request, topic_path(name), f"the resize to {count} queues has begun")


async def preview_delete(request: Request) -> Response:
    """Preview of a deletion: everything that goes with a topic."""
    info = await topics.show(admin_of(request), topic_in_path(request))
    return confirmation(
        request,
        f"Delete topic {info.name}",
        list(topic_preview.delete_preview(info)),
        action=f"{topic_path(info.name)}/delete",
        verb="Delete",
        typed_name=info.name,
    )


@change("topic.delete")
async def delete_topic(request: Request, form: FormData) -> Response:
    """Delete a topic whose name was typed."""
    name = topic_in_path(request)
    if form_text(form, "typed_name", "") != name:
        raise UsageError(f"type the name of the topic, {name}, to delete it")
    await topics.delete(admin_of(request), name)
    return done(request, "/topics", f"topic {name} is deleted")


def topic_path(name: str) -> str:
    """The page of a topic."""
    return f"/topics/{quote(name, safe='')}"


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
