"""Batch planning: from offsets to ranges and partitions. Pure.

A batch is a range of offsets for each queue. Ranges are cut and distributed over partitions of
about equal size. A partition costs Spark tens of milliseconds however little it holds, so small
queues share a partition, and a large queue is split over many.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from roquet.lake.queue_offsets import (
    OffsetRange,
    QueueKey,
    QueueOffsets,
    TopicIds,
    queue_text,
    ranges,
)
from roquet.model.errors import ConfigError
from roquet.rules.topic_id import created_ms, is_other_topic

PARTITION_ROWS_MIN: Final = 10_000
"""Fewest rows for a further partition: a task reads them in the time that it takes to start."""


TASK_ROWS: Final = 500_000
"""Rows of a task where the cores are unknown: it reads them in ten times what its start takes."""


def checked_range(
    start: QueueOffsets, end: QueueOffsets, latest: QueueOffsets
) -> list[OffsetRange]:
    """The ranges of a batch read; ConfigError when the user's offsets are not in order."""
    for queue, first in sorted(start.items()):
        name, last, have = queue_text(queue), end[queue], latest[queue]
        if first > last:
            raise ConfigError(f"{name} is to be read from {first}, but only up to {last}")
        if last > have:
            raise ConfigError(f"{name} is to be read up to {last}, but has messages up to {have}")
    return ranges(start, end)


def with_topic_ids(ranges: Iterable[OffsetRange], ids: TopicIds) -> list[OffsetRange]:
    """The ranges with the ids of their topics."""
    return [
        msgspec.structs.replace(
            offset_range, topic_id=ids.get((offset_range.topic, offset_range.broker))
        )
        for offset_range in ranges
    ]


def recreated_queues(
    start: QueueOffsets, earliest: QueueOffsets, known: TopicIds, now: TopicIds
) -> set[QueueKey]:
    """Queues that were read before and whose topic was deleted and created again since.

    Queues whose next offset is the earliest one are left out: they continue with the first message
    in either case.
    """
    return {
        queue
        for queue, offset in start.items()
        if is_other_topic(known.get(queue[:2]), now.get(queue[:2]))
        and offset != earliest.get(queue, offset)
    }


def recreation_texts(queues: Iterable[QueueKey], start: QueueOffsets, now: TopicIds) -> list[str]:
    """A sentence for each recreated topic of a broker: when, and how far the old one was read."""
    by_topic: dict[tuple[str, str], list[QueueKey]] = {}
    for queue in sorted(queues):
        by_topic.setdefault(queue[:2], []).append(queue)
    sentences = []
    for (topic, broker), read in by_topic.items():
        ms = created_ms(now[topic, broker])
        when = "" if ms is None else f" at {datetime.fromtimestamp(ms / 1000, UTC):%F %T} UTC"
        ends = ", ".join(f"queue {queue[2]} up to offset {start[queue]}" for queue in read)
        sentences.append(
            f"topic {topic!r} of broker {broker!r} was deleted and made anew{when}; "
            f"the old one was read: {ends}"
        )
    return sentences


def lost_queues(
    start: QueueOffsets,
    latest: QueueOffsets,
    away: Container[str] = (),
    hidden: Mapping[QueueKey, int] = MappingProxyType({}),
) -> list[tuple[QueueKey, str]]:
    """Queues that were read before and are gone or shorter now, each with a sentence about it.

    Queues of brokers that are `away` are not lost. `hidden` has the ends of queues that were
    removed with unread messages.
    """
    lost = []
    for queue, offset in sorted(start.items()):
        if queue in hidden:
            topic, _, queue_id = queue
            text = (
                f"{queue_text(queue)}, read up to offset {offset}, was removed from the topic with"
                f" messages up to offset {hidden[queue] - 1}: let the topic have {queue_id + 1}"
                " queues to read until they are read"
                f" (roquet topic update {topic} --read-queues {queue_id + 1})"
            )
            lost.append((queue, text))
        elif queue not in latest:
            if queue[1] not in away:
                lost.append((queue, f"{queue_text(queue)}, read up to offset {offset}, is gone"))
        elif latest[queue] < offset:
            ends = f"ends at offset {latest[queue]}"
            lost.append((queue, f"{queue_text(queue)} {ends}, but was read up to {offset}"))
    return lost


def deleted_texts(start: QueueOffsets, earliest: QueueOffsets) -> list[str]:
    """A sentence for each queue whose next messages retention has deleted."""
    return [
        f"{queue_text(queue)} has no messages "
        f"from offset {offset} to {earliest[queue] - 1} any more"
        for queue, offset in sorted(start.items())
        if offset < earliest.get(queue, 0)
    ]


