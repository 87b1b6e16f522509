"""Findings: what is missing, doubled or unknown in a table, by queue and by hour. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from roquet.spark.jobs.audit.file_summary import SequenceSummary, add_hours
from roquet.spark.jobs.offset_counts import (
    NumberRange,
    OffsetCounts,
    duplicates,
    gaps,
    intervals_from,
)

FindingKind: TypeAlias = Literal["missing", "lost", "doubled", "unknown"]

MEANING: Final[Mapping[FindingKind, str]] = {
    "missing": "not in the table, and still in the topic",
    "lost": "not in the table, and no longer in the topic: retention took it",
    "doubled": "more than once in the table",
    "unknown": "in the table, and beyond the end of the topic: of another topic of this name",
}

HOUR_MS: Final = 3_600_000


class AuditedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one queue."""

    broker: str
    queue_id: int
    runs: OffsetCounts = OffsetCounts()
    """In the table."""
    begin: int | None = None
    """Where the archive began; None when that is not known."""
    end: int | None = None
    """How far it says it has come; None when nobody says it."""
    first: int | None = None
    """In the topic; None when it was not asked."""
    next: int | None = None
    edges: tuple[tuple[int, int], ...] = ()
    """Of hours since 1970 the offset of their first message, both rising."""


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something amiss."""

    what: FindingKind
    broker: str
    queue_id: int
    start: int
    end: int
    """The first offset that is well again."""
    times: int = 1
    """How often a doubled message is there."""
    hour: int | None = None
    """Since 1970, in which its first message was stored, as far as the topic still tells."""

    @property
    def messages(self) -> int:
        """How many are amiss; of one that is there three times, two."""
        return (self.end - self.start) * (self.times - 1 if self.what == "doubled" else 1)

    @property
    def offsets(self) -> str:
        """`5`, or `5..9`."""
        return str(NumberRange(self.start, self.end))


class HourlyCount(msgspec.Struct, frozen=True, kw_only=True):
    """An hour's counts; None where nobody can say."""

    hour: int
    producer: int | None = None
    topic: int | None = None
    table: int = 0


def find_in_queue(queue: AuditedQueue) -> list[AuditFinding]:
    """All that is amiss with one queue."""
    found = [*_missing(queue), *_doubled(queue), *_unknown(queue)]
    return sorted(found, key=lambda one: (one.start, one.what))


def count_waiting(queue: AuditedQueue) -> int:
    """Messages that the topic has and the archive has not come to."""
    if queue.next is None:
        return 0
    return max(queue.next - max(_end_of(queue), queue.first or 0), 0)


def count_by_hour(
    parts: Sequence[SequenceSummary],
    queues: Sequence[AuditedQueue],
    producer: Mapping[int, int] | None,
) -> list[HourlyCount]:
    """The counts of all sides; the producer's hours are those in which it made its messages."""
    table = add_hours([part.hours for part in parts])
    topic = add_hours([dict(_topic_counts(queue)) for queue in queues])
    hours = sorted(hour for hour in {*table, *topic, *(producer or {})} if hour >= 0)
    first = min(topic, default=None)
    return [
        HourlyCount(
            hour=hour,
            producer=None if producer is None else producer.get(hour, 0),
            # What retention has left of an earlier hour says nothing of that hour.
            topic=topic.get(hour, 0) if first is not None and hour >= first else None,
            table=table.get(hour, 0),
        )
        for hour in hours
    ]


def count_differences(
    producer: Mapping[int, int], table: Mapping[int, int]
) -> list[tuple[int, int, int]]:
    """First hour, last hour and surplus in the table, where it differs from the producer's count.

    Hours next to each other that differ are one: a message that is counted in an hour may have been
    made in the one before.
    """
    found: list[tuple[int, int, int]] = []
    for hour in sorted({*producer, *table}):
        more = table.get(hour, 0) - producer.get(hour, 0)
        if not more:
            continue
        if found and found[-1][1] == hour - 1:
            first, _, sum_ = found.pop()
            found.append((first, hour, sum_ + more))
        else:
            found.append((hour, hour, more))
    return [one for one in found if one[2]]


def _missing(queue: AuditedQueue) -> Iterator[AuditFinding]:
    for span in gaps(queue.runs, _start_of(queue), _end_of(queue)):
        for what, part in _split_gap(queue, span):
            yield _finding(queue, what, part)
    if queue.end is not None and queue.first is not None and queue.first > queue.end:
        yield _finding(queue, "lost", NumberRange(queue.end, queue.first))


def _split_gap(queue: AuditedQueue, span: NumberRange) -> Iterator[tuple[FindingKind, NumberRange]]:
    """What of a gap is still in the topic, and what is not."""
    first = span.start if queue.first is None else queue.first
    parts: Sequence[tuple[FindingKind, NumberRange]] = (
        ("lost", span.within(span.start, first)),
        ("missing", span.within(first, span.end)),
    )
    return ((what, part) for what, part in parts if len(part))


def _doubled(queue: AuditedQueue) -> Iterator[AuditFinding]:
    for span, times in duplicates(queue.runs):
        yield _finding(queue, "doubled", span, times)


def _unknown(queue: AuditedQueue) -> Iterator[AuditFinding]:
    if queue.next is not None:
        for span in intervals_from(queue.runs, queue.next):
            yield _finding(queue, "unknown", span)


def _finding(
    queue: AuditedQueue, what: FindingKind, span: NumberRange, times: int = 1
) -> AuditFinding:
    return AuditFinding(
        what=what,
        broker=queue.broker,
        queue_id=queue.queue_id,
        start=span.start,
        end=span.end,
        times=times,
        hour=_hour(queue, span.start),
    )


def _hour(queue: AuditedQueue, offset: int) -> int | None:
    place = bisect_right(queue.edges, offset, key=lambda edge: edge[1])
    is_there = queue.first is not None and offset >= queue.first
    return queue.edges[place - 1][0] if place and is_there else None


def _start_of(queue: AuditedQueue) -> int:
    if queue.begin is not None:
        return queue.begin
    if queue.runs.starts:
        return queue.runs.starts[0]
    return queue.first or 0


def _end_of(queue: AuditedQueue) -> int:
    if queue.end is not None:
        return queue.end
    return queue.runs.ends[-1] if queue.runs.ends else queue.first or 0


def _topic_counts(queue: AuditedQueue) -> Iterator[tuple[int, int]]:
    """Messages of each hour in the topic."""
    ends = [*(offset for _, offset in queue.edges[1:]), queue.next or 0]
    for (hour, offset), end in zip(queue.edges, ends, strict=True) if queue.edges else ():
        if end > offset:
            yield hour, end - offset
