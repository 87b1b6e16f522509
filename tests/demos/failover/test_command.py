import json
import logging
from pathlib import Path

import pytest
from tests.demos.failover.test_report import GOOD
from typer.testing import CliRunner

from demos.failover import command
from demos.failover.__main__ import app
from demos.failover.command import summary
from roquet.model.errors import UsageError


def test_missing_packages_are_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "NEEDED", ("sys", "a_package_that_nobody_has"))
    with pytest.raises(UsageError, match="a_package_that_nobody_has"):
        command.failover_demo()


def test_spark_and_java_are_not_needed() -> None:
    assert "pyspark" not in command.NEEDED


@pytest.mark.parametrize(("succeeded", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_everything_added_up(
    monkeypatch: pytest.MonkeyPatch, succeeded: bool, code: int
) -> None:
    seen: list[tuple[Path, int, Path, bool]] = []

    def run(directory: Path, rate: int, html: Path, *, json: bool) -> bool:
        assert directory.is_dir()
        seen.append((directory, rate, html, json))
        return succeeded

    monkeypatch.setattr(command, "run_failover", run)
    result = CliRunner().invoke(app, ["--rate", "70", "--html", "x.html", "--json"])
    assert result.exit_code == code
    ((directory, rate, html, is_json),) = seen
    assert (rate, html, is_json) == (70, Path("x.html"), True)
    assert not directory.exists(), "nothing is left behind"


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    with pytest.raises(UsageError, match="is not empty"):
        command.failover_demo(keep=tmp_path)


def test_a_page_in_a_directory_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no directory"):
        command.failover_demo(html=tmp_path / "gone" / "page.html")


@pytest.mark.parametrize("rate", ["9", "3001", "many"])
def test_a_rate_that_the_file_does_not_last_for_is_refused(rate: str) -> None:
    assert CliRunner().invoke(app, ["--rate", rate]).exit_code == 2


def test_the_counts_are_there_as_json() -> None:
    fields = json.loads(json.dumps(summary(GOOD, "all well", Path("x.html"))))
    assert (fields["verdict"], fields["page"], fields["repeated"]) == ("all well", "x.html", 1)
    assert fields["table"]["rows"] == 2
    assert [fault["pause_ms"] for fault in fields["faults"]] == [250]


def test_what_the_producer_logs_of_faults_is_not_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with command.log_to(tmp_path / "logs" / "producer.log"):
        logging.getLogger("roquet.client").warning("the master is away\x1b[2J")
    logged = (tmp_path / "logs" / "producer.log").read_text("utf-8")
    assert r"the master is away\x1b[2J" in logged
    assert "away" not in capsys.readouterr().err
