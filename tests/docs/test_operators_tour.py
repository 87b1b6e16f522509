"""The operator's tour: its commands, typed into one shell as they stand on four pages.

It begins with an open cluster, and ends with one that checks users, speaks TLS, is watched and was
restored from a backup. Each command ends as the page says, within a minute.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from harness.ports import free_port
from roquet.net.clock import SYSTEM_CLOCK

pytestmark = [pytest.mark.docs, pytest.mark.timeout(600)]

HOWTO: Final = Path(__file__).parents[2] / "docs" / "howto"
PAGES: Final = [HOWTO / f"{name}.md" for name in ("observe", "secure", "dashboard", "backup")]

STEP_S_MAX: Final = 60
"""No step of the tour takes longer."""

SHOWN: Final = {
    "roquet health": "ready",
    "grep roquet_consumer_lag_messages": r'consumer_group="billing".*topic="orders"',
    "grep roquet_process_up": r'process="broker-b"} 1\.0',
    "roquet topic ls  ": "without a word: does it speak TLS alone",
    "roquet produce orders -m unsigned": "username cannot be null",
    "roquet acl why shop Pub": "allowed: ",
    "roquet acl why shop Sub": "refused: ",
    "env -u": "username cannot be null",
    "curl -s --cacert": "401",
    "roquet restore backups/broker-a --check": "whole",
    "roquet support bundle": r"roquet-support\.tar\.gz: ",
}
"""What a command has to say, by how it begins."""


class Step(NamedTuple):
    """A command of the tour."""

    page: str
    text: str
    code: int
    """The exit code that the page names; else 0."""


def steps(page: Path) -> Iterator[Step]:
    """The commands of a page's part of the tour, each with its here-document."""
    _, _, tour = page.read_text("utf-8").partition("\n## Tour, part ")
    for block in re.findall(r"^```sh\n(.*?)^```", tour, re.MULTILINE | re.DOTALL):
        for text in re.findall(r"^.*<<END\n(?:.*\n)*?END$|^.+$", block, re.MULTILINE):
            code = re.search(r"# exit code (\d)", text)
            yield Step(page.name, text, int(code[1]) if code else 0)


TOUR: Final = [step for page in PAGES for step in steps(page)]


class Shell:
    """A shell that runs one command after the other, with what it started in the background."""

    def __init__(self, directory: Path) -> None:
        broker, self._metrics = free_port(10, 11, 20), free_port(3)
        names, self._dashboard = broker + 20, free_port()
        self._serve = f"roquet serve --port {broker} --namesrv-port {names}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROQUET_", "ROCKETMQ_"))}
        programs = Path(sys.executable).parent
        self._log = directory.with_name("shell.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash"],
                cwd=directory,
                env={
                    **kept,
                    "PATH": f"{programs}:{os.environ['PATH']}",
                    "NAMESRV_ADDR": f"127.0.0.1:{names}",
                },
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, command: str) -> tuple[int, str]:
        """Run a command on ports of our own; its exit code and what it, and others, have said."""
        command = command.replace("roquet serve", self._serve).replace("5557", str(self._metrics))
        command = command.replace("8082", str(self._dashboard))
        command = re.sub("^roquet health", f"roquet health 127.0.0.1:{self._metrics}", command)
        begin = self._log.stat().st_size
        assert self._process.stdin is not None
        self._process.stdin.write(f'{{ {command}\n}} </dev/null\necho "ended: $?"\n'.encode())
        self._process.stdin.flush()
        give_up_ms = SYSTEM_CLOCK.monotonic_ms() + 2_000 * STEP_S_MAX
        while SYSTEM_CLOCK.monotonic_ms() < give_up_ms:
            said = self._log.read_bytes()[begin:].decode("utf-8", "replace")
            if ended := re.search(r"ended: (\d+)\n", said):
                return int(ended[1]), said
            time.sleep(0.05)
        return -1, f"{said}\n(it did not end)"

    def close(self) -> None:
        """End the shell, and whatever it has in the background."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"kill $(jobs -p); wait; exit\n")
            self._process.stdin.close()
        try:
            self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    directory = tmp_path / "tour"
    directory.mkdir()
    shell = Shell(directory)
    yield shell
    shell.close()


def test_the_tour_leads_from_an_open_cluster_to_a_secured_one_that_survives_a_loss(
    shell: Shell, tmp_path: Path
) -> None:
    for step in TOUR:
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        code, said = shell.run(step.text)
        took_s = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
        shown = f"{step.page}: $ {step.text}\n{said}\nafter {took_s:.1f} s"
        assert code == step.code, shown
        assert "Traceback" not in said, shown
        assert took_s < STEP_S_MAX, shown
        for begin, words in SHOWN.items():
            if step.text.startswith(begin):
                assert re.search(words, said), shown
    bodies = (tmp_path / "tour" / "read-again.txt").read_text()
    assert "42 EUR" in bodies
    assert "43 EUR" in bodies
    secrets = [path.read_text().strip() for path in (tmp_path / "tour").glob("*.secret")]
    logs = [path.read_text() for path in (tmp_path / "tour" / "roquet-data" / "logs").iterdir()]
    assert len(secrets) == 3
    assert not any(secret in log for secret in secrets for log in logs)


def test_the_tour_has_commands_on_all_four_pages() -> None:
    assert {step.page for step in TOUR} == {page.name for page in PAGES}
    assert len(TOUR) > 40
    assert all(any(step.text.startswith(begin) for step in TOUR) for begin in SHOWN)
