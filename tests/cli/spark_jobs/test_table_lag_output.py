"""roquet spark lag --table: what archives have noted, as a table or as JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.cli.spark_jobs.table_lag_output import duration_text
from roquet.lake.status import JobStatus, LagPoint, write_status
from roquet.model.errors import ConfigError, UsageError
from roquet.net.clock import SYSTEM_CLOCK

run = CliRunner().invoke
HOUR_MS = 3_600_000


def note(root: Path, *, hours_ago: float = 1, away: tuple[str, ...] = ()) -> None:
    at_ms = SYSTEM_CLOCK.now_ms() - int(hours_ago * HOUR_MS)
    point = LagPoint(at_ms=at_ms, committed=5, waiting=1235, oldest_ms=at_ms - 90_000)
    status = JobStatus(
        job="archive",
        topic="orders",
        number=7,
        committed_ms=at_ms,
        offsets={"orders": {"broker-a": {"0": 5}}},
        points=(point,),
        retention_s=48 * 3600,
        brokers_away=away,
    )
    write_status(root, status)


def test_the_lag_of_tables_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")  # the path is long
    note(tmp_path)
    result = run(app, ["spark", "lag", "--table", str(tmp_path)])
    assert result.exit_code == 0, result.output
    head, row = result.stdout.splitlines()
    assert head.split()[:5] == ["table", "topic", "job", "commit", "committed"]
    words = row.split()
    assert words[1:4] == ["orders", "archive", "7"]
    assert words[-6:] == ["1", "d", "22", "h", "1,235", "90"]


def test_an_archive_that_is_overtaken_is_an_alert(tmp_path: Path) -> None:
    note(tmp_path, hours_ago=47)
    result = run(app, ["spark", "lag", "--table", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        f"{tmp_path}: retention will overtake it unless the archive job runs"
    )


def test_a_broker_that_did_not_answer_is_named(tmp_path: Path) -> None:
    note(tmp_path, away=("broker-b",))
    result = run(app, ["spark", "lag", "--table", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        f"{tmp_path}: broker broker-b did not answer; what waits there is unknown"
    )


def test_schedulers_read_json(tmp_path: Path) -> None:
    note(tmp_path)
    result = run(app, ["spark", "lag", "--table", str(tmp_path), "--json"])
    line = json.loads(result.stdout)
    assert (line["table"], line["lag"], line["lag_s"], line["number"]) == (
        str(tmp_path), 1235, 90.0, 7,
    )  # fmt: skip
    assert 46 * 3600 < line["overtaken_s"] < 47 * 3600
    assert line["alert"] == ""


def test_a_table_or_a_directory_is_required(tmp_path: Path) -> None:
    for words in ([], [str(tmp_path), "--table", str(tmp_path)]):
        error = run(app, ["spark", "lag", *words]).exception
        assert isinstance(error, UsageError)
        assert "give DIR, to sample all groups, or --table" in str(error)


def test_a_table_without_a_status_is_one_error(tmp_path: Path) -> None:
    error = run(app, ["spark", "lag", "--table", str(tmp_path)]).exception
    assert isinstance(error, ConfigError)
    assert "has no status" in str(error)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 min"), (59 * 60, "59 min"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text
