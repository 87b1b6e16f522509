"""Offsets to partitions: pure, tested without Spark.

A batch is a range of offsets for each queue. Ranges are cut into pieces and the pieces dealt to
partitions of about the same size: a partition costs Spark tens of milliseconds, however little is
in it, so many queues share one and a full queue is shared by many.
"""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from roquet.model.errors import ConfigError
from roquet.rules.topic_id import created_ms, is_another

Queue = tuple[str, str, int]
"""A topic, a broker's name and the id of one of its queues."""

Offsets = dict[Queue, int]
"""For each queue the offset of the next message."""

Edge = Literal["earliest", "latest"] | Offsets
"""Where to begin or end: everywhere the same, or an offset for each queue."""

EARLIEST_MARK: Final = -2
LATEST_MARK: Final = -1
"""Offsets that mean an edge; Spark's Kafka source uses the same."""

TopicIds = dict[tuple[str, str], str]
"""By topic and broker which topic of that name it is (rules.topic_id), where that is known."""

IDS: Final = "topic ids"
"""Stands among the topics of a checkpoint's offsets, as `AWAY` does in a report."""

AWAY: Final = "brokers away"
"""Stands among the topics of a report; no topic has blanks in its name."""

SHOWN_MAX: Final = 120
"""Characters of foreign offsets that an error shows."""

PARTITION_ROWS_MIN: Final = 10_000
"""Rows that a task reads in the time it takes to start one; fewer do not deserve a partition."""


class Piece(msgspec.Struct, frozen=True):
    """A range of one queue's messages, the end excluded."""

    topic: str
    broker: str
    queue_id: int
    start: int
    end: int
    topic_id: str | None = None
    """Which topic of that name it is; None takes any."""

    @property
    def queue(self) -> Queue:
        """Whose messages they are."""
        return self.topic, self.broker, self.queue_id

    def __len__(self) -> int:
        return self.end - self.start

    def cut(self, start: int, end: int) -> "Piece":
        """Another range of the same queue."""
        return Piece(self.topic, self.broker, self.queue_id, start, end, self.topic_id)


Nested = dict[str, dict[str, dict[str, int]]]
"""Offsets as JSON: {topic: {broker: {queue id: offset}}}."""


def named(queue: Queue) -> str:
    """A queue, for a sentence."""
    topic, broker, queue_id = queue
    return f"topic {topic!r}, queue {queue_id} of broker {broker!r}"


def to_json(offsets: Offsets) -> Nested:
    """The form in which Spark keeps offsets, sorted."""
    nested: Nested = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        nested.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return nested


