"""Screen: the demo's steps and progress bars in a terminal, and its verdict at the end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from roquet.cli.demo.facts import DemoCheck, DemoFacts, checks, failed, verdict
from roquet.cli.terminal.printable_console import PrintableColumn, PrintableConsole

STEP: Final = 1_000
"""Messages between two updates of a bar: an update costs more than a send."""

ShowStatus = Callable[[str], None]
"""Called with the text of a line that changes."""


class DemoProgressBar:
    """A progress bar that is not updated for every message."""

    def __init__(self, progress: Progress, task: TaskID, total: int) -> None:
        self._progress = progress
        self._task = task
        self._total = total
        self._shown = 0

    def to(self, done: int) -> None:
        """Show the number that is done."""
        if done - self._shown >= STEP or done >= self._total:
            self._shown = done
            self._progress.update(self._task, completed=done)


class RateColumn(ProgressColumn):
    """A column with the speed."""

    def render(self, task: Task) -> Text:
        """Render messages per second."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


class Screen:
    """The terminal of the demo."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or PrintableConsole(soft_wrap=True)

    def step(self, text: str) -> None:
        """Print a step."""
        self._console.print(text)

    def owners(self, owners: Mapping[str, Sequence[str]]) -> None:
        """Print each member's queues."""
        for name, queues in sorted(owners.items()):
            self.step(f"    {name:<12} {'  '.join(queues)}")

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[DemoProgressBar]:
        """Show a progress bar; other lines may be printed above it."""
        columns = (
            PrintableColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            RateColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            yield DemoProgressBar(progress, progress.add_task(text, total=total), total)

    @contextmanager
    def status(self) -> Iterator[ShowStatus]:
        """Show one line that changes, on a terminal alone; other lines are printed above it."""
        columns = (PrintableColumn("  {task.description}"), TimeElapsedColumn())
        is_hidden = not self._console.is_terminal
        with Progress(
            *columns, console=self._console, transient=True, disable=is_hidden
        ) as progress:
            task = progress.add_task("", total=None)
            yield lambda text: progress.update(task, description=text)

    def verdict(self, facts: DemoFacts) -> None:
        """Print every check and its result."""
        twice = "handled a second time", facts.twice
        self.results(checks(facts), [twice], verdict(facts), succeeded=not failed(checks(facts)))

    def results(
        self,
        checked: Sequence[DemoCheck],
        counts: Sequence[tuple[str, int]],
        text: str,
        *,
        succeeded: bool,
    ) -> None:
        """Print checks, counts that may have any value, and the verdict's text."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        table.add_column("wanted", justify="right")
        table.add_column("found", justify="right")
        table.add_column("")
        for check in checked:
            mark = Text("ok", "green") if check.holds else Text("WRONG", "bold red")
            table.add_row(check.name, f"{check.expected:,}", f"{check.actual:,}", mark)
        for name, count in counts:
            table.add_row(name, "any", f"{count:,}", "")
        self._console.print()
        self._console.print(table)
        self._console.print()
        self._console.print(text, style="bold green" if succeeded else "bold red")
