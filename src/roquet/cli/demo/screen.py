"""What the demo shows in the terminal while it runs, and its verdict at the end."""

from collections.abc import Iterator, Mapping, Sequence
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

from roquet.cli.demo.facts import DemoFacts, checks, failed, verdict
from roquet.cli.terminal.printable_console import PrintableColumn, PrintableConsole

STEP: Final = 1_000
"""Messages between two moves of a bar: to move it costs more than to send one."""


class DemoProgressBar:
    """How far something is."""

    def __init__(self, progress: Progress, task: TaskID, total: int) -> None:
        self._progress = progress
        self._task = task
        self._total = total
        self._shown = 0

    def to(self, done: int) -> None:
        """So far now."""
        if done - self._shown >= STEP or done >= self._total:
            self._shown = done
            self._progress.update(self._task, completed=done)


class RateColumn(ProgressColumn):
    """How quickly it goes."""

    def render(self, task: Task) -> Text:
        """So many a second."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


class Screen:
    """A terminal: steps, bars, owners, the verdict."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or PrintableConsole(soft_wrap=True)

    def step(self, text: str) -> None:
        """Something begins, or has happened."""
        self._console.print(text)

    def owners(self, owners: Mapping[str, Sequence[str]]) -> None:
        """Who owns which queue."""
        for name, queues in sorted(owners.items()):
            self.step(f"    {name:<12} {'  '.join(queues)}")

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[DemoProgressBar]:
        """A bar that moves, above which other lines may appear."""
        columns = (
            PrintableColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            RateColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            yield DemoProgressBar(progress, progress.add_task(text, total=total), total)

    def verdict(self, facts: DemoFacts) -> None:
        """Every check, and what became of it."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        table.add_column("wanted", justify="right")
        table.add_column("found", justify="right")
        table.add_column("")
        for check in checks(facts):
            mark = Text("ok", "green") if check.kept else Text("WRONG", "bold red")
            table.add_row(check.name, f"{check.wanted:,}", f"{check.found:,}", mark)
        table.add_row("handled a second time", "any", f"{facts.twice:,}", "")
        self._console.print()
        self._console.print(table)
        self._console.print()
        style = "bold red" if failed(facts) else "bold green"
        self._console.print(verdict(facts), style=style)
