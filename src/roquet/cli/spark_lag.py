"""roquet spark lag: its bar, and what it says at the end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roquet.cli import output
from roquet.cli.bars import on_screen
from roquet.cli.exit_codes import FAILED

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.spark.jobs.lag import Params, Progress
    from roquet.spark.jobs.standings import Done

BAD: Final = "bold red"


def run(params: "Params", ended: Callable[[], bool], *, as_json: bool) -> None:
    """Watch, tell, and end with code 1 when a group will not catch up."""
    from roquet.spark.jobs import lag
    from roquet.spark.jobs.lag_page import is_late

    with _shown(quiet=as_json) as tell:
        done = lag.run(params, tell, ended)
    if as_json:
        output.echo_json([done])
    else:
        _tell(done)
    if any(is_late(one) for one in done.standings):
        sys.exit(FAILED)


def _tell(done: "Done") -> None:
    from roquet.spark.jobs.lag_page import verdict

    if done.standings:
        output.console().print(_table(done))
    output.echo(verdict(done))
    output.echo(f"{output.counted(done.samples, 'sample')}; {Path(done.page).as_uri()}")


def _table(done: "Done") -> "Table":
    from roquet.spark.jobs.lag_page import is_late, moment

    shown = output.table(
        "group", "topic", "is", "caught up", "cut off", "lag", "come/s", "handled/s", numbers=5
    )
    for one in done.standings:
        outlook = one.outlook
        shown.add_row(
            one.group,
            one.topic,
            output.styled(outlook.state.words, BAD if is_late(one) else ""),
            moment(done.at_ms, outlook.caught_up_s),
            moment(done.at_ms, outlook.cut_off_s, "-"),
            f"{outlook.lag:,}",
            f"{outlook.come:,.1f}",
            f"{outlook.handled:,.1f}",
        )
    return shown


@contextmanager
def _shown(*, quiet: bool) -> "Iterator[Callable[[Progress], None]]":
    """A bar on stderr: samples, and how many messages wait for all groups together."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from roquet.cli.printable_console import PrintableColumn

    bar = Bar(
        PrintableColumn("samples"),
        BarColumn(),
        MofNCompleteColumn(),
        PrintableColumn("{task.fields[lag]:,} behind{task.fields[silent]}"),
        TimeRemainingColumn(),
        console=output.console(apart=True, quiet=quiet),
    )
    with on_screen(bar):
        task = bar.add_task("samples", total=None, lag=0, silent="")

        def tell(done: "Progress") -> None:
            silent = f"; no answer: {', '.join(done.silent)}" if done.silent else ""
            bar.update(task, completed=done.samples, total=done.wanted, lag=done.lag, silent=silent)

        yield tell
