"""The report of an audit: what all sides have said, held against each other. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from roquet.spark.jobs import findings, footprint
from roquet.spark.jobs.coverage import Span, doubles, gaps
from roquet.spark.jobs.findings import Finding, Hour, Queue
from roquet.spark.jobs.footprint import Found
from roquet.spark.jobs.places import Place
from roquet.spark.tables.looking import Held


class RowGap(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one writer (query, batch and partition) that are missing, or there twice."""

    what: str
    writer: str
    start: int
    end: int
    times: int = 1
    places: tuple[Place, ...] = ()
    """Of doubled ones the messages that they are in."""

    @property
    def rows(self) -> str:
        """`5`, or `5..9`."""
        return str(Span(self.start, self.end))


class Surplus(msgspec.Struct, frozen=True, kw_only=True):
    """Hours in which the table and the producer's count differ."""

    first: int
    last: int
    more: int
    """Messages that the table has more; fewer when it is below zero."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
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
    findings: tuple[Finding, ...]
    hours: tuple[Hour, ...]
    producer: tuple[Surplus, ...] = ()
    row_gaps: tuple[RowGap, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is amiss."""
        return not (self.findings or self.producer or self.row_gaps)

    def count(self, what: str) -> int:
        """Messages with this fault."""
        return sum(one.messages for one in self.findings if one.what == what)


def compared(
    table: str,
    held: Held,
    found: Found,
    queues: Sequence[Queue],
    counted: Mapping[int, int] | None,
) -> Report:
    """The report of what all sides have said. Pure."""
    born = footprint.added([one.born or one.hours for one in found.queues])
    differing = findings.against(counted, born) if counted is not None else []
    return Report(
        topic=held.topic,
        table=table,
        kind=held.kind,
        number=held.number,
        rows=found.rows,
        in_topic=sum((one.next or 0) - (one.first or 0) for one in queues),
        waiting=sum(map(findings.waiting, queues)),
        begin_known=held.begin is not None,
        findings=tuple(one for queue in queues for one in findings.of_queue(queue)),
        hours=tuple(findings.by_hour(found.queues, queues, counted)),
        producer=tuple(Surplus(first=a, last=b, more=more) for a, b, more in differing),
        row_gaps=tuple(row_gaps(found)),
    )


def row_gaps(found: Found) -> list[RowGap]:
    """What is wrong with the keys of rows: numbers that are missing, or there more than once."""
    gone = [
        RowGap(what="missing", writer=one.name, start=span.start, end=span.end)
        for one in found.writers
        for span in gaps(one.runs, 0, max(one.runs.ends, default=0))
    ]
    twice = [
        RowGap(what="doubled", writer=one.name, start=span.start, end=span.end, times=times)
        for one in found.writers
        for span, times in doubles(one.runs)
    ]
    return sorted([*gone, *twice], key=lambda one: (one.writer, one.start))


def placed(report: Report, places: Sequence[Place]) -> Report:
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
