"""Whole programs that pages show run beside a broker and print what the page says.

A block of Python that calls `asyncio.run`, or is a test by its first line (`# test_orders.py`), is
a program, and so is one that says to run it beside `roquet dev`. The text block after it, if no
heading lies between, is what it prints: `…` stands for anything within a line.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.docs, pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted((ROOT / "docs").rglob("*.md"))

PROGRAM: Final = re.compile(
    r"^```python\n(?P<text>.*?)^```\n(?P<after>.*?)(?=^#|^```python|\Z)", re.DOTALL | re.MULTILINE
)
OUTPUT: Final = re.compile(r"^```(?:text)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUNS: Final = re.compile(r"^asyncio\.run\(|^# run beside `roquet dev`", re.MULTILINE)
TEST: Final = re.compile(r"# (test_\w+\.py)\n")

THEIRS: Final = re.compile(r"^(from|import) (rocketmq|aiokafka|celery|pika)\b", re.MULTILINE)
"""Programs for other libraries: they are shown beside ours, and need servers of their own."""

ELSEWHERE: Final = {
    "from-mqadmin": "needs a group and messages that its commands made",
    "operating": "needs the cluster that the page has set up",
    "shutdown": "runs until it gets a signal: tests/client/connection/test_stop_signals.py",
    "priorities": "needs the topic that the page creates first",
    "tracing": "one of them runs until it gets a signal: tests/conversation/test_spans.py",
    "wheel": "runs until it gets a signal: test_commands.py has the README's",
}
"""Pages whose programs do not run by themselves, and what runs or holds them."""

RUN_MAX_S: Final = 240
"""A program that takes longer hangs."""


class Program(NamedTuple):
    """A program of a page, and what it prints, if the page says that."""

    page: str
    line: int
    text: str
    output: str | None


def programs() -> Iterator[Program]:
    """The programs that are run here."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for block in PROGRAM.finditer(text):
            program = block["text"]
            is_whole = RUNS.search(program) or TEST.match(program)
            if is_whole and not THEIRS.search(program) and page.stem not in ELSEWHERE:
                output = OUTPUT.search(block["after"])
                line = text[: block.start()].count("\n") + 2
                yield Program(page.stem, line, program, output and output[1])


def run(folder: Path, arguments: Sequence[str], address: str) -> str:
    """Run Python in a folder; what it printed. It ends well."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON"))},
            "NAMESRV_ADDR": address,
            "PYTHONPATH": str(ROOT / "src"),
            "XDG_STATE_HOME": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def pattern(output: str) -> "re.Pattern[str]":
    """What a page says a program prints, with `…` for anything within a line."""
    return re.compile("[^\n]*".join(map(re.escape, output.strip().split("…"))))


SHOWN: Final = list(programs())


@pytest.mark.parametrize("program", SHOWN, ids=lambda shown: f"{shown.page}-{shown.line}")
def test_a_program_of_a_page_prints_what_the_page_says(program: Program, tmp_path: Path) -> None:
    test = TEST.match(program.text)
    name = test[1] if test else "program.py"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    as_test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    arguments = as_test if test else ["-W", "error", name]
    with BlockingCluster(recall_message=True) as cluster:
        text = program.text.replace("127.0.0.1:9876", cluster.namesrv_addr)
        (tmp_path / name).write_text(text)
        printed = run(tmp_path, arguments, cluster.namesrv_addr)
    if program.output is not None and not test:
        assert pattern(program.output).fullmatch(printed.strip()), printed


def test_pages_show_programs() -> None:
    assert len(SHOWN) > 15
