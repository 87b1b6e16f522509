"""roquet spark lag: runs the job, shows its progress, and prints its forecast."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roquet.cli.terminal import output
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.progress import live_bar

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.lake.lag.lag_job import LagProgress, Params
    from roquet.lake.lag.lag_summary import LagReport

BAD: Final = "bold red"


def run(params: "Params", ended: Callable[[], bool], *, as_json: bool) -> None:
    """Run the job and print its forecast; ends with code 1 when a group will not catch up."""
    from roquet.lake.lag import lag_job
    from roquet.lake.lag.lag_page import is_late

    with _progress_bar(quiet=as_json) as tell:
        done = lag_job.run(params, tell, ended)
    if as_json:
        output.echo_json([done])
    else:
        _print_result(done)
    if any(is_late(one) for one in done.standings):
        sys.exit(FAILED)


def _print_result(done: "LagReport") -> None:
    from roquet.lake.lag.lag_page import verdict

    if done.standings:
        output.console().print(_table(done))
    output.echo(verdict(done))
    is_url = "://" in done.page
    page = done.page if is_url else Path(done.page).as_uri()
    output.echo(f"{output.quantity(done.samples, 'sample')}; {page}")


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