def new_queue_starts(
    before: QueueOffsets, earliest: QueueOffsets, latest: QueueOffsets
) -> QueueOffsets:
    """First offsets of queues that are new to a stream, or shorter than before.

    A batch brings no messages of them, it only records the offset. So a batch is defined by its two
    sets of offsets, however often it is read, and messages that retention deletes are noticed.
    """
    return {
        queue: earliest[queue]
        for queue, last in latest.items()
        if queue not in before or last < before[queue]
    }


def cap_at(latest: QueueOffsets, target: QueueOffsets | None, before: QueueOffsets) -> QueueOffsets:
    """The latest offsets, none beyond the target's; queues that the target lacks are left out."""
    if target is None:
        return dict(latest)
    return {
        queue: max(min(offset, target[queue]), min(offset, before.get(queue, 0)))
        for queue, offset in latest.items()
        if queue in target
    }


def limit_rows(start: QueueOffsets, latest: QueueOffsets, rows_max: int) -> QueueOffsets:
    """End offsets after at most `rows_max` messages, shared in proportion to the unread ones.

    Every queue advances by at least one message. With more queues than rows they take turns; the
    sum of the start offsets says whose turn it is.
    """
    unread = ranges(start, latest)
    if sum(map(len, unread)) <= rows_max:
        return dict(latest)
    end = {queue: min(start[queue], offset) for queue, offset in latest.items()}
    if rows_max < len(unread):
        turn = sum(start.values())
        shares = [int((n - turn) % len(unread) < rows_max) for n in range(len(unread))]
    else:
        shares = _shares([len(offset_range) for offset_range in unread], rows_max)
    return end | {
        offset_range.queue: offset_range.start + share
        for offset_range, share in zip(unread, shares, strict=True)
    }


def _shares(rows: Sequence[int], rows_max: int) -> list[int]:
    """The share of `rows_max` of each queue, in proportion to `rows` and at least one.

    Shares are differences of running totals, so they add up to `rows_max`.
    """
    few = set[int]()
    while True:
        total = sum(count for place, count in enumerate(rows) if place not in few)
        left = rows_max - len(few)
        under = {p for p, count in enumerate(rows) if p not in few and count * left < total}
        if not under:
            break
        few |= under
    shares, before = [], 0
    for place, count in enumerate(rows):
        if place in few:
            shares.append(1)
            continue
        shares.append((before + count) * left // total - before * left // total)
        before += count
    return shares


def tasks_max(rows: int, here: int) -> int:
    """The most tasks for so many rows where only the cores of the driver's machine are known.

    A cluster may have more: a batch too large for these cores is cut by size.
    """
    return max(1, here, -(-rows // TASK_ROWS))


def partition_count(rows: int, least: int, most: int, rows_max: int | None = None) -> int:
    """The number of partitions for so many rows, from `least` to `most`.

    With `rows_max`, the most rows of a partition, it may exceed `most`.
    """
    wanted = max(1, least, min(most, -(-rows // PARTITION_ROWS_MIN)))
    return max(wanted, -(-rows // rows_max)) if rows_max else wanted


def pack(ranges: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """The ranges distributed over at most `count` partitions, whose sizes differ by one row.

    Large ranges are each cut into `count` parts: messages written at about the same time, in all
    queues, are then in one partition and can be pulled together.
    """
    total = sum(map(len, ranges))
    if total >= count * len(ranges) * PARTITION_ROWS_MIN:
        return _pack_in_layers(ranges, count)
    edges = [total * number // count for number in range(1, count + 1)]
    packed: list[list[OffsetRange]] = [[] for _ in range(count)]
    number, place = 0, 0
    for offset_range in ranges:
        for part in _split_range(offset_range, place, edges):
            while place >= edges[number]:
                number += 1
            packed[number].append(part)
            place += len(part)
    return [tuple(partition) for partition in packed if partition]


def _pack_in_layers(ranges: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """An equal part of each range for each partition; remainders go to the partitions in turn."""
    packed: list[list[OffsetRange]] = [[] for _ in range(count)]
    turn = 0
    for offset_range in ranges:
        share, over = divmod(len(offset_range), count)
        start = offset_range.start
        for number, part in enumerate(packed):
            end = start + share + ((number - turn) % count < over)
            if start < end:
                part.append(offset_range.cut(start, end))
            start = end
        turn = (turn + over) % count
    return [tuple(part) for part in packed if part]


def _split_range(
    offset_range: OffsetRange, place: int, edges: Sequence[int]
) -> Iterator[OffsetRange]:
    """The range, cut where a partition ends; `place` is the number of rows before it."""
    cuts = [edge - place for edge in edges if 0 < edge - place < len(offset_range)]
    starts = [offset_range.start, *(offset_range.start + cut for cut in cuts)]
    for start, end in zip(starts, [*starts[1:], offset_range.end], strict=True):
        if start < end:
            yield offset_range.cut(start, end)
