"""Progress of a job: a bar on a terminal, a line each minute elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TimeElapsedColumn,
)

from roquet.cli.terminal import output
from roquet.cli.terminal.printable_console import PrintableColumn
from roquet.net.clock import SYSTEM_CLOCK, Clock

LINE_INTERVAL_MS: Final = 60_000
"""Least time between two lines."""

ShowProgress = Callable[[int, int], None]
"""Called with the numbers of rows that are done and that are left."""


@contextmanager
def live_bar(shown: Progress) -> Iterator[None]:
    """Show a bar; if an error ends it before it has counted anything, it is erased."""
    with shown:
        try:
            yield
        except BaseException:
            shown.live.transient = not any(task.completed for task in shown.tasks)
            raise


@contextmanager
def progress_bar(title: str, *, quiet: bool, left: str = "behind") -> Iterator[ShowProgress]:
    """Show on stderr: rows done, rows per second, and the number left, named by `left`."""
    console = output.console(to_stderr=True)
    if quiet or not console.is_terminal:
        yield _nothing if quiet else progress_lines(title, left)
        return
    shown = Progress(
        PrintableColumn("{task.description}"),
        BarColumn(),
        PrintableColumn("{task.completed:,.0f} rows"),
        PrintableColumn("{task.fields[rate]}"),
        PrintableColumn("{task.fields[lag]:,} " + left),
        TimeElapsedColumn(),
        console=console,
    )
    with live_bar(shown):
        task = shown.add_task(title, total=None, rate="", lag=0)

        def show(rows: int, lag: int) -> None:
            speed = shown.tasks[0].speed
            rate = f"{speed:,.0f} rows/s" if speed else ""
            shown.update(task, completed=rows, total=rows + lag, rate=rate, lag=lag)

        yield show


@contextmanager
def counted_bar(
    title: str, *columns: ProgressColumn, quiet: bool, **fields: Any
) -> Iterator[Callable[..., None]]:
    """Show on stderr how many of all are done; `fields` are those of more columns.

    Yields the function that updates it.
    """
    bar = Progress(
        PrintableColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        console=output.console(to_stderr=True, quiet=quiet),
    )
    with live_bar(bar):
        yield partial(bar.update, bar.add_task(title, total=None, **fields))


def progress_lines(title: str, left: str, clock: Clock = SYSTEM_CLOCK) -> ShowProgress:
    """Print a line when the numbers have changed, at most one each minute."""
    printed: list[tuple[int, int]] = []
    next_ms = clock.monotonic_ms()

    def show(rows: int, lag: int) -> None:
        nonlocal next_ms
        if clock.monotonic_ms() >= next_ms and printed != [(rows, lag)]:
            output.echo(f"{title}: {rows:,} rows, {lag:,} {left}", err=True)
            printed[:] = [(rows, lag)]
            next_ms = clock.monotonic_ms() + LINE_INTERVAL_MS

    return show


def _nothing(*_: int) -> None:
    pass
