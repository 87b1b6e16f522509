"""Live tail: a topic's new messages, sent to the browser as they come."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from roquet.dashboard.facts.clients import open_reader
from roquet.dashboard.facts.message_rows import MessageRow, message_row
from roquet.dashboard.facts.tail import RATE, RATE_MAX, MessageTail, TailUpdate
from roquet.dashboard.form_fields import number_of, text_of
from roquet.dashboard.pages.messages import filter_of, topic_names
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of, dashboard_of, visitor_of
from roquet.model.errors import RoquetError, UsageError
from roquet.model.names import check_topic

STREAM_MAX_MS: Final = 10 * 60_000
"""Time after which a stream ends; the browser opens it again, if its login still holds."""

FIELDS: Final = ("topic", "tags", "sql", "key", "text")


class TailEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Data of one event: new rows, the oldest first, and counts since the stream began."""

    rows: list[MessageRow]
    seen: int
    matched: int
    shown: int
    jumped: int
    problem: str


async def tail(request: Request) -> Response:
    """The page of a live tail: its form, and a table that a script fills."""
    fields = {name: text_of(request.query_params, name) or "" for name in FIELDS}
    rate = number_of(request.query_params, "rate", RATE, RATE_MAX)
    if fields["topic"]:
        check_topic(fields["topic"])
        filter_of(request)
    return page(
        request,
        "tail.html",
        only_html={"topics": await topic_names(admin_of(request)), "query": request.url.query},
        fields=fields,
        rate=rate,
    )


async def events(request: Request) -> Response:
    """The stream of events of a live tail. Raises UsageError when too many are open."""
    dashboard = dashboard_of(request)
    topic = text_of(request.query_params, "topic")
    if topic is None:
        raise UsageError("a live tail needs a topic")
    check_topic(topic)
    wanted = filter_of(request)
    rate = number_of(request.query_params, "rate", RATE, RATE_MAX)
    rules, clock = dashboard.settings.mask_rules, dashboard.clock
    user = visitor_of(request).user
    if dashboard.streams.is_full(user):
        raise UsageError("too many live tails are open already: close one of them")

    async def stream() -> AsyncIterator[bytes]:
        ends_ms = clock.monotonic_ms() + STREAM_MAX_MS
        try:
            with dashboard.streams.take(user):
                async with AsyncExitStack() as stack:
                    async with dashboard.streams.opening:
                        reader = await stack.enter_async_context(open_reader(request))
                        follow = MessageTail(reader, topic, wanted, rules, rate=rate, clock=clock)
                        updates = await stack.enter_async_context(aclosing(follow.updates()))
                        update = await anext(updates)
                    while True:
                        rows = [message_row(message, rules) for message in update.messages]
                        yield event("tail", _tail_event(update, rows))
                        if clock.monotonic_ms() >= ends_ms:
                            return
                        update = await anext(updates)
        except RoquetError as error:
            yield event("problem", str(error))

    return StreamingResponse(
        stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def _tail_event(update: TailUpdate, rows: list[MessageRow]) -> TailEvent:
    return TailEvent(
        rows=rows,
        seen=update.seen,
        matched=update.matched,
        shown=update.shown,
        jumped=update.jumped,
        problem=update.problem,
    )


def event(name: str, data: object) -> bytes:
    """One server-sent event; JSON has no line breaks in it."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


ROUTES = [Route("/messages/tail", tail), Route("/messages/tail/events", events)]
