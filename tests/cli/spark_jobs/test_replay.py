"""roquet spark replay: options become parameters, and the result becomes lines or JSON."""

import json

import pytest
from tests.cli.spark_jobs.fake_job import FakeJob, refuse_java, spark

from roquet.cli.spark_jobs.replay import parse_rate
from roquet.model.errors import UsageError
from roquet.spark.jobs.replay import replay_job, replay_plan
from roquet.spark.jobs.replay.replay_job import ReplayProgress
from roquet.spark.jobs.replay.replay_plan import Params, PlannedQueue, ReplayPreview


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    done = ReplayProgress(rows=1200)
    fake = FakeJob(monkeypatch, replay_job, Params(source="", topic=""), done)
    fake.progress = ReplayProgress(rows=5, left=1195)
    return fake


def test_few_options_are_required(job: FakeJob) -> None:
    result = spark("replay", "lake", "Again")
    assert (result.exit_code, result.stdout) == (0, "lake: 1,200 messages to Again\n")
    assert "1,195 left" in result.stderr
    options = {"namesrv": "127.0.0.1:9876"}
    assert job.params == Params(source="lake", topic="Again", options=options)


def test_every_parameter_has_an_option(job: FakeJob) -> None:
    words = "--from 2026-01-01 --until 2026-02-01 --key k1 --key k2 --topic Orders"
    words += " --since 2026-03-01 --kind iceberg --table lake.orders --catalog type=rest"
    words += " --rate 500/s --tasks 6 --option timeout=5s --master local[2] --namesrv there:1"
    words += " --storage-option AWS_REGION=eu-west-1 --limit 1000"
    result = spark("replay", "lake", "Again", *words.split())
    assert result.exit_code == 0, result.output
    assert job.params == Params(
        source="lake",
        topic="Again",
        kind="iceberg",
        options={"timeout": "5s", "namesrv": "there:1"},
        storage={"AWS_REGION": "eu-west-1"},
        only_topic="Orders",
        begin="2026-01-01",
        until="2026-02-01",
        keys=("k1", "k2"),
        rate=500.0,
        limit=1000,
        tasks=6,
        since="2026-03-01",
        name="lake.orders",
        catalog={"type": "rest"},
        master="local[2]",
    )


def test_rows_already_sent_and_duplicates_are_printed(job: FakeJob) -> None:
    job.done = ReplayProgress(rows=1, there=20, doubled=3)
    assert spark("replay", "lake", "Again").stdout == (
        "lake: 1 message to Again; 20 were there; 3 are there twice (read with dropDoubles=true)\n"
    )


def test_a_run_is_a_line_of_json_for_programs(job: FakeJob) -> None:
    line = json.loads(spark("replay", "lake", "Again", "--json").stdout)
    assert line.pop("seconds") >= 0
    result = {"rows": 1200, "there": 0, "left": 0, "doubled": 0}
    assert line == {"table": "lake", "topic": "Again", **result}


def test_a_dry_run_says_what_would_be_sent(job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = PlannedQueue(source="a", destination="b", rows=60_000, there=7, body_bytes=1536)
    found = ReplayPreview(queues=(queue,), rate=500.0)
    monkeypatch.setattr(replay_plan, "preview", lambda _: found)
    result = spark("replay", "lake", "Again", "--dry-run", "--rate", "500/s")
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["from", "to", "messages", "there", "bodies"],
        ["a", "b", "60,000", "7", "1.5", "KiB"],
    ]
    assert result.stdout.startswith(
        "lake: 60,000 messages, 1.5 KiB of bodies, would go to Again; 7 are there; "
        "at least 2 min at 500/s\n"
    )
    line = json.loads(spark("replay", "lake", "Again", "--dry-run", "--json").stdout)
    assert (line["rows"], line["there"], line["body_bytes"]) == (60_000, 7, 1536)
    assert (line["least_seconds"], line["queues"][0]["destination"]) == (120.0, "b")
    assert job.spark is None, "nothing ran"


@pytest.mark.parametrize(
    ("text", "rate"), [("500/s", 500), ("500", 500), ("2.5k/s", 2500), ("10 / sec", 10)]
)
def test_rates_are_read(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["0/s", "-1", "fast", "5/m"])
def test_a_wrong_rate_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="is no rate such as 500/s"):
        parse_rate(text)


def test_without_java_nothing_starts(job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_java(monkeypatch)
    assert "no Java 17" in str(spark("replay", "lake", "Again").exception)
    assert job.params.topic == ""
