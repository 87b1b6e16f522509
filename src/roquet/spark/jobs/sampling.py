"""Sampling: where all groups are at one moment, and what is there for them, as rows."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from roquet.admin import brokers, groups
from roquet.admin.reach import Reach
from roquet.model.errors import CallError, CallRefused, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.settings import nearest
from roquet.wire import dialect
from roquet.wire.calls.bodies import ConsumeStats, QueueProgress
from roquet.wire.calls.group import GetConsumeStats
from roquet.wire.calls.offset import EarliestTime
from roquet.wire.calls.stats import GetTopicStats, TopicStats

_TIME: Final = pa.timestamp("ms", "UTC")

SCHEMA: Final = pa.schema(
    {
        "at": _TIME,
        "group": pa.string(),
        "topic": pa.string(),
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "begin": pa.int64(),
        "committed": pa.int64(),
        "end": pa.int64(),
        "lag": pa.int64(),
        "consumed_at": _TIME,
    }
)
"""A row for each queue that a group reads."""

RESERVED: Final = "fileReservedTime"
HOUR_S: Final = 3600


class Sample(msgspec.Struct, frozen=True):
    """One moment."""

    rows: pa.Table
    silent: Sequence[str]
    """Brokers that did not answer; their rows are missing."""


async def sample(reach: Reach, names: Sequence[str] = ()) -> Sample:
    """All groups, or some of them, now."""
    places = await reach.brokers()
    chosen = await _chosen(reach, names)
    at_ms = reach.clock.now_ms()
    heard = await asyncio.gather(*(_progress(reach, places, name) for name in chosen))
    silent = sorted({broker for _, mute in heard for broker in mute})
    found = {name: queues for name, (queues, _) in zip(chosen, heard, strict=True)}
    begins = await _begins(reach, places, {queue for queues in found.values() for queue in queues})
    oldest = await _oldest(reach, places, found, begins)
    rows = [
        row for name, queues in found.items() for row in _rows(at_ms, name, queues, begins, oldest)
    ]
    return Sample(pa.Table.from_pylist(rows, SCHEMA), silent)


async def retention(reach: Reach) -> dict[str, float]:
    """For how many seconds each broker keeps messages; those that do not tell are left out."""
    found = {}
    for broker in await reach.brokers():
        try:
            hours = (await brokers.settings(reach, broker)).get(RESERVED, "")
        except CallError:
            continue
        if hours.isdecimal() and int(hours):  # what is under an hour is told as none
            found[broker] = float(int(hours) * HOUR_S)
    return found


async def _chosen(reach: Reach, names: Sequence[str]) -> Sequence[str]:
    known = await groups.listed(reach)
    for name in names:
        if name not in known:
            raise UsageError(f"group {name!r} is unknown to every broker{nearest(name, known)}")
    return list(names) or known


async def _progress(
    reach: Reach, places: Mapping[str, str], name: str
) -> tuple[dict[MessageQueue, QueueProgress], list[str]]:
    answers, failed = await reach.ask_each(places, GetConsumeStats(consumer_group=name))
    tables = [dialect.loads(reply.body, ConsumeStats).offset_table for reply in answers.values()]
    silent = [broker for broker, error in failed.items() if not isinstance(error, CallRefused)]
    return {queue: one for table in tables for queue, one in table.items()}, silent


async def _begins(
    reach: Reach, places: Mapping[str, str], queues: set[MessageQueue]
) -> dict[MessageQueue, int]:
    """The offset of the first message of each queue."""
    asked = sorted({(queue.topic, queue.broker_name) for queue in queues})

    async def one(topic: str, broker: str) -> Mapping[MessageQueue, int]:
        try:
            reply = await reach.ask(places[broker], GetTopicStats(topic=topic))
        except (CallError, KeyError):
            return {}
        table = dialect.loads(reply.body, TopicStats).offset_table
        return {queue: max(at.min_offset, 0) for queue, at in table.items()}

    found = await asyncio.gather(*(one(*place) for place in asked))
    return {queue: begin for part in found for queue, begin in part.items()}


async def _oldest(
    reach: Reach,
    places: Mapping[str, str],
    found: Mapping[str, Mapping[MessageQueue, QueueProgress]],
    begins: Mapping[MessageQueue, int],
) -> dict[MessageQueue, int]:
    """When the first message of a queue was stored, where some group has to begin with it."""
    wanted = {
        queue
        for queues in found.values()
        for queue, one in queues.items()
        if one.lag and one.consumer_offset <= begins.get(queue, 0)
    }

    async def one(queue: MessageQueue) -> int:
        call = EarliestTime(topic=queue.topic, queue_id=queue.queue_id)
        try:
            return (await reach.ask(places[queue.broker_name], call)).timestamp
        except (CallError, KeyError):
            return -1

    times = await asyncio.gather(*map(one, wanted))
    return dict(zip(wanted, times, strict=True))


def _rows(
    at_ms: int,
    name: str,
    queues: Mapping[MessageQueue, QueueProgress],
    begins: Mapping[MessageQueue, int],
    oldest: Mapping[MessageQueue, int],
) -> Iterator[dict[str, object]]:
    for queue, one in queues.items():
        begin = begins.get(queue, 0)
        committed = max(one.consumer_offset, 0)
        # Of a group at the beginning, the message that comes next is the first one.
        consumed_ms = oldest.get(queue, one.last_timestamp)
        yield {
            "at": at_ms,
            "group": name,
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "begin": begin,
            "committed": committed,
            "end": one.broker_offset,
            "lag": max(one.broker_offset - max(committed, begin), 0),
            "consumed_at": consumed_ms if consumed_ms > 0 else None,
        }
