"""Audit page: the report as HTML, with findings, differences, and counts by hour as a picture."""

from collections.abc import Iterator
from typing import Final

from roquet.lake.audit.audit_report import AuditReport
from roquet.lake.audit.findings import MEANING
from roquet.lake.audit.hourly_counts import hour_text
from roquet.pictures.interval_plot import IntervalRow, interval_plot
from roquet.pictures.page import Cell, Section, page, table

SHOWN_MAX: Final = 500
"""Rows of a table on the page; the JSON report has all."""

PICTURED_MAX: Final = 72
"""Hours in the picture: three days."""

_START_UNKNOWN: Final = (
    "The table does not say at which offsets it began: messages before its first row of a queue "
    "are not checked."
)
_HOURS: Final = (
    "Hours are in UTC. The topic and the table are counted by when the broker stored a message, "
    "the producer's count is by when it made one. The topic's counts begin with the first hour "
    "that it still has."
)
_ROWS: Final = (
    "Rows that our sink wrote are numbered within query, batch and partition. A row that was sent "
    "to another topic counts as missing, too."
)


def html(report: AuditReport) -> str:
    """The page as HTML; equal reports give equal bytes."""
    return page(
        f"Audit of {report.topic}", Cell(verdict(report), report.is_clean), _sections(report)
    )


def verdict(report: AuditReport) -> str:
    """The report in one sentence."""
    counts = [f"{report.count(what):,} {what}" for what in MEANING if report.count(what)]
    if report.producer:
        more = sum(difference.more for difference in report.producer)
        counts.append(f"{more:+,} against the producer's count")
    if report.row_gaps:
        gaps = len(report.row_gaps)
        counts.append(f"{gaps:,} fault{'' if gaps == 1 else 's'} in the numbers of rows")
    rest = f"; {report.waiting:,} wait in the topic" if report.waiting else ""
    faults = ", ".join(counts) or "nothing is missing or doubled"
    return f"{report.topic}: {report.rows:,} rows in {report.table}: {faults}{rest}"


def _sections(report: AuditReport) -> Iterator[Section]:
    yield Section(
        title="Findings",
        text="" if report.begin_known else _START_UNKNOWN,
        content=_findings(report) if report.findings else "<p class='good'>nothing</p>",
    )
    if report.producer:
        rows = [
            [hour_text(each.first), hour_text(each.last), Cell(each.more, False)]
            for each in report.producer
        ]
        yield Section(
            title="Against the producer's count",
            text="Hours in which the counts differ; below zero the table has fewer messages.",
            content=table(["from", "to", "more in the table"], rows[:SHOWN_MAX]),
        )
    if report.row_gaps:
        rows = [
            [
                gap.writer,
                gap.rows,
                Cell(gap.what, False),
                gap.times,
                ", ".join(map(str, gap.places)),
            ]
            for gap in report.row_gaps
        ]
        head = ["query/batch/partition", "rows", "", "times", "messages (queue, offset)"]
        yield Section(title="Rows of the sink", text=_ROWS, content=table(head, rows[:SHOWN_MAX]))
    yield Section(title="By hour", text=_HOURS, content=_picture(report) + _hours(report))


def _findings(report: AuditReport) -> str:
    head = ["", "broker", "queue", "offsets", "messages", "hour", "what it means"]
    rows = [
        [
            Cell(finding.what, False),
            finding.broker,
            finding.queue_id,
            finding.offsets,
            finding.messages,
            "" if finding.hour is None else hour_text(finding.hour),
            MEANING[finding.what],
        ]
        for finding in report.findings[:SHOWN_MAX]
    ]
    more = len(report.findings) - len(rows)
    return table(head, rows) + (f"<p>and {more:,} more</p>" if more else "")


def _picture(report: AuditReport) -> str:
    shown = report.hours[-PICTURED_MAX:]
    rows = [
        IntervalRow(
            name=hour_text(hour.hour),
            low=0,
            high=hour.table,
            mean=hour.table if hour.topic is None else hour.topic,
            note=f"{hour.table:,}",
        )
        for hour in shown
    ]
    if not rows:
        return ""
    most = max(max(row.high, row.mean) for row in rows)
    drawn = interval_plot(rows, x="bar: rows in the table; dot: messages in the topic", most=most)
    return f'<div style="max-width:36rem">{drawn}</div>'


def _hours(report: AuditReport) -> str:
    with_producer = any(hour.producer is not None for hour in report.hours)
    head = ["hour", *(["producer"] if with_producer else []), "topic", "table", "table - topic"]
    rows = [
        [
            hour_text(hour.hour),
            *([hour.producer or 0] if with_producer else []),
            "" if hour.topic is None else hour.topic,
            hour.table,
            "" if hour.topic is None else hour.table - hour.topic,
        ]
        for hour in report.hours[-SHOWN_MAX:]
    ]
    return table(head, rows)
