"""roquet spark audit: compares an archive with its topic."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.progress import TimeElapsedColumn

from roquet.cli.command_options import As, argument, option
from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import TOPIC, SparkOptions, TableOptions, check_installed
from roquet.cli.terminal import output
from roquet.cli.terminal.progress import counted_bar
from roquet.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.lake.audit.audit_report import AuditReport
    from roquet.spark.jobs.audit.audit_job import AuditProgress

PLACES_MAX: Final = 6
"""Messages shown of a row that was sent more than once."""

SHOWN_MAX: Final = 40
"""Findings shown in text output; the page and the JSON have all."""


class AuditOptions(TableOptions, SparkOptions):
    """Options of `roquet spark audit`."""

    topic: str = TOPIC
    directory: str = argument("Its archive.", gives=As("target"), metavar="TABLE")
    producer: str = option(
        "A producer's counts by hour, JSON or Parquet; or rows: keys of our sink.",
        default="",
        metavar="COUNTS",
    )
    page: str | None = option("An HTML page with all of it.", metavar="FILE")
    master: str | None = option("Read the files on this Spark; else in this process.")


def audit(options: AuditOptions, namesrv: str, as_json: bool) -> Result:
    """Compare an archive with its topic: missing and duplicate messages, by queue and offset.

    Nothing is changed, and the archive may run meanwhile. Exit code 1 when they differ.
    """
    check_installed()
    from roquet.lake.audit.audit_page import html
    from roquet.spark.jobs.audit import audit_job

    params = options.params(audit_job.Params, options=options.source(namesrv))
    with counted_bar("files", TimeElapsedColumn(), quiet=as_json) as update:

        def tell(done: "AuditProgress") -> None:
            update(description=done.what, completed=done.done, total=done.total)

        report = audit_job.run(params, _spark(params.master), tell)
    if options.page is not None:
        Path(options.page).write_text(html(report), "utf-8", "backslashreplace")
    text = _report_parts(report, options.page)
    return Result(json=[report], text=text, is_failed=not report.is_clean)


def _spark(master: str | None) -> "Callable[[], SparkSession] | None":
    """Makes the Spark session of --master or spark-submit; None reads files in this process."""
    from roquet.spark.jobs.job_runner import is_session_provided, spark_for

    if master is None and not is_session_provided(None):
        return None
    if master is not None:
        java.java_home()
    return lambda: spark_for("roquet audit", master)


def _report_parts(report: "AuditReport", page: str | None) -> Iterator[Any]:
    from roquet.lake.audit.audit_page import verdict
    from roquet.lake.audit.hourly_counts import hour_text

    yield verdict(report)
    if report.findings:
        yield _findings(report)
        if (more := len(report.findings) - SHOWN_MAX) > 0:
            yield f"and {more:,} more: see --page or --json"
    for one in report.producer[:SHOWN_MAX]:
        first, last = hour_text(one.first), hour_text(one.last)
        span = first if one.first == one.last else f"{first} to {last}"
        yield f"{span}: {one.more:+,} against the producer's count"
    for gap in report.row_gaps[:SHOWN_MAX]:
        where = ", ".join(map(str, gap.places[:PLACES_MAX]))
        yield f"{gap.what}: rows {gap.rows} of {gap.writer}{f' ({where})' if where else ''}"
    if not report.begin_known:
        yield "where the table began is not known: its first row of a queue counts as that"
    if page is not None:
        yield Path(page).absolute().as_uri()


def _findings(report: "AuditReport") -> "output.Table":
    from roquet.lake.audit.hourly_counts import hour_text

    columns = ("", "broker", "hour", "queue", "offsets", "messages", "times")
    rows = (
        (
            one.what,
            one.broker,
            "" if one.hour is None else hour_text(one.hour),
            str(one.queue_id),
            one.offsets,
            one.messages,
            str(one.times) if one.what == "doubled" else "",
        )
        for one in report.findings[:SHOWN_MAX]
    )
    return output.table(columns, rows, numbers=3)
