"""roquet spark audit: runs the job, shows its progress, and prints its report."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roquet.cli.terminal import output
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.progress import live_bar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

    from roquet.lake.audit.audit_report import AuditReport
    from roquet.spark.jobs.audit.audit_job import AuditProgress, Params

PLACES_MAX: Final = 6
"""Messages shown of a row that was sent more than once."""

SHOWN_MAX: Final = 40
"""Findings shown in text output; the page and the JSON have all."""


def run(params: "Params", page: str | None, *, as_json: bool) -> None:
    """Run the audit and print its report; ends with code 1 when it is not clean."""
    from roquet.lake.audit.audit_page import html
    from roquet.spark.jobs.audit import audit_job

    with _progress_bar(quiet=as_json) as tell:
        report = audit_job.run(params, _spark(params), tell)
    if page is not None:
        Path(page).write_text(html(report), "utf-8")
    if as_json:
        output.echo_json([report])
    else:
        _print_report(report, page)
    if not report.is_clean:
        sys.exit(FAILED)


def _spark(params: "Params") -> "Callable[[], SparkSession] | None":
    """Makes the Spark session of --master or spark-submit; None reads files in this process."""
    from roquet.spark.java import java_home
    from roquet.spark.jobs.job_runner import is_session_provided, spark_for

    if params.master is None and not is_session_provided(None):
        return None
    if params.master is not None:
        java_home()
    return lambda: spark_for("roquet audit", params.master)


def _print_report(report: "AuditReport", page: str | None) -> None:
    from roquet.lake.audit.audit_page import verdict
    from roquet.lake.audit.hourly_counts import hour_text

    output.echo(verdict(report))
    if report.findings:
        output.console().print(_findings(report))
        if (more := len(report.findings) - SHOWN_MAX) > 0:
            output.echo(f"and {more:,} more: see --page or --json")
    for one in report.producer[:SHOWN_MAX]:
        span = (
            hour_text(one.first)
            if one.first == one.last
            else f"{hour_text(one.first)} to {hour_text(one.last)}"
        )
        output.echo(f"{span}: {one.more:+,} against the producer's count")
    for gap in report.row_gaps[:SHOWN_MAX]:
        where = ", ".join(map(str, gap.places[:PLACES_MAX]))
        output.echo(f"{gap.what}: rows {gap.rows} of {gap.writer}{f' ({where})' if where else ''}")
    if not report.begin_known:
        output.echo("where the table began is not known: its first row of a queue counts as that")
    if page is not None:
        output.echo(Path(page).absolute().as_uri())


def _findings(report: "AuditReport") -> "Table":
    from roquet.lake.audit.hourly_counts import hour_text

    shown = output.table("", "broker", "hour", "queue", "offsets", "messages", "times", numbers=3)
    for one in report.findings[:SHOWN_MAX]:
        shown.add_row(
            one.what,
            one.broker,
            "" if one.hour is None else hour_text(one.hour),
            str(one.queue_id),
            one.offsets,
            f"{one.messages:,}",
            str(one.times) if one.what == "doubled" else "",
        )
    return shown


@contextmanager
def _progress_bar(*, quiet: bool) -> "Iterator[Callable[[AuditProgress], None]]":
    """Show a bar on stderr: files, then queues."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from roquet.cli.terminal.printable_console import PrintableColumn

    bar = Bar(
        PrintableColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=output.console(to_stderr=True, quiet=quiet),
    )
    with live_bar(bar):
        task = bar.add_task("files", total=None)

        def tell(done: "AuditProgress") -> None:
            bar.update(task, description=done.what, completed=done.done, total=done.total)

        yield tell
