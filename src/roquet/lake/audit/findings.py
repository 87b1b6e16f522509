"""Audit findings: missing, duplicate or unknown messages in a table, by queue and hour. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from roquet.lake.audit.file_summary import SequenceSummary, add_hours
from roquet.lake.intervals import NumberRange, OffsetCounts, duplicates, gaps, ranges_from
from roquet.lake.queue_offsets import unread

FindingKind: TypeAlias = Literal["missing", "lost", "doubled", "unknown"]

MEANING: Final[Mapping[FindingKind, str]] = {
    "missing": "not in the table, and still in the topic",
    "lost": "not in the table, and no longer in the topic: deleted by retention",
    "doubled": "more than once in the table",
    "unknown": "in the table, and beyond the end of the topic: from another topic of this name",
}

HOUR_MS: Final = 3_600_000


class AuditedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one queue that findings are made from; ends of ranges are exclusive."""

    broker: str
    queue_id: int
    counts: OffsetCounts = OffsetCounts()
    """Offsets in the table."""
    begin: int | None = None
    """The offset at which the archive began; None when the table does not say."""
    end: int | None = None
    """The offset up to which the archive has come; None when the table does not say."""
    first: int | None = None
    """The first offset in the topic; None when the topic has no such queue."""
    next: int | None = None
    """The offset that the topic's next message will get; None as for `first`."""
    hour_starts: tuple[tuple[int, int], ...] = ()
    """Pairs of an hour since 1970 and the offset of its first message, both rising."""


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in the range of offsets [start, end) of a queue."""

    what: FindingKind
    broker: str
    queue_id: int
    start: int
    end: int
    times: int = 1
    """How often each message of kind `doubled` occurs."""
    hour: int | None = None
    """When its first message was stored, in hours since 1970; None when the topic has lost it."""

    @property
    def messages(self) -> int:
        """Surplus or missing messages: one that occurs three times counts as two."""
        return (self.end - self.start) * (self.times - 1 if self.what == "doubled" else 1)

    @property
    def offsets(self) -> str:
        """`5`, or `5..9`."""
        return str(NumberRange(self.start, self.end))


class HourlyCount(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one hour by each side; None where a side does not know."""

    hour: int
    producer: int | None = None
    topic: int | None = None
    table: int = 0


class CountDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive hours, both inclusive, in which the table and the producer's count differ."""

    first: int
    last: int
    more: int
    """Messages that the table has more; negative when it has fewer."""


def find_in_queue(queue: AuditedQueue) -> list[AuditFinding]:
    """All findings of a queue, by offset."""
    findings = [*_missing(queue), *_unknown(queue)]
    findings += [_finding(queue, "doubled", *each) for each in duplicates(queue.counts)]
    return sorted(findings, key=lambda finding: (finding.start, finding.what))


def count_waiting(queue: AuditedQueue) -> int:
    """Messages in the topic that the archive has not reached yet."""
    if queue.next is None:
        return 0
    return unread(_end_of(queue), queue.next, queue.first or 0)


def count_by_hour(
    parts: Sequence[SequenceSummary],
    queues: Sequence[AuditedQueue],
    producer: Mapping[int, int] | None,
) -> list[HourlyCount]:
    """Counts by hour of the table (`parts`), of the topic (`queues`) and of the producer.

    The producer counts by the hour in which it made a message, the others by when it was stored.
    """
    table = add_hours([part.hours for part in parts])
    topic = add_hours([dict(_topic_counts(queue)) for queue in queues])
    hours = sorted(hour for hour in {*table, *topic, *(producer or {})} if hour >= 0)
    first = min(topic, default=None)
    return [
        HourlyCount(
            hour=hour,
            producer=None if producer is None else producer.get(hour, 0),
            # Of hours before the first one retention may have deleted any part.
            topic=topic.get(hour, 0) if first is not None and hour >= first else None,
            table=table.get(hour, 0),
        )
        for hour in hours
    ]


def count_differences(
    producer: Mapping[int, int], table: Mapping[int, int]
) -> list[CountDifference]:
    """The hours in which the table differs from the producer's count.

    Consecutive hours that differ are summed up, and left out when they cancel out: a message that
    is counted in one hour may have been made in the hour before.
    """
    differences: list[CountDifference] = []
    for hour in sorted({*producer, *table}):
        more = table.get(hour, 0) - producer.get(hour, 0)
        if not more:
            continue
        if differences and differences[-1].last == hour - 1:
            before = differences.pop()
            more += before.more
            differences.append(CountDifference(first=before.first, last=hour, more=more))
        else:
            differences.append(CountDifference(first=hour, last=hour, more=more))
    return [difference for difference in differences if difference.more]


def _missing(queue: AuditedQueue) -> Iterator[AuditFinding]:
    for span in gaps(queue.counts, _start_of(queue), _end_of(queue)):
        for what, part in _split_gap(queue, span):
            yield _finding(queue, what, part)
    if queue.end is not None and queue.first is not None and queue.first > queue.end:
        yield _finding(queue, "lost", NumberRange(queue.end, queue.first))


def _split_gap(queue: AuditedQueue, span: NumberRange) -> Iterator[tuple[FindingKind, NumberRange]]:
    """The part of a gap that the topic has lost, and the part that it still has."""
    first = span.start if queue.first is None else queue.first
    parts: Sequence[tuple[FindingKind, NumberRange]] = (
        ("lost", span.within(span.start, first)),
        ("missing", span.within(first, span.end)),
    )
    return ((what, part) for what, part in parts if len(part))


def _unknown(queue: AuditedQueue) -> Iterator[AuditFinding]:
    if queue.next is not None:
        for span in ranges_from(queue.counts, queue.next):
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
    place = bisect_right(queue.hour_starts, offset, key=lambda hour_start: hour_start[1])
    is_in_topic = queue.first is not None and offset >= queue.first
    return queue.hour_starts[place - 1][0] if place and is_in_topic else None


def _start_of(queue: AuditedQueue) -> int:
    if queue.begin is not None:
        return queue.begin
    if queue.counts.starts:
        return queue.counts.starts[0]
    # Nothing says where it began: as before the first row of a queue that has rows.
    return queue.end if queue.end is not None else queue.first or 0


def _end_of(queue: AuditedQueue) -> int:
    if queue.end is not None:
        return queue.end
    return queue.counts.ends[-1] if queue.counts.ends else queue.first or 0


def _topic_counts(queue: AuditedQueue) -> Iterator[tuple[int, int]]:
    """Pairs of an hour and its messages in the topic."""
    if not queue.hour_starts:
        return
    ends = [*(offset for _, offset in queue.hour_starts[1:]), queue.next or 0]
    for (hour, offset), end in zip(queue.hour_starts, ends, strict=True):
        if end > offset:
            yield hour, end - offset
