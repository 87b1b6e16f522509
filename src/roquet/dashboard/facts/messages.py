"""Messages of a topic: the newest ones, or those of a key, an id, a time or an offset."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin import messages
from roquet.admin.client import AdminClient
from roquet.client.config import ConsumerConfig
from roquet.client.pull import PullConsumer
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.dashboard.masking import MaskRule, mask_body
from roquet.model.errors import ConnectFailed, NotFound, RoquetError, UsageError
from roquet.model.message import StoredMessage
from roquet.model.names import check_topic
from roquet.model.properties import DEAD_LETTER_REASON
from roquet.model.queue import MessageQueue, short_text
from roquet.model.subscription import ALL
from roquet.rules.consumption.dead_letter_reason import reason_kind

COUNT: Final = 50
"""Messages of one page by default."""

COUNT_MAX: Final = 500

SCAN_MAX: Final = 2_000
"""Newest offsets of each queue among which a filter looks."""

SCAN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of messages that one search reads before it stops: bodies may have megabytes each."""

SCAN_TIMEOUT_S: Final = 5.0
"""Time of one search; queues that were not read until then are named on the page."""

CONCURRENT_QUEUES: Final = 16
"""Queues that one search reads at a time."""

LEFT_OUT: Final = "{} of at least {} messages are shown: ask for more, or narrow the search down"

PULL_COUNT: Final = 256


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are wanted: those that match every part that is set."""

    tags: str = ALL
    """A tag expression like `new || paid`; brokers filter by it."""
    sql: str | None = None
    """An SQL92 expression of properties; brokers filter by it. Not together with tags."""
    key: str | None = None
    """One of the message's keys."""
    text: str | None = None
    """Part of the shown body, of a key, or of a property's value; capitals do not matter."""

    @property
    def is_selective(self) -> bool:
        """Whether it leaves out any message."""
        return self.tags != ALL or any((self.sql, self.key, self.text))

    def matches(self, message: StoredMessage, rules: Iterable[MaskRule]) -> bool:
        """Whether key and text match; brokers have looked at tags and SQL.

        Hidden parts of a body match no text: a search would tell what they are.
        """
        if self.key is not None and self.key not in message.keys:
            return False
        if self.text is None:
            return True
        wanted = self.text.casefold()
        values = [*message.properties.values(), message.message_id]
        if any(wanted in value.casefold() for value in values):
            return True
        body = mask_body(rules, message).data.decode("utf-8", "replace")
        return wanted in body.casefold()


class TimeRange(msgspec.Struct, frozen=True):
    """A half-open range [begin_ms, end_ms) of times of storage, in ms since 1970."""

    begin_ms: int = 0
    end_ms: int = messages.LATEST_MS


class FoundMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a search, newest first, and how much of the topic was read for it."""

    messages: Sequence[StoredMessage]
    scanned: int = 0
    """Offsets that were looked at; 0 for look-ups by key, id and offset."""
    problems: Sequence[str] = ()
    """Sentences about what is missing; empty when nothing is."""


class _Scan:
    """One search: its limits, and what it has found so far."""

    def __init__(
        self, reader: PullConsumer, wanted: MessageFilter, rules: Sequence[MaskRule]
    ) -> None:
        self.found: list[StoredMessage] = []
        self.scanned = 0
        self.problems: list[str] = []
        self._reader = reader
        self._wanted = wanted
        self._rules = rules
        self._bytes = 0
        self._bodies = messages.BodyLimit()
        self._is_cut = False
        self._slots = asyncio.Semaphore(CONCURRENT_QUEUES)

    async def read_all(
        self, queues: Sequence[MessageQueue], count: int, times: TimeRange | None
    ) -> None:
        """Read all queues within the limits of time and bytes."""
        unread = set(queues)

        async def read(queue: MessageQueue) -> None:
            async with self._slots:
                try:
                    await self._read(queue, count, times)
                except RoquetError as error:
                    self.problems.append(f"{queue}: {error}")
                unread.discard(queue)

        try:
            async with asyncio.timeout(SCAN_TIMEOUT_S):
                await asyncio.gather(*map(read, queues))
        except TimeoutError:
            seconds = f"{SCAN_TIMEOUT_S:.0f} s"
            self.problems.append(f"not read within {seconds}: {short_text(unread)}")
        if self._bytes >= SCAN_BYTES_MAX:
            megabytes = SCAN_BYTES_MAX // 2**20
            self.problems.append(f"the search stopped after {megabytes} MiB: narrow it down")
        if self._is_cut and self._wanted.is_selective:
            self.problems.append(
                f"the first {SCAN_MAX:,} offsets of each queue were searched, and there are more of"
                " that time: begin later"
            )

    async def _read(self, queue: MessageQueue, count: int, times: TimeRange | None) -> None:
        begin, end = await _bounds(self._reader, queue, times)
        if times is None:
            window = SCAN_MAX if self._wanted.is_selective else count
            begin = max(begin, end - window)
        else:
            window = SCAN_MAX if self._wanted.is_selective else count + 1
            self._is_cut |= end - begin > window
            end = min(end, begin + window)
        while begin < end and self._bytes < SCAN_BYTES_MAX:
            result = await self._reader.pull(
                queue, begin, PULL_COUNT, tags=self._wanted.tags, sql=self._wanted.sql
            )
            for message in result.messages:
                self._bytes += max(message.size, len(message.body))
                if message.queue_offset < end and self._wanted.matches(message, self._rules):
                    self.found.append(self._bodies.cut(message))
            if result.next_offset <= begin:
                raise ConnectFailed(f"cannot be read at offset {begin}: {result.status.name}")
            self.scanned += min(result.next_offset, end) - begin
            begin = result.next_offset


async def search(
    reader: PullConsumer,
    topic: str,
    wanted: MessageFilter,
    rules: Sequence[MaskRule],
    *,
    count: int = COUNT,
    times: TimeRange | None = None,
) -> FoundMessages:
    """The newest matching messages of a topic; with `times` the oldest ones of that range.

    Raises UsageError for an unknown topic, and for tags or an SQL expression that cannot be read.
    """
    SubscriptionFilter.from_user(check_topic(topic), wanted.tags, wanted.sql, ConsumerConfig())
    queues = await messages.queues(reader, topic)
    scan = _Scan(reader, wanted, rules)
    await scan.read_all(queues, count, times)
    found = sorted(scan.found, key=_order)
    chosen = found[-count:] if times is None else found[:count]
    if len(found) > count and (wanted.is_selective or times is not None):
        scan.problems.append(LEFT_OUT.format(count, len(found)))
    return FoundMessages(
        messages=chosen[::-1], scanned=scan.scanned, problems=sorted(scan.problems)
    )


async def look_up(
    admin: AdminClient,
    topic: str | None,
    *,
    key: str | None = None,
    message_id: str | None = None,
    count: int = COUNT,
) -> FoundMessages:
    """The newest messages of a key, or all of an id of either kind, by the brokers' index.

    Raises UsageError for an unknown topic, and for an id that names no broker without a topic.
    """
    problems = list[str]()
    if message_id is not None:
        found = await messages.by_id(admin, message_id.strip().upper(), topic)
    elif topic is None:
        raise UsageError("a key is looked up in one topic: name it")
    else:
        found = await messages.by_key(admin, topic, key or "", count=count + 1)
        if len(found) > count:
            problems.append(LEFT_OUT.format(count, len(found)))
            found = found[-count:]
    return FoundMessages(messages=sorted(found, key=_order, reverse=True), problems=problems)


async def message_at(
    reader: PullConsumer, queue: MessageQueue, offset: int
) -> StoredMessage | None:
    """The message at an offset; None where there is none. Raises NotFound for no known queue."""
    if queue not in await messages.queues(reader, check_topic(queue.topic)):
        raise NotFound(f"there is no queue {queue}")
    return await messages.by_offset(reader, queue, offset)


def json_fields(message: StoredMessage, shown: bytes) -> Mapping[str, object]:
    """A message for JSON, with a body that may be shown: text if it is UTF-8, else base64."""
    values = dict(message.properties)
    if shown != message.body and (reason := values.get(DEAD_LETTER_REASON)):
        values[DEAD_LETTER_REASON] = reason_kind(reason)  # the rest may quote what a mask hides
    fields: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tag": message.tag,
        "keys": message.keys,
        "reconsume_times": message.reconsume_times,
        "born_ms": message.born_ms,
        "born_host": message.born_host,
        "stored_ms": message.stored_ms,
        "store_host": message.store_host,
        "properties": values,
        "body_note": message.body_note,
    }
    try:
        return {**fields, "body": shown.decode()}
    except UnicodeDecodeError:
        return {**fields, "body_base64": shown}  # msgspec writes bytes as base64


async def _bounds(
    reader: PullConsumer, queue: MessageQueue, times: TimeRange | None
) -> tuple[int, int]:
    """The half-open range of a queue's offsets, or of those stored in a time range."""
    if times is None:
        begin, end = await asyncio.gather(reader.min_offset(queue), reader.max_offset(queue))
        return begin, end
    begin, end = await asyncio.gather(
        reader.offset_by_time(queue, times.begin_ms), reader.max_offset(queue)
    )
    if times.end_ms < messages.LATEST_MS:
        end = min(end, await reader.offset_by_time(queue, times.end_ms))
    return begin, end


def _order(message: StoredMessage) -> tuple[int, str, int, int]:
    return message.stored_ms, message.broker_name, message.queue_id, message.queue_offset
