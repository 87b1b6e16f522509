"""The report combines the table, the topic and the producer."""

from roquet.lake.audit.audit_report import (
    AuditReport,
    RowGap,
    build_report,
    row_gaps,
    with_locations,
)
from roquet.lake.audit.duplicate_rows import SinkRowLocation
from roquet.lake.audit.file_summary import FileSummary, SequenceSummary
from roquet.lake.audit.findings import AuditedQueue, CountDifference
from roquet.lake.intervals import OffsetCounts
from roquet.lake.snapshot import TableSnapshot

HELD = TableSnapshot(
    topic="orders", kind="delta", paths=(), begin={("orders", "a", 0): 0}, number=3
)
COUNTS = OffsetCounts([0, 3], [2, 5], [1, 2])
FOUND = FileSummary(
    queues=(SequenceSummary(name="a", counts=COUNTS, hours={7: 6}, born={6: 5, 9: 1}),),
    writers=(SequenceSummary(name="q/1/0", counts=OffsetCounts([0, 1], [1, 2], [1, 2])),),
    rows=6,
)
QUEUES = [AuditedQueue(broker="a", queue_id=0, counts=COUNTS, begin=0, end=5, first=0, next=8)]


def report(counted: dict[int, int] | None = None) -> AuditReport:
    return build_report("lake", HELD, FOUND, QUEUES, counted)


def test_a_report_combines_all_sources() -> None:
    audit_report = report()
    assert (audit_report.topic, audit_report.table, audit_report.number, audit_report.rows) == (
        "orders",
        "lake",
        3,
        6,
    )
    assert (audit_report.in_topic, audit_report.waiting, audit_report.begin_known) == (8, 3, True)
    assert (
        audit_report.count("missing"),
        audit_report.count("doubled"),
        audit_report.count("lost"),
    ) == (1, 2, 0)
    assert audit_report.producer == ()
    assert not audit_report.is_clean


def test_producers_are_compared_by_the_hours_in_which_they_made_messages() -> None:
    assert report({6: 5, 9: 1}).producer == ()
    assert report({6: 5}).producer == (CountDifference(first=9, last=9, more=1),)


def test_a_whole_table_is_clean() -> None:
    counts = OffsetCounts([0], [5], [1])
    queue = AuditedQueue(broker="a", queue_id=0, counts=counts, begin=0, end=5, first=0, next=5)
    summary = FileSummary(queues=(SequenceSummary(name="a", counts=counts),), rows=5)
    assert build_report("lake", HELD, summary, [queue], None).is_clean


def test_doubled_rows_get_their_messages() -> None:
    other = SinkRowLocation("q/1/0", 5, "a", 0, 9)
    here = [SinkRowLocation("q/1/0", 1, "a", 1, 4), SinkRowLocation("q/1/0", 1, "a", 0, 3)]
    [gap] = with_locations(report(), [other, *here]).row_gaps
    assert (gap.what, gap.rows, gap.places) == ("doubled", "1", tuple(sorted(here)))
    assert with_locations(report(), []) == report()


def test_rows_of_the_sink_are_numbered_from_zero() -> None:
    summary = FileSummary(
        writers=(
            SequenceSummary(name="q/1/0", counts=OffsetCounts([1, 4, 6], [4, 5, 7], [1, 2, 1])),
            SequenceSummary(name="q/1/1", counts=OffsetCounts([0], [9], [1])),
        )
    )
    assert row_gaps(summary) == [
        RowGap(what="missing", writer="q/1/0", start=0, end=1),
        RowGap(what="doubled", writer="q/1/0", start=4, end=5, times=2),
        RowGap(what="missing", writer="q/1/0", start=5, end=6),
    ]
