"""roquet spark materialize: options become parameters, a run becomes one line."""

import json

import pytest
from tests.cli.spark_jobs.fake_job import FakeJob, spark

from roquet.model.errors import ConfigError
from roquet.spark.jobs.materialize import materialize_job
from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, Params


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    done = MaterializeProgress(rows=1200, changed=90, deleted=2, number=7)
    return FakeJob(monkeypatch, materialize_job, Params(topic="", target=""), done)


def test_few_options_are_required(job: FakeJob) -> None:
    result = spark("materialize", "accounts", "/lake/accounts")
    assert (result.exit_code, result.stdout) == (
        0,
        "accounts: 1,200 changes to /lake/accounts; 90 rows written, 2 deleted; "
        "commit 7, 0 behind\n",
    )
    options = {"namesrv": "127.0.0.1:9876"}
    assert job.params == Params(topic="accounts", target="/lake/accounts", options=options)


def test_every_parameter_has_an_option(job: FakeJob) -> None:
    words = "--key property:id --deletes keep --null-keys quarantine --buckets 64 --every 10s"
    words += " --start latest --columns key,broker --option timeout=5s --master local[2]"
    words += " --storage-option AWS_REGION=eu-west-1 --namesrv there:1"
    result = spark("materialize", "accounts", "s3://lake/a", *words.split())
    assert result.exit_code == 0, result.output
    assert job.params == Params(
        topic="accounts",
        target="s3://lake/a",
        key="property:id",
        deletes="keep",
        null_keys="quarantine",
        buckets=64,
        every_ms=10_000,
        columns=("key", "broker"),
        options={"startingOffsets": "latest", "timeout": "5s", "namesrv": "there:1"},
        storage={"AWS_REGION": "eu-west-1"},
        master="local[2]",
    )


def test_what_is_unusual_is_printed(job: FakeJob) -> None:
    job.done = MaterializeProgress(rows=5, changed=1, null_keys=3, moved=1, lag=4, number=2)
    assert spark("materialize", "accounts", "lake").stdout == (
        "accounts: 5 changes to lake; 1 row written, 0 deleted; 3 without a key; "
        "1 key from several queues; commit 2, 4 behind\n"
    )


def test_a_run_is_a_line_of_json_for_programs(job: FakeJob) -> None:
    line = json.loads(spark("materialize", "accounts", "lake", "--json").stdout)
    assert line.pop("seconds") >= 0
    assert line == {
        "topic": "accounts",
        "table": "lake",
        "rows": 1200,
        "skipped": 0,
        "commits": 0,
        "lag": 0,
        "number": 7,
        "unknown_fields": {},
        "bad_bodies": 0,
        "new_columns": [],
        "bytes": 0,
        "kind": "",
        "changed": 90,
        "deleted": 2,
        "moved": 0,
        "null_keys": 0,
    }


def test_wrong_input_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    error = spark("materialize", "accounts", "lake", "--null-keys", "drop").exception
    assert isinstance(error, ConfigError)
    assert "refuse or quarantine" in str(error)
