"""roquet spark repair: options become parameters, and the result becomes lines or JSON."""

import json
from datetime import date

import pyarrow as pa
import pytest
from tests.cli.spark_jobs.fake_job import FakeJob, spark

from roquet.cli.spark_jobs.repair import TRIES_MAX
from roquet.model.errors import ConfigError, RoquetError
from roquet.spark.jobs.repair import repair_job
from roquet.spark.jobs.repair.repair_job import Params, RepairProgress


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    done = RepairProgress(letters=1200, new=12)
    fake = FakeJob(monkeypatch, repair_job, Params(group="", directory=""), done)
    fake.progress = done
    row = {"state": "dead", "origin_topic": "orders", "tag": None, "day": date(2026, 1, 31)}
    counts = pa.Table.from_pylist([{**row, "reason": "given up", "letters": 1200, "sent": 3}])
    monkeypatch.setattr(repair_job, "count_letters", lambda _params: counts)
    return fake


def test_few_options_are_required(job: FakeJob) -> None:
    result = spark("repair", "billing", "lake")
    assert result.exit_code == 0, result.output
    *table, last = result.stdout.splitlines()
    assert last == "billing: 1,200 letters in lake; 12 new"
    assert table[-1].split() == ["dead", "orders", "-", "2026-01-31", "given", "up", "1,200", "3"]
    options = {"namesrv": "127.0.0.1:9876"}
    assert job.params == Params(group="billing", directory="lake", options=options)


def test_letters_are_chosen(job: FakeJob) -> None:
    job.done = RepairProgress(letters=9, chosen=4, sent=2, before=2, finished=1)
    words = ["--resend", "--where", "tag = 'new'", "--retries", "--tries-max", "3"]
    result = spark("repair", "billing", "lake", *words, "--master", "local[2]")
    assert result.stdout.splitlines()[-1] == (
        "billing: 9 letters in lake; 0 new; 2 of 4 chosen sent again; 2 had gone before; "
        "1 of an earlier run"
    )
    assert job.params.resend
    assert (job.params.where, job.params.retries) == ("tag = 'new'", True)
    assert (job.params.tries_max, job.params.master) == (3, "local[2]")


def test_ids_may_be_given_several_times(job: FakeJob) -> None:
    spark("repair", "billing", "lake", "--resend", "--id", "A", "--id", "B")
    assert job.params.ids == ("A", "B")


def test_a_table_may_lie_in_an_object_store(job: FakeJob) -> None:
    words = ["--storage-option", "AWS_REGION=eu-west-1", "--storage-option", "AWS_ALLOW_HTTP=true"]
    spark("repair", "billing", "s3://lake/letters", *words)
    assert job.params.directory == "s3://lake/letters"
    assert job.params.storage == {"AWS_REGION": "eu-west-1", "AWS_ALLOW_HTTP": "true"}


def test_a_run_is_a_line_of_json_for_programs(job: FakeJob) -> None:
    line = json.loads(spark("repair", "billing", "lake", "--json").stdout)
    assert (line["group"], line["table"], line["letters"], line["new"]) == (
        *("billing", "lake"),
        *(1200, 12),
    )
    [row] = line["counts"]
    assert (row["day"], row["letters"], row["tag"]) == ("2026-01-31", 1200, None)


def test_letters_that_cannot_be_sent_are_an_error_in_the_end(job: FakeJob) -> None:
    job.done = RepairProgress(chosen=2, lost=1)
    result = spark("repair", "billing", "lake", "--resend", "--id", "A")
    assert isinstance(result.exception, RoquetError)
    assert "1 of the chosen letters cannot be sent" in str(result.exception)


def test_impossible_options_are_an_error_before_anything_runs(job: FakeJob) -> None:
    result = spark("repair", "billing", "lake", "--resend")
    assert isinstance(result.exception, ConfigError)
    assert job.params.group == ""


def test_the_default_number_of_tries_is_the_same_in_both_places() -> None:
    assert TRIES_MAX == repair_job.TRIES_MAX
