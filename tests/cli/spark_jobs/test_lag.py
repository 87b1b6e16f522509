"""roquet spark lag: options become parameters; a group that falls behind is the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.spark_jobs.fake_job import FakeJob, spark

from roquet.cli.spark_jobs.lag import duration_text
from roquet.lake.lag import lag_job
from roquet.lake.lag.lag_job import LagProgress, Params
from roquet.lake.lag.lag_summary import GroupLag, LagReport
from roquet.lake.lag.trends import LagForecast, LagState
from roquet.lake.status import JobStatus, LagPoint, write_status
from roquet.model.errors import ConfigError, UsageError
from roquet.net.clock import SYSTEM_CLOCK

NOON = 1_769_860_800_000


def group_lag(group: str, state: LagState, **changes: Any) -> GroupLag:
    outlook = LagForecast(**{"state": state, "lag": 5000, "come": 5.0, "handled": 2.0, **changes})
    return GroupLag(group=group, topic="orders", queues=4, outlook=outlook, worst="a:3")


FINE = group_lag("mail", LagState.CAUGHT_UP, lag=0, caught_up_s=0.0)
SLOW = group_lag("billing", LagState.FALLING_BEHIND, cut_off_s=7200.0)


class FakeLagJob(FakeJob):
    """Tells a progress, and is not stopped."""

    page = "/lag/lag.html"

    def __call__(self, params: Any, *callbacks: Any) -> LagReport:
        tell, ended = callbacks
        tell(LagProgress(samples=1, wanted=61, lag=1234, silent=["broker-b"]))
        assert not ended()
        self.params = params
        return LagReport(samples=61, at_ms=NOON, standings=self.done, page=self.page)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeLagJob:
    return FakeLagJob(monkeypatch, lag_job, Params(target=""), (FINE,))


def test_few_options_are_required(job: FakeLagJob) -> None:
    result = spark("lag", "/lag")
    assert result.exit_code == 0, result.output
    assert job.params == Params(target="/lag", namesrv="127.0.0.1:9876")
    assert "none of 1 groups is falling behind" in result.stdout
    assert "61 samples; file:///lag/lag.html" in result.stdout


def test_a_page_in_an_object_store_is_shown_by_its_url(job: FakeLagJob) -> None:
    job.page = "s3://lake/lag/lag.html"
    words = ["--storage-option", "AWS_REGION=eu-west-1"]
    result = spark("lag", "s3://lake/lag", *words)
    assert "61 samples; s3://lake/lag/lag.html" in result.stdout
    assert job.params.storage == {"AWS_REGION": "eu-west-1"}


def test_every_parameter_has_an_option(job: FakeLagJob) -> None:
    words = "--every 1s --for 1h --groups billing,mail --retention 48h --namesrv there:1"
    spark("lag", "lag", *words.split())
    assert job.params == Params(
        target="lag",
        namesrv="there:1",
        every_ms=1000,
        for_ms=3_600_000,
        groups=("billing", "mail"),
        retention_ms=48 * 3_600_000,
    )


def test_groups_that_will_not_catch_up_are_printed_and_set_the_exit_code(job: FakeLagJob) -> None:
    job.done = (SLOW, FINE)
    result = spark("lag", "/lag", COLUMNS="160")
    assert result.exit_code == 1
    assert "billing will not catch up with orders" in result.stdout
    assert "from 2026-01-31 14:00 UTC on" in result.stdout


def test_a_run_is_a_line_of_json_for_programs(job: FakeLagJob) -> None:
    job.done = (SLOW,)
    result = spark("lag", "/lag", "--json")
    assert result.exit_code == 1
    line = json.loads(result.stdout)
    assert line["standings"][0]["outlook"]["cut_off_s"] == 7200.0
    assert result.stderr == ""


def test_progress_is_printed_while_it_runs(job: FakeLagJob) -> None:
    result = spark("lag", "/lag", COLUMNS="160")
    assert "1/61" in result.stderr
    assert "1,234 behind; no answer: broker-b" in result.stderr


def test_a_time_without_a_unit_is_an_error(job: FakeLagJob) -> None:
    result = spark("lag", "/lag", "--every", "10")
    assert isinstance(result.exception, ConfigError)
    assert "--every" in str(result.exception)
    assert job.params.target == ""


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
    result = spark("lag", "--table", str(tmp_path))
    assert result.exit_code == 0, result.output
    head, row = result.stdout.splitlines()
    assert head.split()[:5] == ["table", "topic", "job", "commit", "committed"]
    words = row.split()
    assert words[1:4] == ["orders", "archive", "7"]
    assert words[-6:] == ["1", "d", "22", "h", "1,235", "90"]


def test_an_archive_that_is_overtaken_is_an_alert(tmp_path: Path) -> None:
    note(tmp_path, hours_ago=47)
    result = spark("lag", "--table", str(tmp_path))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        f"{tmp_path}: retention will overtake it unless the archive job runs"
    )


def test_a_broker_that_did_not_answer_is_named(tmp_path: Path) -> None:
    note(tmp_path, away=("broker-b",))
    result = spark("lag", "--table", str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        f"{tmp_path}: broker broker-b did not answer; what waits there is unknown"
    )


def test_schedulers_read_json(tmp_path: Path) -> None:
    note(tmp_path)
    result = spark("lag", "--table", str(tmp_path), "--json")
    line = json.loads(result.stdout)
    assert (line["table"], line["lag"], line["lag_s"], line["number"]) == (
        str(tmp_path), 1235, 90.0, 7,
    )  # fmt: skip
    assert 46 * 3600 < line["overtaken_s"] < 47 * 3600
    assert line["alert"] == ""


def test_a_table_or_a_directory_is_required(tmp_path: Path) -> None:
    for words in ([], [str(tmp_path), "--table", str(tmp_path)]):
        error = spark("lag", *words).exception
        assert isinstance(error, UsageError)
        assert "give DIR, to sample all groups, or --table" in str(error)


def test_a_table_without_a_status_is_one_error(tmp_path: Path) -> None:
    error = spark("lag", "--table", str(tmp_path)).exception
    assert isinstance(error, ConfigError)
    assert "has no status" in str(error)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 min"), (59 * 60, "59 min"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text
