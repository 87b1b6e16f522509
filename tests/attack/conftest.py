"""Attacks: bad input, failing disks and hostile text at their worst; `make attack`.

`ATTACK=short` takes seconds to a minute a file and runs in CI; `ATTACK=full` takes minutes and
tries everything.
"""

import os
from collections.abc import Generator
from typing import Any, Literal

import pytest

Depth = Literal["short", "full"]


@pytest.fixture(scope="session")
def depth() -> Depth:
    """How much is tried: a sample that finds the kind of fault, or every case."""
    return "full" if os.environ.get("ATTACK", "short") == "full" else "short"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables whose rows tests recorded: a name, and a value for each column."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for report in terminalreporter.getreports("passed"):
        for title, row in getattr(report, "user_properties", ()):
            if isinstance(row, dict) and report.when == "call":
                tables.setdefault(title, []).append(row)
    for title, rows in tables.items():
        terminalreporter.section(title)
        name, *columns = rows[0]
        sums = {column: sum(row.get(column, 0) for row in rows) for column in columns}
        terminalreporter.write_line(f"{name:>12}" + "".join(f"{c:>10}" for c in columns))
        for row in [*rows, {name: "all", **sums}]:
            cells = "".join(f"{row.get(column, 0):10,}" for column in columns)
            terminalreporter.write_line(f"{row[name]:>12}{cells}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make what tests of hostile text have logged fit to be sent to the process that shows it."""
    report = yield
    report.sections = [(name, _encodable(text)) for name, text in report.sections]
    return report


def _encodable(text: str) -> str:
    """Text without halves of surrogate pairs, which UTF-8 does not have."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
