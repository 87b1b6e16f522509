"""roquet spark audit: its bar, its page, and what it says at the end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roquet.cli import output
from roquet.cli.bars import on_screen
from roquet.cli.exit_codes import FAILED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

    from roquet.spark.jobs.audit import Params, Progress
    from roquet.spark.jobs.audit_report import Report

PLACES_MAX: Final = 6
"""Messages of a row that was sent more than once."""

SHOWN_MAX: Final = 40
"""Findings on the terminal; the page and the JSON have more."""


def run(params: "Params", page: str | None, *, as_json: bool) -> None:
    """Compare, tell, and end with code 1 when something is amiss."""
    from roquet.spark.jobs import audit
    from roquet.spark.jobs.audit_page import html

    with _shown(quiet=as_json) as tell:
        report = audit.run(params, _spark(params), tell)
    if page is not None:
        Path(page).write_text(html(report), "utf-8")
    if as_json:
        output.echo_json([report])
    else:
        _tell(report, page)
    if not report.is_clean:
        sys.exit(FAILED)


def _spark(params: "Params") -> "Callable[[], SparkSession] | None":
    """The Spark that is asked for, or given; else files are looked at in this process."""
    from roquet.spark.java import java_home
    from roquet.spark.jobs.running import is_given, spark_for

    if params.master is None and not is_given(None):
        return None
    if params.master is not None:
        java_home()
    return lambda: spark_for("roquet audit", params.master)


def _tell(report: "Report", page: str | None) -> None:
    from roquet.spark.jobs.audit_page import verdict
    from roquet.spark.jobs.hours import told

    output.echo(verdict(report))
    if report.findings:
        output.console().print(_findings(report))
        if (more := len(report.findings) - SHOWN_MAX) > 0:
            output.echo(f"and {more:,} more: see --page or --json")
    for one in report.producer[:SHOWN_MAX]:
        span = (
            told(one.first) if one.first == one.last else f"{told(one.first)} to {told(one.last)}"
        )
        output.echo(f"{span}: {one.more:+,} against the producer's count")
    for gap in report.row_gaps[:SHOWN_MAX]:
        where = ", ".join(map(str, gap.places[:PLACES_MAX]))
        output.echo(f"{gap.what}: rows {gap.rows} of {gap.writer}{f' ({where})' if where else ''}")
    if not report.begin_known:
        output.echo("where the table began is not known: its first row of a queue counts as that")
    if page is not None:
        output.echo(Path(page).absolute().as_uri())


def _findings(report: "Report") -> "Table":
    from roquet.spark.jobs.hours import told

    shown = output.table("", "broker", "hour", "queue", "offsets", "messages", "times", numbers=3)
    for one in report.findings[:SHOWN_MAX]:
        shown.add_row(
            one.what,
            one.broker,
            "" if one.hour is None else told(one.hour),
            str(one.queue_id),
            one.offsets,
            f"{one.messages:,}",
            str(one.times) if one.what == "doubled" else "",
        )
    return shown


@contextmanager
def _shown(*, quiet: bool) -> "Iterator[Callable[[Progress], None]]":
    """A bar on stderr: files, and then queues."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from roquet.cli.printable_console import PrintableColumn

    bar = Bar(
        PrintableColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=output.console(apart=True, quiet=quiet),
    )
    with on_screen(bar):
        task = bar.add_task("files", total=None)

        def tell(done: "Progress") -> None:
            bar.update(task, description=done.what, completed=done.done, total=done.total)

        yield tell
