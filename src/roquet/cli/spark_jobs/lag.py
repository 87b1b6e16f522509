"""roquet spark lag: samples and forecasts the lag of groups; with --table, the lag of archives."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.progress import TimeRemainingColumn

from roquet.cli.command_options import As, argument, option
from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    StorageOptions,
    check_installed,
    millis,
    names,
    parse_pairs,
    stop_event,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.printable_console import PrintableColumn
from roquet.cli.terminal.progress import counted_bar
from roquet.model.errors import UsageError
from roquet.model.settings import parse_millis
from roquet.net.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from roquet.lake.lag.lag_job import LagProgress
    from roquet.lake.lag.lag_summary import LagReport
    from roquet.lake.lag.table_lag import TableLag

BAD: Final = "bold red"


class LagOptions(StorageOptions):
    """Options of `roquet spark lag`."""

    directory: str | None = argument(
        "Of the samples and their page: a directory or s3://BUCKET/PATH.",
        gives=As("target"),
        metavar="[DIR]",
    )
    table: list[str] | None = option(
        "Only the lag that its archive has noted; repeatable.", metavar="TABLE"
    )
    every: str = option(
        "How often to sample.",
        default="10s",
        gives=As("every_ms", millis("--every")),
        metavar="TIME",
    )
    how_long: str = option(
        "How long to watch; rates are of it.",
        "--for",
        default="10m",
        gives=As("for_ms", millis("--for")),
        metavar="TIME",
    )
    groups: str | None = option("Only these, comma separated; else all.", gives=As("groups", names))
    retention: str | None = option(
        "For brokers that do not report theirs: 48h.",
        gives=As("retention_ms", millis("--retention")),
        metavar="TIME",
    )


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
    behind = PrintableColumn("{task.fields[lag]:,} behind{task.fields[silent]}")
    columns = (behind, TimeRemainingColumn())
    with counted_bar("samples", *columns, quiet=as_json, lag=0, silent="") as update:

        def tell(done: "LagProgress") -> None:
            silent = f"; no answer: {', '.join(done.silent)}" if done.silent else ""
            update(completed=done.samples, total=done.wanted, lag=done.lag, silent=silent)

        done = lag_job.run(params, tell, stop_event().is_set)
    is_failed = any(is_late(one) for one in done.standings)
    return Result(json=[done], text=_report_parts(done), is_failed=is_failed)


def _report_parts(done: "LagReport") -> Iterator[Any]:
    from roquet.lake.lag.lag_page import verdict

    if done.standings:
        yield _table(done)
    yield verdict(done)
    page = done.page if "://" in done.page else Path(done.page).as_uri()
    yield f"{output.quantity(done.samples, 'sample')}; {page}"


def _table(done: "LagReport") -> "output.Table":
    from roquet.lake.lag.lag_page import is_late, time_text

    columns = ("group", "topic", "is", "caught up", "cut off", "lag", "come/s", "handled/s")
    rows = (
        (
            one.group,
            one.topic,
            output.styled_text(one.outlook.state.words, BAD if is_late(one) else ""),
            time_text(done.at_ms, one.outlook.caught_up_s),
            time_text(done.at_ms, one.outlook.cut_off_s, "-"),
            one.outlook.lag,
            f"{one.outlook.come:,.1f}",
            f"{one.outlook.handled:,.1f}",
        )
        for one in done.standings
    )
    return output.table(columns, rows, numbers=5)


def _lag_of_tables(options: LagOptions) -> Result:
    """The lag of each table; a failure when one of them has an alert."""
    check_installed(("pyarrow", "numpy"), "arrow")
    from roquet.lake.lag.table_lag import table_lag
    from roquet.lake.status import read_statuses

    storage = parse_pairs(options.storage_option, "--storage-option")
    retention_ms = parse_millis(options.retention, "--retention") if options.retention else None
    now_ms = SYSTEM_CLOCK.now_ms()
    default_s = None if retention_ms is None else retention_ms / 1000
    lags = [
        table_lag(table, status, now_ms, default_s)
        for table in options.table or ()
        for status in read_statuses(table, storage if "://" in table else {})
    ]
    return Result(
        json=({**msgspec.to_builtins(lag), "state": lag.state.words} for lag in lags),
        text=_table_parts(lags),
        is_failed=any(lag.alert for lag in lags),
    )


def _table_parts(lags: "Sequence[TableLag]") -> Iterator[Any]:
    columns = ("table", "topic", "job", "commit", "committed", "overtaken in", "lag", "seconds")
    rows = (
        (
            lag.table,
            lag.topic,
            lag.job,
            str(lag.number),
            output.time_text(lag.committed_ms),
            output.styled_text(duration_text(lag.overtaken_s), BAD if lag.alert else ""),
            lag.lag,
            f"{lag.lag_s:,.0f}",
        )
        for lag in lags
    )
    yield output.table(columns, rows, numbers=6)
    for lag in lags:
        for broker in lag.brokers_away:
            yield f"{lag.table}: broker {broker} did not answer; what waits there is unknown"
        if lag.alert:
            yield f"{lag.table}: {lag.alert}"


def duration_text(seconds: float | None) -> str:
    """`3 h 20 min`, `2 d 4 h`; a dash for None."""
    if seconds is None:
        return "-"
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
