"""Sampling: committed offsets and lag of all groups at one moment, as rows."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from roquet.admin import brokers, groups
from roquet.admin.client import AdminClient
from roquet.lake.queue_offsets import unread
from roquet.model.errors import CallError, UsageError
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
"""One row for each group and queue."""


class LagSample(msgspec.Struct, frozen=True):
    """The rows of one moment."""

    rows: pa.Table
    silent: Sequence[str]
    """Brokers that did not answer, or refused; their rows are missing."""


async def sample(admin: AdminClient, names: Sequence[str] = ()) -> LagSample:
    """Sample the groups with these names, by default all groups."""
    addresses = await admin.brokers()
    chosen, refused = await _chosen_groups(admin, names)
    at_ms = admin.clock.now_ms()
    answers = await asyncio.gather(*(_group_progress(admin, addresses, name) for name in chosen))
    silent = sorted(refused.union(*(silent for _, silent in answers)))
    progress = {name: queues for name, (queues, _) in zip(chosen, answers, strict=True)}
    queues = {queue for own in progress.values() for queue in own}
    begins = await _begin_offsets(admin, addresses, queues)
    oldest = await _oldest_times(admin, addresses, progress, begins)
    rows = [
        row for name, own in progress.items() for row in _rows(at_ms, name, own, begins, oldest)
    ]
    return LagSample(pa.Table.from_pylist(rows, SCHEMA), silent)


async def retention(admin: AdminClient) -> dict[str, float]:
    """Seconds for which each broker keeps messages; without brokers that do not say."""
    seconds = {}
    for broker in await admin.brokers():
        try:
            kept_s = brokers.retention_s(await brokers.settings(admin, broker))
        except CallError:
            continue
        if kept_s is not None:
            seconds[broker] = kept_s
    return seconds


async def _chosen_groups(
    admin: AdminClient, names: Sequence[str]
) -> tuple[Sequence[str], set[str]]:
    """The groups to sample, and the brokers whose groups may be missing."""
    known, failed = await groups.known_names(admin)
    for name in names:
        if name not in known:
            for error in failed.values():
                raise error
            raise UsageError(f"group {name!r} is unknown to every broker{suggest(name, known)}")
    return list(names) or known, set() if names else set(failed)


async def _group_progress(
    admin: AdminClient, addresses: Mapping[str, str], name: str
) -> tuple[Mapping[MessageQueue, QueueProgress], Sequence[str]]:
    """Progress of one group by queue, and the brokers that did not tell it."""
    answers, failed = await admin.ask_each(addresses, GetConsumeStats(consumer_group=name))
    tables = [codec.loads(reply.body, ConsumeStats).offset_table for reply in answers.values()]
    queues = {queue: progress for table in tables for queue, progress in table.items()}
    return queues, list(failed)


async def _begin_offsets(
    admin: AdminClient, addresses: Mapping[str, str], queues: set[MessageQueue]
) -> dict[MessageQueue, int]:
    """The first offset of each queue; queues of brokers that do not answer are missing."""
    topics = sorted({(queue.topic, queue.broker_name) for queue in queues})

    async def of_topic(topic: str, broker: str) -> Mapping[MessageQueue, int]:
        try:
            reply = await admin.ask(addresses[broker], GetTopicStats(topic=topic))
        except (CallError, KeyError):
            return {}
        table = codec.loads(reply.body, TopicStats).offset_table
        return {queue: max(stats.min_offset, 0) for queue, stats in table.items()}

    parts = await asyncio.gather(*(of_topic(*topic) for topic in topics))
    return {queue: begin for part in parts for queue, begin in part.items()}


async def _oldest_times(
    admin: AdminClient,
    addresses: Mapping[str, str],
    progress: Mapping[str, Mapping[MessageQueue, QueueProgress]],
    begins: Mapping[MessageQueue, int],
) -> dict[MessageQueue, int]:
    """When the first message of a queue was stored, for queues that a group has yet to begin.

    In ms since 1970; -1 when the broker does not say.
    """
    at_begin = {
        queue
        for queues in progress.values()
        for queue, each in queues.items()
        if each.lag and each.consumer_offset <= begins.get(queue, 0)
    }

    async def of_queue(queue: MessageQueue) -> int:
        call = EarliestTime(topic=queue.topic, queue_id=queue.queue_id)
        try:
            return (await admin.ask(addresses[queue.broker_name], call)).timestamp
        except (CallError, KeyError):
            return -1

    times = await asyncio.gather(*map(of_queue, at_begin))
    return dict(zip(at_begin, times, strict=True))


def _rows(
    at_ms: int,
    name: str,
    queues: Mapping[MessageQueue, QueueProgress],
    begins: Mapping[MessageQueue, int],
    oldest: Mapping[MessageQueue, int],
) -> Iterator[dict[str, object]]:
    for queue, progress in queues.items():
        begin = begins.get(queue, 0)
        committed = max(progress.consumer_offset, 0)
        # A group at the beginning has consumed nothing: its next message is the first one.
        consumed_ms = oldest.get(queue, progress.last_timestamp)
        yield {
            "at": at_ms,
            "group": name,
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "begin": begin,
            "committed": committed,
            "end": progress.broker_offset,
            "lag": unread(committed, progress.broker_offset, begin),
            "consumed_at": consumed_ms if consumed_ms > 0 else None,
        }
