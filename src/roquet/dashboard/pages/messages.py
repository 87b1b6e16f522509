"""Messages: the newest ones of a topic, searches, and one message with its body and trace."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin.client import AdminClient
from roquet.admin.messages import by_key
from roquet.dashboard.facts import messages
from roquet.dashboard.facts.message_rows import BodyForm, body_view, message_rows, place
from roquet.dashboard.facts.messages import FoundMessages, MessageFilter, TimeRange
from roquet.dashboard.form_fields import number_of, text_of, time_of
from roquet.dashboard.masking import MaskRule, mask_body
from roquet.dashboard.rendering import page, status_of
from roquet.dashboard.request_context import admin_of, dashboard_of, open_reader
from roquet.model.errors import NotFound, RoquetError, UsageError
from roquet.model.message import StoredMessage
from roquet.model.names import SYSTEM_TOPICS, TRACE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.wire import trace_text
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    RecallTrace,
    SendTrace,
    Trace,
    TransactionTrace,
)

RECORDS_MAX: Final = 64
"""Trace messages that are looked up for one message."""

_OUTCOMES: Final = {
    ConsumeReturnType.SUCCESS: "handled",
    ConsumeReturnType.TIMED_OUT: "timed out",
    ConsumeReturnType.RAISED: "raised an error",
    ConsumeReturnType.RETURNED_NOTHING: "returned nothing",
    ConsumeReturnType.FAILED: "failed",
}


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step in the life of a message, as a client has recorded it."""

    at_ms: int
    """By the client's clock; 0 when an older client does not say."""
    group: str
    event: str
    """As `sent`, or `handled, try 2`."""
    took_ms: int | None = None
    success: bool | None = None
    """None while a handler has not reported how it ended."""
    detail: str = ""


async def trace_of(admin: AdminClient, message_id: str) -> Sequence[TraceStep]:
    """The steps of a message by time; empty when its clients write no trace.

    Raises UsageError when there is no such trace topic.
    """
    if await admin.route(TRACE_TOPIC) is None:
        raise UsageError(
            f"tracing is off: no broker has the topic {TRACE_TOPIC}"
            " (traceTopicEnable=true makes it)"
        )
    found = await by_key(admin, TRACE_TOPIC, message_id, count=RECORDS_MAX)
    texts = [message.body.decode("utf-8", "replace") for message in found]
    return steps_of(message_id, (trace for text in texts for trace in trace_text.decode(text)))


def steps_of(message_id: str, traces: Iterable[Trace]) -> Sequence[TraceStep]:
    """The steps that trace records tell of one message, by time."""
    mine = [trace for trace in traces if trace.message_id == message_id]
    ends = {trace.request_id: trace for trace in mine if isinstance(trace, ConsumeEndTrace)}
    starts = {trace.request_id for trace in mine if isinstance(trace, ConsumeStartTrace)}
    steps = [step for trace in mine for step in _step(trace, ends, starts)]
    return sorted(steps, key=lambda step: step.at_ms)


def _step(trace: Trace, ends: dict[str, ConsumeEndTrace], starts: set[str]) -> Iterator[TraceStep]:
    match trace:
        case SendTrace():
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event="sent" if trace.success else "send failed",
                took_ms=trace.took_ms,
                success=trace.success,
                detail=f"to {trace.store_host}" if trace.store_host else "",
            )
        case ConsumeStartTrace():
            end = ends.get(trace.request_id)
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event=f"{_outcome(end)}, try {trace.tries + 1}",
                took_ms=end.took_ms if end else None,
                success=end.success if end else None,
            )
        case ConsumeEndTrace():
            if trace.request_id in starts:
                return
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event=_outcome(trace),
                took_ms=trace.took_ms,
                success=trace.success,
            )
        case TransactionTrace():
            yield TraceStep(
                at_ms=trace.at_ms,
                group=trace.group,
                event=f"transaction: {trace.state}",
                detail="after a check" if trace.from_check else "",
            )
        case RecallTrace():
            yield TraceStep(
                at_ms=trace.at_ms, group=trace.group, event="recalled", success=trace.success
            )


def _outcome(end: ConsumeEndTrace | None) -> str:
    if end is None:
        return "handler runs, or never reported"
    known = {int(value): text for value, text in _OUTCOMES.items()}
    return known.get(end.outcome, f"ended with {end.outcome}")


FIELDS: Final = ("topic", "tags", "sql", "key", "text", "id", "from", "to")
"""Fields of the search form."""

TOPICS_MAX: Final = 2_000
"""Names that the field of a topic suggests."""

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.-]")


