"""Live tail: a topic's new messages, sent to the browser as they come."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from roquet.admin import messages
from roquet.client.pull import PullConsumer
from roquet.dashboard.facts.message_rows import message_rows
from roquet.dashboard.facts.messages import PULL_COUNT, MessageFilter
from roquet.dashboard.form_fields import number_of, text_of
from roquet.dashboard.masking import MaskRule
from roquet.dashboard.pages.messages import filter_of, topic_names
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of, dashboard_of, open_reader, visitor_of
from roquet.model.errors import CallRefused, RecordError, RoquetError, UsageError
from roquet.model.message import StoredMessage
from roquet.model.names import check_topic
from roquet.model.queue import MessageQueue
from roquet.net.clock import SYSTEM_CLOCK, Clock

PERIOD_MS: Final = 250
"""Time between two updates: smooth for eyes, and few enough events for a browser."""

RATE: Final = 40
"""Messages a second that are shown by default; eyes follow fewer."""

RATE_MAX: Final = 400

QUEUES_MAX: Final = 256
"""Queues of one tail: each has a pull that waits at its broker."""

SUSPEND_MS: Final = 5_000
"""Time that a pull waits for a message; then an empty update shows that the tail is alive."""

BEHIND_MAX: Final = 4 * PULL_COUNT
"""Messages by which a reader may be behind before it jumps to the end."""

TAIL_BODIES_MAX: Final = 1024 * 1024
"""Bytes of the bodies that one pull adds to an update; the others are cut."""

ERROR_PAUSE_MS: Final = 1_000


class TailUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """New messages since the last update; counts are since the tail began."""

    messages: Sequence[StoredMessage]
    """Oldest first."""
    seen: int
    """Messages that the filter was asked about; without those that brokers left out."""
    matched: int
    shown: int
    jumped: int
    """Offsets that were not read because the tail was behind."""
    problem: str = ""
    """The last error of a queue since the last update; empty without one."""


class MessageTail:
    """The live tail of one topic; `updates` reads it until its iterator is closed."""

    def __init__(
        self,
        reader: PullConsumer,
        topic: str,
        wanted: MessageFilter,
        rules: Sequence[MaskRule],
        *,
        rate: int = RATE,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reader = reader
        self._topic = check_topic(topic)
        self._wanted = wanted
        self._rules = rules
        self._clock = clock
        each = max(1, min(rate, RATE_MAX) * PERIOD_MS // 1000)
        self._waiting: deque[StoredMessage] = deque(maxlen=each)
        self._seen = self._matched = self._shown = self._jumped = 0
        self._problem = ""
        self._news = asyncio.Event()

    async def updates(self) -> AsyncGenerator[TailUpdate, None]:
        """Updates, the first one at once; without news one every few seconds.

        Raises UsageError for an unknown topic, too many queues, and a filter that cannot be read.
        """
        queues = await messages.queues(self._reader, self._topic)
        if len(queues) > QUEUES_MAX:
            raise UsageError(f"{len(queues)} queues are too many for a tail; {QUEUES_MAX} can be")
        ends = await asyncio.gather(*map(self._reader.max_offset, queues))
        for queue, end in list(zip(queues, ends, strict=True))[:1]:  # a bad filter fails here
            await self._pull(queue, end, wait_ms=0)
        tasks = [
            asyncio.create_task(self._follow(queue, end), name=f"tail of {queue}")
            for queue, end in zip(queues, ends, strict=True)
        ]
        try:
            while True:
                yield self._take()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SUSPEND_MS / 1000):
                        await self._news.wait()
                await self._clock.sleep(PERIOD_MS)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self) -> TailUpdate:
        self._news.clear()
        shown = list(self._waiting)
        self._waiting.clear()
        self._shown += len(shown)
        problem, self._problem = self._problem, ""
        return TailUpdate(
            messages=shown,
            seen=self._seen,
            matched=self._matched,
            shown=self._shown,
            jumped=self._jumped,
            problem=problem,
        )

    async def _follow(self, queue: MessageQueue, offset: int) -> None:
        """Read one queue from an offset on, for ever; errors are reported and tried again."""
        while True:
            try:
                offset = await self._pull(queue, offset, wait_ms=SUSPEND_MS)
                await self._clock.sleep(PERIOD_MS)  # a pull for each message would cost too much
            except RoquetError as error:
                self._report(f"{queue}: {error}")
                await self._clock.sleep(ERROR_PAUSE_MS)
                with suppress(RoquetError):
                    # A topic that was made again, or a damaged record: go on at the end.
                    if isinstance(error, CallRefused | RecordError):
                        offset = await self._reader.max_offset(queue)

    async def _pull(self, queue: MessageQueue, offset: int, *, wait_ms: int) -> int:
        """Read what there is from an offset on; returns the offset to go on from."""
        result = await self._reader.pull(
            queue, offset, PULL_COUNT, tags=self._wanted.tags, sql=self._wanted.sql, wait_ms=wait_ms
        )
        matching = [m for m in result.messages if self._wanted.matches(m, self._rules)]
        self._seen += len(result.messages)
        self._matched += len(matching)
        if matching:
            bodies = messages.BodyLimit(TAIL_BODIES_MAX)
            self._waiting.extend(map(bodies.cut, matching))
            self._news.set()
        if result.max_offset - result.next_offset > BEHIND_MAX:
            self._jumped += result.max_offset - result.next_offset
            self._news.set()
            return result.max_offset
        return result.next_offset

    def _report(self, problem: str) -> None:
        self._problem = problem
        self._news.set()


STREAM_MAX_MS: Final = 10 * 60_000
"""Time after which a stream ends; the browser opens it again, if its login still holds."""

FIELDS: Final = ("topic", "tags", "sql", "key", "text")


async def tail(request: Request) -> Response:
    """The page of a live tail: its form, and a table that a script fills."""
    fields = {name: text_of(request.query_params, name) or "" for name in FIELDS}
    rate = number_of(request.query_params, "rate", RATE, RATE_MAX)
    if fields["topic"]:
        filter_of(request)
        await admin_of(request).known_route(fields["topic"])
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
                        yield event("tail", _fields(update, rules))
                        if clock.monotonic_ms() >= ends_ms:
                            return
                        update = await anext(updates)
        except RoquetError as error:
            yield event("problem", str(error))

    return StreamingResponse(
        stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def _fields(update: TailUpdate, rules: Sequence[MaskRule]) -> dict[str, object]:
    """Data of one event: new rows, the oldest first, and counts since the stream began."""
    names = ("seen", "matched", "shown", "jumped", "problem")
    counts = {name: getattr(update, name) for name in names}
    return {"rows": message_rows(update.messages, rules), **counts}


def event(name: str, data: object) -> bytes:
    """One server-sent event; JSON has no line breaks in it."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


ROUTES = [Route("/messages/tail", tail), Route("/messages/tail/events", events)]
