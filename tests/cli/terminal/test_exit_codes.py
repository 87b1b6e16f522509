"""The table of exit codes in the documents: each of its examples ends as it says."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roquet.cli import main
from roquet.cli.terminal import exit_codes
from roquet.client import blocking
from roquet.testing.cluster import BlockingCluster

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "operating.md"


def rows() -> dict[int, list[str]]:
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {int(code): re.findall(r"`(roquet [^`]+)`", examples) for code, examples in rows}


CASES = [(line, code) for code, examples in rows().items() for line in examples]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster() as cluster:
        with blocking.Producer(cluster.namesrv_addr) as producer:
            producer.send("orders", b"x")
        made = ["group", "create", "disabled", "--no-enabled", "-n", cluster.namesrv_addr]
        assert CliRunner().invoke(main.app, made).exit_code == 0
        yield cluster.namesrv_addr


def test_the_table_has_every_code() -> None:
    known = [exit_codes.FAILED, exit_codes.WRONG_USE, exit_codes.INTERRUPTED]
    assert [*rows()] == [0, *known]
    assert len(CASES) > 10


@pytest.mark.parametrize(("line", "code"), CASES)
def test_a_command_ends_with_the_documented_exit_code(
    line: str, code: int, namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "damaged" / "commitlog").mkdir(parents=True)
    (tmp_path / "damaged" / "commitlog" / f"{0:020}").write_bytes(b"no record" * 100)
    (tmp_path / "damaged" / "config").mkdir()
    (tmp_path / "damaged" / "config" / "topics.json").write_bytes(b"{")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with CliRunner().isolation() as (_, _, output):
        ended = 0
        try:
            main.main()
        except SystemExit as error:
            ended = int(error.code or 0)
    assert ended == code, output.getvalue().decode()
