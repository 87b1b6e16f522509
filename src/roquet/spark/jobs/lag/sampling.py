"""Sampling: where all groups are at one moment, and what is there for them, as rows."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from roquet.admin import brokers, groups
from roquet.admin.client import AdminClient
from roquet.model.errors import CallError, CallRefused, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.bodies import ConsumeStats, QueueProgress
from roquet.wire.calls.offset import EarliestTime
from roquet.wire.fastjson import codec

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


class LagSample(msgspec.Struct, frozen=True):
    """One moment."""

    rows: pa.Table
    silent: Sequence[str]
    """Brokers that did not answer; their rows are missing."""


async def sample(admin: AdminClient, names: Sequence[str] = ()) -> LagSample:
    """All groups, or some of them, now."""
    places = await admin.brokers()
    chosen = await _chosen_groups(admin, names)
    at_ms = admin.clock.now_ms()
    heard = await asyncio.gather(*(_progress(admin, places, name) for name in chosen))
    silent = sorted({broker for _, mute in heard for broker in mute})
    found = {name: queues for name, (queues, _) in zip(chosen, heard, strict=True)}
    begins = await _begin_offsets(
        admin, places, {queue for queues in found.values() for queue in queues}
    )
    oldest = await _oldest_times(admin, places, found, begins)
    rows = [
        row for name, queues in found.items() for row in _rows(at_ms, name, queues, begins, oldest)
    ]
    return LagSample(pa.Table.from_pylist(rows, SCHEMA), silent)


async def retention(admin: AdminClient) -> dict[str, float]:
    """For how many seconds each broker keeps messages; those that do not tell are left out."""
    found = {}
    for broker in await admin.brokers():
        try:
            hours = (await brokers.settings(admin, broker)).get(RESERVED, "")
        except CallError:
            continue
        if hours.isdecimal() and int(hours):  # what is under an hour is told as none
            found[broker] = float(int(hours) * HOUR_S)
    return found


async def _chosen_groups(admin: AdminClient, names: Sequence[str]) -> Sequence[str]:
    known = await groups.list_names(admin)
    for name in names:
        if name not in known:
            raise UsageError(f"group {name!r} is unknown to every broker{suggest(name, known)}")
    return list(names) or known


async def _progress(
    admin: AdminClient, places: Mapping[str, str], name: str
) -> tuple[dict[MessageQueue, QueueProgress], list[str]]:
    answers, failed = await admin.ask_each(places, GetConsumeStats(consumer_group=name))
    tables = [codec.loads(reply.body, ConsumeStats).offset_table for reply in answers.values()]
    silent = [broker for broker, error in failed.items() if not isinstance(error, CallRefused)]
    return {queue: one for table in tables for queue, one in table.items()}, silent


async def _begin_offsets(
    admin: AdminClient, places: Mapping[str, str], queues: set[MessageQueue]
) -> dict[MessageQueue, int]:
    """The offset of the first message of each queue."""
    asked = sorted({(queue.topic, queue.broker_name) for queue in queues})

    async def one(topic: str, broker: str) -> Mapping[MessageQueue, int]:
        try:
            reply = await admin.ask(places[broker], GetTopicStats(topic=topic))
        except (CallError, KeyError):
            return {}
        table = codec.loads(reply.body, TopicStats).offset_table
        return {queue: max(at.min_offset, 0) for queue, at in table.items()}

    found = await asyncio.gather(*(one(*place) for place in asked))
    return {queue: begin for part in found for queue, begin in part.items()}


async def _oldest_times(
    admin: AdminClient,
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
            return (await admin.ask(places[queue.broker_name], call)).timestamp
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