def from_json(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Offsets:
    """Offsets as Spark kept them."""
    return {
        (topic, broker, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        if topic != IDS
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def checkpoint(offsets: Offsets, ids: TopicIds) -> dict[str, Any]:
    """Offsets with the ids of their topics, as a stream keeps them."""
    kept: dict[str, Any] = dict(to_json(offsets))
    for topic, broker in sorted({(topic, broker) for topic, broker, _ in offsets} & ids.keys()):
        kept.setdefault(IDS, {}).setdefault(topic, {})[broker] = ids[topic, broker]
    return kept


def topic_ids(kept: Mapping[str, Any]) -> TopicIds:
    """The ids in a checkpoint; none in one that an earlier version made."""
    found = kept.get(IDS, {})
    return {(topic, broker): one for topic, ids in found.items() for broker, one in ids.items()}


def checkpointed(kept: Any, is_read: Callable[[str], bool]) -> Offsets:
    """Offsets of a checkpoint; ConfigError when they are not ours, or of topics not read here."""
    if not is_nested(kept):
        raise ConfigError(
            f"the checkpoint's offsets are {_shortened(kept)}, not by topic, broker and queue:"
            f" another source or another version of this one wrote them; {_FRESH}"
        )
    for topic in sorted(kept.keys() - {IDS}):
        if not is_read(topic):
            raise ConfigError(
                f"the checkpoint is of topic {topic!r}, which this query does not read: read it"
                f" again, or {_FRESH}"
            )
    return from_json(kept)


_FRESH: Final = "choose a new checkpointLocation and say in startingOffsets where to begin"


def is_nested(kept: Any) -> bool:
    """Whether this may be of `to_json`."""
    if not isinstance(kept, dict) or not all(isinstance(b, dict) for b in kept.values()):
        return False
    queues = [q for topic, brokers in kept.items() if topic != IDS for q in brokers.values()]
    return all(isinstance(found, dict) for found in queues) and all(
        queue_id.isdecimal() and type(offset) is int
        for found in queues
        for queue_id, offset in found.items()
    )


def _shortened(kept: Any) -> str:
    text = json.dumps(kept)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def report(latest: Offsets, away_s: Mapping[str, int]) -> Nested:
    """How far queues reach as a query's progress tells it, and for how long brokers are away."""
    told = to_json(latest)
    if away_s:
        told[AWAY] = {broker: {"seconds": seconds} for broker, seconds in sorted(away_s.items())}
    return told


def reported(told: Nested) -> tuple[Offsets, Mapping[str, int]]:
    """What `report` was made of."""
    away = {broker: found["seconds"] for broker, found in told.get(AWAY, {}).items()}
    return from_json({topic: found for topic, found in told.items() if topic != AWAY}), away


def resolved(edge: Edge, earliest: Offsets, latest: Offsets, rest: Offsets) -> Offsets:
    """An offset for each queue there is; those that the user did not name are where `rest` is."""
    if isinstance(edge, str):
        return dict(earliest if edge == "earliest" else latest)
    if unknown := sorted(edge.keys() - latest.keys()):
        topic, broker, queue_id = unknown[0]
        raise ConfigError(f"topic {topic!r} has no queue {queue_id} of a broker {broker!r}")
    marks = {EARLIEST_MARK: earliest, LATEST_MARK: latest}
    return {
        queue: marks[edge[queue]][queue] if edge.get(queue, 0) < 0 else edge.get(queue, offset)
        for queue, offset in rest.items()
    }


def checked_range(start: Offsets, end: Offsets, latest: Offsets) -> list[Piece]:
    """The ranges of a batch read; ConfigError for one that cannot be as the user gave it."""
    for queue, first in sorted(start.items()):
        name, last, have = named(queue), end[queue], latest[queue]
        if first > last:
            raise ConfigError(f"{name} is to be read from {first}, but only up to {last}")
        if last > have:
            raise ConfigError(f"{name} is to be read up to {last}, but has messages up to {have}")
    return ranges(start, end)


def ranges(start: Offsets, end: Offsets) -> list[Piece]:
    """What lies between two sets of offsets, sorted; queues with nothing new are left out.

    So are those that the start does not know: the end says where they will begin.
    """
    return [
        Piece(*queue, start[queue], last)
        for queue, last in sorted(end.items())
        if start.get(queue, last) < last
    ]


def identified(pieces: Iterable[Piece], ids: TopicIds) -> list[Piece]:
    """The ranges, each of which says of which topic of that name it is."""
    return [
        msgspec.structs.replace(piece, topic_id=ids.get((piece.topic, piece.broker)))
        for piece in pieces
    ]


def recreated(start: Offsets, earliest: Offsets, known: TopicIds, now: TopicIds) -> set[Queue]:
    """Queues that were read before and whose topic was deleted and made anew since.

    Those that are read from their first message on in either case are left out.
    """
    return {
        queue
        for queue, offset in start.items()
        if is_another(known.get(queue[:2]), now.get(queue[:2]))
        and offset != earliest.get(queue, offset)
    }


def recreation(queues: Iterable[Queue], start: Offsets, now: TopicIds) -> list[str]:
    """A sentence for each topic and broker: how far the one before was read."""
    found: dict[tuple[str, str], list[Queue]] = {}
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


def losses(start: Offsets, latest: Offsets, away: Container[str] = ()) -> list[tuple[Queue, str]]:
    """What has become of queues that were read before, where it is not plain growth.

    Of those whose broker is away nothing is known: they are not lost yet.
    """
    found = []
    for queue, offset in sorted(start.items()):
        if queue not in latest:
            if queue[1] not in away:
                what = f"{named(queue)}, read up to offset {offset}, is not there any more"
                found.append((queue, what))
        elif latest[queue] < offset:
            ends = f"ends at offset {latest[queue]}"
            found.append((queue, f"{named(queue)} {ends}, but was read up to {offset}"))
    return found


def deleted(start: Offsets, earliest: Offsets) -> list[str]:
    """What retention took before it was read."""
    return [
        f"{named(queue)} has no messages from offset {offset} to {earliest[queue] - 1} any more"
        for queue, offset in sorted(start.items())
        if offset < earliest.get(queue, 0)
    ]


def introduced(before: Offsets, earliest: Offsets, latest: Offsets) -> Offsets:
    """Where queues begin that a stream has not read: new ones, and those that were made anew.

    A batch brings nothing of them yet, it only notes the offset: what a batch holds is then told
    by its two sets of offsets alone, however often it is read, and retention goes unnoticed never.
    """
    return {
        queue: earliest[queue]
        for queue, last in latest.items()
        if queue not in before or last < before[queue]
    }


def capped(latest: Offsets, target: Offsets | None, before: Offsets) -> Offsets:
    """The latest offsets, but none beyond the target; queues that it does not know stay away."""
    if target is None:
        return dict(latest)
    return {
        queue: max(min(offset, target[queue]), min(offset, before.get(queue, 0)))
        for queue, offset in latest.items()
        if queue in target
    }


def bounded(start: Offsets, latest: Offsets, rows_max: int) -> Offsets:
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


def pack(pieces: Sequence[Piece], count: int) -> list[tuple[Piece, ...]]:
    """The pieces dealt to at most `count` partitions, whose sizes differ by one row at most.

    Large pieces are all cut into as many: what was written at a time, in all the queues, is then
    in one partition and can be read together.
    """
    total = sum(map(len, pieces))
    if total >= count * len(pieces) * PARTITION_ROWS_MIN:
        return _layered(pieces, count)
    edges = [total * number // count for number in range(1, count + 1)]
    packed: list[list[Piece]] = [[] for _ in range(count)]
    number, place = 0, 0
    for piece in pieces:
        for part in _cut(piece, place, edges):
            while place >= edges[number]:
                number += 1
            packed[number].append(part)
            place += len(part)
    return [tuple(partition) for partition in packed if partition]


def _layered(pieces: Sequence[Piece], count: int) -> list[tuple[Piece, ...]]:
    """Of each piece an equal part for each partition; what is over is dealt on in turn."""
    packed: list[list[Piece]] = [[] for _ in range(count)]
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


def _cut(piece: Piece, place: int, edges: Sequence[int]) -> Iterator[Piece]:
    """The piece, cut where a partition ends; `place` is how many rows come before it."""
    cuts = [edge - place for edge in edges if 0 < edge - place < len(piece)]
    starts = [piece.start, *(piece.start + cut for cut in cuts)]
    for start, end in zip(starts, [*starts[1:], piece.end], strict=True):
        if start < end:
            yield piece.cut(start, end)
