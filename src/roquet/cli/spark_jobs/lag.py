"""roquet spark lag: samples and forecasts the lag of groups; with --table, the lag of archives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    As,
    StorageOptions,
    check_installed,
    millis,
    names,
    parse_pairs,
    stop_event,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.progress import live_bar
from roquet.model.errors import UsageError
from roquet.model.settings import parse_millis

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.lake.lag.lag_job import LagProgress
    from roquet.lake.lag.lag_summary import LagReport

BAD: Final = "bold red"


class LagOptions(StorageOptions):
    """Options of `roquet spark lag`."""

    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help="Of the samples and their page: a directory or s3://BUCKET/PATH.",
        ),
        As("target"),
    ] = None
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Only the lag that its archive has noted; repeatable."),
    ] = None
    every: Annotated[
        str,
        typer.Option(metavar="TIME", help="How often to sample."),
        As("every_ms", millis("--every")),
    ] = "10s"
    how_long: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="How long to watch; rates are of it."),
        As("for_ms", millis("--for")),
    ] = "10m"
    groups: Annotated[
        str | None,
        typer.Option(help="Only these, comma separated; else all."),
        As("groups", names),
    ] = None
    retention: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For brokers that do not report theirs: 48h."),
        As("retention_ms", millis("--retention")),
    ] = None


def lag(options: LagOptions, namesrv: str, as_json: bool) -> Result:
    """Forecast the lag of all groups: which catch up when, and which lose messages to retention.

    The samples are a table in DIR/samples, the page is DIR/lag.html. A second run adds to them.
    With --table: how far archives are behind, at once and without brokers. Needs no Java. Exit code
    1 when a group will not catch up, or when retention overtakes an archive.
    """
    if (options.directory is None) == (not options.table):
        raise UsageError("give DIR, to sample all groups, or --table for the lag of archives")
    if options.table:
        return _lag_of_tables(options)
    check_installed(("pyspark", "pyarrow", "numpy", "matplotlib"), "spark,pictures")
    from roquet.lake.lag import lag_job
    from roquet.lake.lag.lag_page import is_late

    params = options.params(lag_job.Params, namesrv=namesrv)
    with _progress_bar(quiet=as_json) as tell:
        done = lag_job.run(params, tell, stop_event().is_set)
    is_failed = any(is_late(one) for one in done.standings)
    return Result(json=[done], text=_report_parts(done), is_failed=is_failed)


def _lag_of_tables(options: LagOptions) -> Result:
    check_installed(("pyarrow", "numpy"))
    from roquet.cli.spark_jobs.table_lag_output import lag_of_tables

    storage = parse_pairs(options.storage_option, "--storage-option")
    retention_ms = parse_millis(options.retention, "--retention") if options.retention else None
    return lag_of_tables(options.table or (), storage, retention_ms)


def _report_parts(done: "LagReport") -> Iterator[Any]:
    from roquet.lake.lag.lag_page import verdict

    if done.standings:
        yield _table(done)
    yield verdict(done)
    page = done.page if "://" in done.page else Path(done.page).as_uri()
    yield f"{output.quantity(done.samples, 'sample')}; {page}"


def _table(done: "LagReport") -> "Table":
    from roquet.lake.lag.lag_page import is_late, time_text

    shown = output.table(
        "group", "topic", "is", "caught up", "cut off", "lag", "come/s", "handled/s", numbers=5
    )
    for one in done.standings:
        outlook = one.outlook
        shown.add_row(
            one.group,
            one.topic,
            output.styled_text(outlook.state.words, BAD if is_late(one) else ""),
            time_text(done.at_ms, outlook.caught_up_s),
            time_text(done.at_ms, outlook.cut_off_s, "-"),
            f"{outlook.lag:,}",
            f"{outlook.come:,.1f}",
            f"{outlook.handled:,.1f}",
        )
    return shown


@contextmanager
def _progress_bar(*, quiet: bool) -> "Iterator[Callable[[LagProgress], None]]":
    """Show a bar on stderr: samples, and the lag of all groups together."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from roquet.cli.terminal.printable_console import PrintableColumn

    bar = Bar(
        PrintableColumn("samples"),
        BarColumn(),
        MofNCompleteColumn(),
        PrintableColumn("{task.fields[lag]:,} behind{task.fields[silent]}"),
        TimeRemainingColumn(),
        console=output.console(to_stderr=True, quiet=quiet),
    )
    with live_bar(bar):
        task = bar.add_task("samples", total=None, lag=0, silent="")

        def tell(done: "LagProgress") -> None:
            silent = f"; no answer: {', '.join(done.silent)}" if done.silent else ""
            bar.update(task, completed=done.samples, total=done.wanted, lag=done.lag, silent=silent)

        yield tell
