"""Offsets to partitions: pure, tested without Spark.

A batch is a range of offsets for each queue. Ranges are cut into pieces and the pieces dealt to
partitions of about the same size: a partition costs Spark tens of milliseconds, however little is
in it, so many queues share one and a full queue is shared by many.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.rules.topic_id import created_ms, is_other_topic
from roquet.spark.queue_offsets import (
    OffsetRange,
    QueueKey,
    QueueOffsets,
    TopicIds,
    queue_text,
    ranges,
)

PARTITION_ROWS_MIN: Final = 10_000
"""Rows that a task reads in the time it takes to start one; fewer do not deserve a partition."""


def checked_range(
    start: QueueOffsets, end: QueueOffsets, latest: QueueOffsets
) -> list[OffsetRange]:
    """The ranges of a batch read; ConfigError for one that cannot be as the user gave it."""
    for queue, first in sorted(start.items()):
        name, last, have = queue_text(queue), end[queue], latest[queue]
        if first > last:
            raise ConfigError(f"{name} is to be read from {first}, but only up to {last}")
        if last > have:
            raise ConfigError(f"{name} is to be read up to {last}, but has messages up to {have}")
    return ranges(start, end)


def with_topic_ids(pieces: Iterable[OffsetRange], ids: TopicIds) -> list[OffsetRange]:
    """The ranges, each of which says of which topic of that name it is."""
    return [
        msgspec.structs.replace(piece, topic_id=ids.get((piece.topic, piece.broker)))
        for piece in pieces
    ]


def recreated_queues(
    start: QueueOffsets, earliest: QueueOffsets, known: TopicIds, now: TopicIds
) -> set[QueueKey]:
    """Queues that were read before and whose topic was deleted and made anew since.

    Those that are read from their first message on in either case are left out.
    """
    return {
        queue
        for queue, offset in start.items()
        if is_other_topic(known.get(queue[:2]), now.get(queue[:2]))
        and offset != earliest.get(queue, offset)
    }


def recreation_texts(queues: Iterable[QueueKey], start: QueueOffsets, now: TopicIds) -> list[str]:
    """A sentence for each topic and broker: how far the one before was read."""
    found: dict[tuple[str, str], list[QueueKey]] = {}
    for queue in sorted(queues):
        found.setdefault(queue[:2], []).append(queue)
    sentences = []
    for (topic, broker), read in found.items():
        ms = created_ms(now[topic, broker])
        when = "" if ms is None else f" at {datetime.fromtimestamp(ms / 1000, UTC):%F %T} UTC"
        ends = ", ".join(f"queue {queue[2]} up to offset {start[queue]}" for queue in read)
        sentences.append(
            f"topic {topic!r} of broker {broker!r} was deleted and made anew{when}; "
            f"of the one before were read: {ends}"
        )
    return sentences


def lost_queues(
    start: QueueOffsets, latest: QueueOffsets, away: Container[str] = ()
) -> list[tuple[QueueKey, str]]:
    """What has become of queues that were read before, where it is not plain growth.

    Of those whose broker is away nothing is known: they are not lost yet.
    """
    found = []
    for queue, offset in sorted(start.items()):
        if queue not in latest:
            if queue[1] not in away:
                what = f"{queue_text(queue)}, read up to offset {offset}, is not there any more"
                found.append((queue, what))
        elif latest[queue] < offset:
            ends = f"ends at offset {latest[queue]}"
            found.append((queue, f"{queue_text(queue)} {ends}, but was read up to {offset}"))
    return found


def deleted_texts(start: QueueOffsets, earliest: QueueOffsets) -> list[str]:
    """What retention took before it was read."""
    return [
        f"{queue_text(queue)} has no messages "
        f"from offset {offset} to {earliest[queue] - 1} any more"
        for queue, offset in sorted(start.items())
        if offset < earliest.get(queue, 0)
    ]


def new_queue_starts(
    before: QueueOffsets, earliest: QueueOffsets, latest: QueueOffsets
) -> QueueOffsets:
    """Where queues begin that a stream has not read: new ones, and those that were made anew.

    A batch brings nothing of them yet, it only notes the offset: what a batch holds is then told
    by its two sets of offsets alone, however often it is read, and retention goes unnoticed never.
    """
    return {
        queue: earliest[queue]
        for queue, last in latest.items()
        if queue not in before or last < before[queue]
    }


def cap_at(latest: QueueOffsets, target: QueueOffsets | None, before: QueueOffsets) -> QueueOffsets:
    """The latest offsets, but none beyond the target; queues that it does not know stay away."""
    if target is None:
        return dict(latest)
    return {
        queue: max(min(offset, target[queue]), min(offset, before.get(queue, 0)))
        for queue, offset in latest.items()
        if queue in target
    }


def limit_rows(start: QueueOffsets, latest: QueueOffsets, rows_max: int) -> QueueOffsets:
    """The offsets that at most `rows_max` messages lead to, each queue by its share of the rest.

    Every queue moves on by one at least, however small its share is. Where there are more queues
    than rows they have their turns: where that is, what was read so far tells.
    """
    pieces = ranges(start, latest)
    if sum(map(len, pieces)) <= rows_max:
        return dict(latest)
    end = {queue: min(start[queue], offset) for queue, offset in latest.items()}
    if rows_max < len(pieces):
        turn = sum(start.values())
        shares = [int((n - turn) % len(pieces) < rows_max) for n in range(len(pieces))]
    else:
        shares = _shares([len(piece) for piece in pieces], rows_max)
    return end | {p.queue: p.start + share for p, share in zip(pieces, shares, strict=True)}


def _shares(rows: Sequence[int], rows_max: int) -> list[int]:
    """Of each queue its part of `rows_max`, one row at least; together they are just so many.

    Parts are rounded down by running totals, which add up exactly.
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


