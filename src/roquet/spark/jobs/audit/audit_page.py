"""The page of an audit: what is amiss and where, and the hours as a picture and as a table."""

from collections.abc import Iterator
from typing import Final

from roquet.pictures.interval_plot import IntervalRow, interval_plot
from roquet.pictures.page import Cell, Section, page, table
from roquet.spark.jobs.audit.audit_report import AuditReport
from roquet.spark.jobs.audit.findings import MEANING, HourlyCount
from roquet.spark.jobs.audit.hourly_counts import hour_text

SHOWN_MAX: Final = 500
"""Rows of a table on the page; the JSON has all."""

PICTURED_MAX: Final = 72
"""Hours in the picture: three days."""

_START_UNKNOWN: Final = (
    "The table does not know where it began: what is before its first row of a queue is not judged."
)
_HOURS: Final = (
    "By the hour in which the broker stored a message, in UTC; the producer's by the hour in which "
    "it made one. The topic's count is given from the first hour on that it still has."
)
_ROWS: Final = (
    "Rows that our sink wrote are numbered within query, batch and partition. A row that went to "
    "another topic is missing here, too."
)


def html(report: AuditReport) -> str:
    """The whole page; the same bytes for the same report."""
    return page(
        f"Audit of {report.topic}", Cell(verdict(report), report.is_clean), _sections(report)
    )


def verdict(report: AuditReport) -> str:
    """The report in a sentence."""
    counts = [f"{report.count(what):,} {what}" for what in MEANING if report.count(what)]
    if report.producer:
        more = sum(one.more for one in report.producer)
        counts.append(f"{more:+,} against the producer's count")
    if report.row_gaps:
        gaps = len(report.row_gaps)
        counts.append(f"{gaps:,} fault{'' if gaps == 1 else 's'} in the numbers of rows")
    rest = f"; {report.waiting:,} wait in the topic" if report.waiting else ""
    said = ", ".join(counts) or "nothing is missing or doubled"
    return f"{report.topic}: {report.rows:,} rows in {report.table}: {said}{rest}"


def _sections(report: AuditReport) -> Iterator[Section]:
    yield Section(
        title="What is amiss",
        text="" if report.begin_known else _START_UNKNOWN,
        content=_findings(report) if report.findings else "<p class='good'>nothing</p>",
    )
    if report.producer:
        rows = [
            [hour_text(s.first), hour_text(s.last), Cell(s.more, False)] for s in report.producer
        ]
        yield Section(
            title="Against the producer's count",
            text="Hours in which the table has more messages, or fewer where it is below zero.",
            content=table(["from", "to", "more in the table"], rows[:SHOWN_MAX]),
        )
    if report.row_gaps:
        rows = [
            [g.writer, g.rows, Cell(g.what, False), g.times, ", ".join(map(str, g.places))]
            for g in report.row_gaps
        ]
        head = ["query/batch/partition", "rows", "", "times", "messages (queue, offset)"]
        yield Section(title="Rows of the sink", text=_ROWS, content=table(head, rows[:SHOWN_MAX]))
    yield Section(title="By hour", text=_HOURS, content=_picture(report) + _hours(report))


def _findings(report: AuditReport) -> str:
    head = ["", "broker", "queue", "offsets", "messages", "hour", "what it means"]
    rows = [
        [
            Cell(one.what, False),
            one.broker,
            one.queue_id,
            one.offsets,
            one.messages,
            "" if one.hour is None else hour_text(one.hour),
            MEANING[one.what],
        ]
        for one in report.findings[:SHOWN_MAX]
    ]
    more = len(report.findings) - len(rows)
    return table(head, rows) + (f"<p>and {more:,} more</p>" if more else "")


def _picture(report: AuditReport) -> str:
    shown = report.hours[-PICTURED_MAX:]
    rows = [
        IntervalRow(
            name=hour_text(one.hour),
            low=0,
            high=one.table,
            mean=_topic_count(one),
            note=f"{one.table:,}",
        )
        for one in shown
    ]
    if not rows:
        return ""
    most = max(max(row.high, row.mean) for row in rows)
    drawn = interval_plot(rows, x="bar: rows in the table; dot: messages in the topic", most=most)
    return f'<div style="max-width:36rem">{drawn}</div>'


def _topic_count(hour: HourlyCount) -> int:
    return hour.table if hour.topic is None else hour.topic


def _hours(report: AuditReport) -> str:
    with_producer = any(one.producer is not None for one in report.hours)
    head = ["hour", *(["producer"] if with_producer else []), "topic", "table", "table - topic"]
    rows = [
        [
            hour_text(one.hour),
            *([one.producer or 0] if with_producer else []),
            "" if one.topic is None else one.topic,
            one.table,
            "" if one.topic is None else one.table - one.topic,
        ]
        for one in report.hours[-SHOWN_MAX:]
    ]
    return table(head, rows)
