"""The report of an audit: what all sides have said, held against each other. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from roquet.spark.jobs.audit import file_summary, findings
from roquet.spark.jobs.audit.duplicate_rows import SinkRowLocation
from roquet.spark.jobs.audit.file_summary import FileSummary
from roquet.spark.jobs.audit.findings import AuditedQueue, AuditFinding, HourlyCount
from roquet.spark.jobs.offset_counts import NumberRange, duplicates, gaps
from roquet.spark.tables.snapshot import TableSnapshot


class RowGap(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one writer (query, batch and partition) that are missing, or there twice."""

    what: str
    writer: str
    start: int
    end: int
    times: int = 1
    places: tuple[SinkRowLocation, ...] = ()
    """Of doubled ones the messages that they are in."""

    @property
    def rows(self) -> str:
        """`5`, or `5..9`."""
        return str(NumberRange(self.start, self.end))


class CountDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Hours in which the table and the producer's count differ."""

    first: int
    last: int
    more: int
    """Messages that the table has more; fewer when it is below zero."""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit has found."""

    topic: str
    table: str
    kind: str
    number: int
    rows: int
    in_topic: int
    waiting: int
    """In the topic, and not archived yet: no fault."""
    begin_known: bool
    """Whether the table knows where it began; if not, its first row counts as that."""
    findings: tuple[AuditFinding, ...]
    hours: tuple[HourlyCount, ...]
    producer: tuple[CountDifference, ...] = ()
    row_gaps: tuple[RowGap, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is amiss."""
        return not (self.findings or self.producer or self.row_gaps)

    def count(self, what: str) -> int:
        """Messages with this fault."""
        return sum(one.messages for one in self.findings if one.what == what)


def build_report(
    table: str,
    held: TableSnapshot,
    found: FileSummary,
    queues: Sequence[AuditedQueue],
    counted: Mapping[int, int] | None,
) -> AuditReport:
    """The report of what all sides have said. Pure."""
    born = file_summary.add_hours([one.born or one.hours for one in found.queues])
    differing = findings.count_differences(counted, born) if counted is not None else []
    return AuditReport(
        topic=held.topic,
        table=table,
        kind=held.kind,
        number=held.number,
        rows=found.rows,
        in_topic=sum((one.next or 0) - (one.first or 0) for one in queues),
        waiting=sum(map(findings.count_waiting, queues)),
        begin_known=held.begin is not None,
        findings=tuple(one for queue in queues for one in findings.find_in_queue(queue)),
        hours=tuple(findings.count_by_hour(found.queues, queues, counted)),
        producer=tuple(CountDifference(first=a, last=b, more=more) for a, b, more in differing),
        row_gaps=tuple(row_gaps(found)),
    )


def row_gaps(found: FileSummary) -> list[RowGap]:
    """What is wrong with the keys of rows: numbers that are missing, or there more than once."""
    gone = [
        RowGap(what="missing", writer=one.name, start=span.start, end=span.end)
        for one in found.writers
        for span in gaps(one.runs, 0, max(one.runs.ends, default=0))
    ]
    twice = [
        RowGap(what="doubled", writer=one.name, start=span.start, end=span.end, times=times)
        for one in found.writers
        for span, times in duplicates(one.runs)
    ]
    return sorted([*gone, *twice], key=lambda one: (one.writer, one.start))


def with_locations(report: AuditReport, places: Sequence[SinkRowLocation]) -> AuditReport:
    """The report, with the messages of rows that are there twice. Pure."""
    gaps = [
        msgspec.structs.replace(
            gap,
            places=tuple(
                sorted(
                    one
                    for one in places
                    if one.writer == gap.writer and gap.start <= one.row < gap.end
                )
            ),
        )
        if gap.what == "doubled"
        else gap
        for gap in report.row_gaps
    ]
    return msgspec.structs.replace(report, row_gaps=tuple(gaps))
