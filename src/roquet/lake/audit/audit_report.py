"""Audit report: compares the table, its topic and the producer's count. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from roquet.lake.audit import file_summary, findings
from roquet.lake.audit.duplicate_rows import SinkRowLocation
from roquet.lake.audit.file_summary import FileSummary
from roquet.lake.audit.findings import AuditedQueue, AuditFinding, CountDifference, HourlyCount
from roquet.lake.intervals import NumberRange, duplicates, gaps
from roquet.lake.snapshot import TableSnapshot


class RowGap(msgspec.Struct, frozen=True, kw_only=True):
    """Row numbers [start, end) of one writer of the sink that are missing, or occur repeatedly."""

    what: str
    """`missing` or `doubled`."""
    writer: str
    """<query>/<batch>/<partition>."""
    start: int
    end: int
    times: int = 1
    places: tuple[SinkRowLocation, ...] = ()
    """The messages of doubled rows."""

    @property
    def rows(self) -> str:
        """`5`, or `5..9`."""
        return str(NumberRange(self.start, self.end))


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit."""

    topic: str
    table: str
    kind: str
    number: int
    """Number of the table's commit; 0 for a table without commits."""
    rows: int
    in_topic: int
    waiting: int
    """Messages that are in the topic and not archived yet, which is no fault."""
    begin_known: bool
    """Whether the table says where it began; if not, its first row of a queue counts as that."""
    findings: tuple[AuditFinding, ...]
    hours: tuple[HourlyCount, ...]
    producer: tuple[CountDifference, ...] = ()
    row_gaps: tuple[RowGap, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether the audit found no fault."""
        return not (self.findings or self.producer or self.row_gaps)

    def count(self, what: str) -> int:
        """Messages with this kind of finding."""
        return sum(finding.messages for finding in self.findings if finding.what == what)


def build_report(
    table: str,
    snapshot: TableSnapshot,
    summary: FileSummary,
    queues: Sequence[AuditedQueue],
    producer_counts: Mapping[int, int] | None,
) -> AuditReport:
    """Compare all sides; `producer_counts` by hour, None when the producer was not asked."""
    born = file_summary.add_hours([queue.born or queue.hours for queue in summary.queues])
    differences = (
        findings.count_differences(producer_counts, born) if producer_counts is not None else []
    )
    return AuditReport(
        topic=snapshot.topic,
        table=table,
        kind=snapshot.kind,
        number=snapshot.number,
        rows=summary.rows,
        in_topic=sum((queue.next or 0) - (queue.first or 0) for queue in queues),
        waiting=sum(map(findings.count_waiting, queues)),
        begin_known=snapshot.begin is not None,
        findings=tuple(finding for queue in queues for finding in findings.find_in_queue(queue)),
        hours=tuple(findings.count_by_hour(summary.queues, queues, producer_counts)),
        producer=tuple(differences),
        row_gaps=tuple(row_gaps(summary)),
    )


def row_gaps(summary: FileSummary) -> list[RowGap]:
    """The row numbers of each writer that are missing or occur repeatedly."""
    missing = [
        RowGap(what="missing", writer=writer.name, start=span.start, end=span.end)
        for writer in summary.writers
        for span in gaps(writer.counts, 0, max(writer.counts.ends, default=0))
    ]
    doubled = [
        RowGap(what="doubled", writer=writer.name, start=span.start, end=span.end, times=times)
        for writer in summary.writers
        for span, times in duplicates(writer.counts)
    ]
    return sorted([*missing, *doubled], key=lambda gap: (gap.writer, gap.start))


def with_locations(report: AuditReport, locations: Sequence[SinkRowLocation]) -> AuditReport:
    """The report, with the messages of doubled rows added."""
    located = [
        msgspec.structs.replace(gap, places=_locations_of(gap, locations))
        if gap.what == "doubled"
        else gap
        for gap in report.row_gaps
    ]
    return msgspec.structs.replace(report, row_gaps=tuple(located))


def _locations_of(gap: RowGap, locations: Sequence[SinkRowLocation]) -> tuple[SinkRowLocation, ...]:
    own = (each for each in locations if each.writer == gap.writer)
    return tuple(sorted(each for each in own if gap.start <= each.row < gap.end))