def partition_count(rows: int, least: int, most: int, rows_max: int | None = None) -> int:
    """How many partitions so many rows deserve; more than `most` where `rows_max` asks for it."""
    wanted = max(1, least, min(most, -(-rows // PARTITION_ROWS_MIN)))
    return max(wanted, -(-rows // rows_max)) if rows_max else wanted


def pack(pieces: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """The pieces dealt to at most `count` partitions, whose sizes differ by one row at most.

    Large pieces are all cut into as many: what was written at a time, in all the queues, is then
    in one partition and can be read together.
    """
    total = sum(map(len, pieces))
    if total >= count * len(pieces) * PARTITION_ROWS_MIN:
        return _pack_in_layers(pieces, count)
    edges = [total * number // count for number in range(1, count + 1)]
    packed: list[list[OffsetRange]] = [[] for _ in range(count)]
    number, place = 0, 0
    for piece in pieces:
        for part in _split_range(piece, place, edges):
            while place >= edges[number]:
                number += 1
            packed[number].append(part)
            place += len(part)
    return [tuple(partition) for partition in packed if partition]


def _pack_in_layers(pieces: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Of each piece an equal part for each partition; what is over is dealt on in turn."""
    packed: list[list[OffsetRange]] = [[] for _ in range(count)]
    turn = 0
    for piece in pieces:
        share, over = divmod(len(piece), count)
        start = piece.start
        for number, part in enumerate(packed):
            end = start + share + ((number - turn) % count < over)
            if start < end:
                part.append(piece.cut(start, end))
            start = end
        turn = (turn + over) % count
    return [tuple(part) for part in packed if part]


def _split_range(piece: OffsetRange, place: int, edges: Sequence[int]) -> Iterator[OffsetRange]:
    """The piece, cut where a partition ends; `place` is how many rows come before it."""
    cuts = [edge - place for edge in edges if 0 < edge - place < len(piece)]
    starts = [piece.start, *(piece.start + cut for cut in cuts)]
    for start, end in zip(starts, [*starts[1:], piece.end], strict=True):
        if start < end:
            yield piece.cut(start, end)
