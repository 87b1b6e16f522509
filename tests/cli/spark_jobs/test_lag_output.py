"""roquet spark lag: options become parameters, and who will not catch up is the exit code."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.model.errors import ConfigError
from roquet.spark.jobs.lag import lag_job
from roquet.spark.jobs.lag.lag_job import LagProgress, Params
from roquet.spark.jobs.lag.lag_summary import GroupLag, LagReport
from roquet.spark.jobs.lag.trends import LagForecast, LagState

run = CliRunner().invoke

NOON = 1_769_860_800_000


def standing(group: str, state: LagState, **changes: Any) -> GroupLag:
    outlook = LagForecast(**{"state": state, "lag": 5000, "come": 5.0, "handled": 2.0, **changes})
    return GroupLag(group=group, topic="orders", queues=4, outlook=outlook, worst="a:3")


FINE = standing("mail", LagState.CAUGHT_UP, lag=0, caught_up_s=0.0)
SLOW = standing("billing", LagState.FALLING_BEHIND, cut_off_s=7200.0)


class Asked:
    """Takes the place of the job, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.params = Params(target="")
        self.standings: tuple[GroupLag, ...] = (FINE,)

    def __call__(self, params: Params, tell: Any, ended: Any) -> LagReport:
        self.params = params
        tell(LagProgress(samples=1, wanted=61, lag=1234, silent=["broker-b"]))
        assert not ended()
        return LagReport(samples=61, at_ms=NOON, standings=self.standings, page="/lag/lag.html")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(lag_job, "run", found)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return found


def test_little_has_to_be_said(asked: Asked) -> None:
    told = run(app, ["spark", "lag", "/lag"])
    assert told.exit_code == 0, told.output
    assert asked.params == Params(target="/lag", namesrv="127.0.0.1:9876")
    assert "none of 1 groups is falling behind" in told.stdout
    assert "61 samples; file:///lag/lag.html" in told.stdout


def test_all_can_be_said(asked: Asked) -> None:
    words = "--every 1s --for 1h --groups billing,mail --retention 48h --namesrv there:1"
    run(app, ["spark", "lag", "lag", *words.split()])
    assert asked.params == Params(
        target="lag",
        namesrv="there:1",
        every_ms=1000,
        for_ms=3_600_000,
        groups=("billing", "mail"),
        retention_ms=48 * 3_600_000,
    )


def test_who_will_not_catch_up_is_told_and_is_the_exit_code(asked: Asked) -> None:
    asked.standings = (SLOW, FINE)
    told = run(app, ["spark", "lag", "/lag"], env={"COLUMNS": "160"})
    assert told.exit_code == 1
    assert "billing will not catch up with orders" in told.stdout
    assert "from 2026-01-31 14:00 UTC on" in told.stdout


def test_a_run_is_a_line_of_json_for_programs(asked: Asked) -> None:
    asked.standings = (SLOW,)
    told = run(app, ["spark", "lag", "/lag", "--json"])
    assert told.exit_code == 1
    line = json.loads(told.stdout)
    assert line["standings"][0]["outlook"]["cut_off_s"] == 7200.0
    assert told.stderr == ""


def test_progress_is_told_while_it_runs(asked: Asked) -> None:
    told = run(app, ["spark", "lag", "/lag"], env={"COLUMNS": "160"})
    assert "1/61" in told.stderr
    assert "1,234 behind; no answer: broker-b" in told.stderr


def test_a_time_without_a_unit_is_told_so(asked: Asked) -> None:
    told = run(app, ["spark", "lag", "/lag", "--every", "10"])
    assert isinstance(told.exception, ConfigError)
    assert "--every" in str(told.exception)
    assert asked.params.target == ""
