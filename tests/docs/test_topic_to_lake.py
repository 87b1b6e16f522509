"""The page From topic to lake does what it says, for somebody who has nothing but its text.

Its commands are typed into one shell, in an empty home, with the packages that the page installs
and no variable of this machine. Each prints what the page shows.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import exact_environment
from harness.ports import free_port

pytestmark = [pytest.mark.docs, pytest.mark.timeout(900)]

PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "topic-to-lake.md"

INSTALLED: Final = re.compile(r"python3 -m venv |\. venv/|pip install ")
"""Commands that the environment of the test stands for."""

SERVER: Final = re.compile(r"(roquet dev|python -m moto\.server) .*&$")
"""Servers that are ready before the next line is typed."""

KILLED: Final = re.compile(r"timeout --signal KILL ")
"""A command that ends as it likes."""

READY_S: Final = 60

SIZE: Final = re.compile(r"[0-9.,]+ [KM]iB of files")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d+ d \d+ h")
END: Final = re.compile(r"^the command ended with (\d+)$")


class Step(NamedTuple):
    """A command, and the lines that the page shows below it."""

    command: str
    shown: list[str]


def steps(text: str) -> list[Step]:
    """The commands of a page's blocks."""
    found: list[Step] = []
    for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            elif line.startswith("> "):
                found[-1] = Step(f"{found[-1].command}\n{line[2:]}", [])
            else:
                found[-1].shown.append(line)
    return found


STEPS: Final = steps(PAGE.read_text("utf-8"))


class Shell:
    """A shell that is typed into; what it prints comes line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, command: str) -> list[str]:
        """Run a command; its output, and that of servers meanwhile. It has to end well."""
        self._type(f"{command}\nended=$?; echo; echo the command ended with $ended\n")
        lines = list[str]()
        for line in self._lines():
            if ended := END.match(line):
                assert ended[1] == "0" or KILLED.match(command), (command, lines)
                return lines
            lines.append(line)
        raise AssertionError((command, lines))

    def start(self, command: str, port: int) -> None:
        """Start a server in the background, and wait until it takes connections at a port."""
        self._type(f"{command}\n")
        deadline = time.perf_counter() + READY_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                assert time.perf_counter() < deadline, command
                time.sleep(0.1)
            else:
                return

    def _type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.rstrip("\n")


@contextmanager
def shell(home: Path, programs: Path) -> Iterator[Shell]:
    """A shell in an empty home; whatever was started in it ends with the block."""
    home.mkdir()
    environment = {"HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile"],
        cwd=home,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Shell(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def install_line() -> str:
    """What the page installs, as `exact_environment` reads it."""
    (command,) = (step.command for step in STEPS if step.command.startswith("pip install "))
    return " ".join(shlex.split(command)[2:])


def has(lines: list[str], shown: list[str]) -> bool:
    """Whether lines are printed in the order shown, but for spaces, times and what is between."""
    printed = iter(plain(line) for line in lines)
    return all(plain(line) in printed for line in shown)


def plain(line: str) -> str:
    """A line whose times and sizes of files are all the same, with single spaces."""
    return " ".join(SIZE.sub("SIZE of files", TIME.sub("TIME", line)).split())


def test_what_a_page_shows_is_found_between_other_lines() -> None:
    shown = ["a  2026-01-31 12:00:00  2 d 23 h", "b"]
    assert has(["server", "a 2026-11-24 15:00:07 1 d 0 h", "noise", "b"], shown)
    assert not has(["b", "a 2026-11-24 15:00:07 1 d 0 h"], shown)


def test_every_step_of_the_page_does_what_it_shows(tmp_path: Path, wheel: Path) -> None:
    programs = exact_environment.make(tmp_path / "venv", install_line(), wheel)
    namesrv, broker, store = (free_port() for _ in range(3))
    with shell(tmp_path / "home", programs) as typed:
        typed.run(f"export NAMESRV_ADDR=127.0.0.1:{namesrv} SPARK_LOCAL_IP=127.0.0.1")
        for command, shown in STEPS:
            own = re.sub(r"\b5000(?= 2>| AWS)", str(store), command)
            if command.startswith("roquet dev"):
                ports = f" --namesrv-port {namesrv} --port {broker} &"
                typed.start(own.replace(" &", ports), broker)
            elif SERVER.match(command):
                typed.start(own, store)
            elif not INSTALLED.match(command):
                lines = typed.run(own)
                assert has(lines, shown), (command, lines)