async def search(request: Request) -> Response:
    """The search form, and what it finds."""
    admin = admin_of(request)
    fields = {name: text_of(request.query_params, name) or "" for name in FIELDS}
    count = number_of(request.query_params, "count", messages.COUNT, messages.COUNT_MAX)
    found, problem, status = FoundMessages(messages=()), "", 200
    if fields["topic"] or fields["id"]:
        try:
            found = await _find(request, fields, max(count, 1))
        except RoquetError as error:
            problem, status = str(error), status_of(error)
    return page(
        request,
        "messages.html",
        status=status,
        only_html={"topics": await topic_names(admin), "fields": fields, "count": count},
        topic=fields["topic"],
        rows=message_rows(found.messages, _rules(request)),
        scanned=found.scanned,
        problems=[problem] if problem else found.problems,
        searched=bool(fields["topic"] or fields["id"]),
    )


async def _find(request: Request, fields: Mapping[str, str], count: int) -> FoundMessages:
    admin, topic = admin_of(request), fields["topic"] or None
    if fields["id"]:
        return await messages.look_up(admin, topic, message_id=fields["id"])
    assert topic is not None
    wanted = filter_of(request)
    begin_ms, end_ms = time_of(request.query_params, "from"), time_of(request.query_params, "to")
    is_plain = wanted == MessageFilter(key=wanted.key)
    if wanted.key is not None and is_plain and begin_ms is None and end_ms is None:
        return await messages.look_up(admin, topic, key=wanted.key, count=count)
    times = None
    if begin_ms is not None or end_ms is not None:
        times = TimeRange(begin_ms or 0, TimeRange().end_ms if end_ms is None else end_ms)
    async with open_reader(request) as reader:
        return await messages.search(
            reader, topic, wanted, _rules(request), count=count, times=times
        )


def filter_of(request: Request) -> MessageFilter:
    """The filter that an address describes. Raises UsageError for tags together with SQL."""
    query = request.query_params
    tags, sql = text_of(query, "tags"), text_of(query, "sql")
    if tags is not None and sql is not None:
        raise UsageError("choose messages by tags or by SQL92, not by both")
    default = MessageFilter()
    return MessageFilter(
        tags=tags or default.tags, sql=sql, key=text_of(query, "key"), text=text_of(query, "text")
    )


async def one(request: Request) -> Response:
    """One message by its place: its fields, properties, body and trace."""
    found = await stored_message(request)
    shown_as = text_of(request.query_params, "as") or BodyForm.AUTO.value
    if shown_as not in {*BodyForm}:
        raise UsageError(f"{shown_as!r:.100} is no notation: {', '.join(BodyForm)}")
    masked = mask_body(_rules(request), found)
    trace, trace_problem = await _trace(admin_of(request), found)
    fields = dict(messages.json_fields(found, masked.data))
    if masked.is_masked and not masked.data:
        del fields["body"]
    return page(
        request,
        "message.html",
        only_html={
            "view": body_view(masked, BodyForm(shown_as)),
            "forms": [form.value for form in BodyForm if form is not BodyForm.AUTO],
            "place": place(found),
        },
        message=fields,
        size=len(found.body),
        stored_size=found.size,
        is_masked=masked.is_masked,
        trace=trace,
        trace_problem=trace_problem,
    )


async def download(request: Request) -> Response:
    """The body as a file, without what is hidden."""
    found = await stored_message(request)
    masked = mask_body(_rules(request), found)
    if masked.is_masked and not masked.data:
        raise UsageError("a rule hides the bodies of this topic")
    name = _UNUSUAL.sub("_", f"{found.topic}-{found.queue_id}-{found.queue_offset}")[:150]
    headers = {"content-disposition": f'attachment; filename="{name}.bin"'}
    return Response(masked.data, media_type="application/octet-stream", headers=headers)


async def stored_message(request: Request) -> StoredMessage:
    """The message that an address names by its place. Raises NotFound when it is not there."""
    query = request.query_params
    topic, broker = text_of(query, "topic"), text_of(query, "broker")
    if topic is None or broker is None:
        raise UsageError("a message is found by topic, broker, queue and offset")
    queue = MessageQueue(topic, broker, number_of(query, "queue", 0, 2**31 - 1))
    offset = number_of(query, "offset", 0)
    async with open_reader(request) as reader:
        found = await messages.message_at(reader, queue, offset)
    if found is None:
        raise NotFound(f"there is no message at offset {offset} of {queue}")
    return found


async def topic_names(admin: AdminClient) -> Sequence[str]:
    """Topics that a form suggests; none when the name servers do not answer."""
    try:
        topics = await admin.topics()
    except RoquetError:
        return ()
    return sorted(topic for topic in topics if topic not in SYSTEM_TOPICS)[:TOPICS_MAX]


async def _trace(admin: AdminClient, found: StoredMessage) -> tuple[Sequence[TraceStep], str]:
    try:
        return await trace_of(admin, found.message_id), ""
    except RoquetError as error:
        return (), str(error)


def _rules(request: Request) -> Sequence[MaskRule]:
    return dashboard_of(request).settings.mask_rules


ROUTES = [
    Route("/messages", search),
    Route("/messages/one", one),
    Route("/messages/body", download),
]
