"""roquet spark audit: options become parameters; findings are printed, and are the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.spark_jobs.fake_job import FakeJob, spark

from roquet.cli.spark_jobs.audit import SHOWN_MAX
from roquet.lake.audit.audit_report import AuditReport, RowGap
from roquet.lake.audit.findings import AuditFinding, CountDifference
from roquet.model.errors import ConfigError
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.audit.audit_job import AuditProgress, Params

NOON = 491_628
GONE = AuditFinding(what="missing", broker="broker-a", queue_id=3, start=5, end=8, hour=NOON)
TWICE = AuditFinding(what="doubled", broker="broker-b", queue_id=1, start=9, end=10, times=2)


def report(**changes: Any) -> AuditReport:
    fields: dict[str, Any] = {
        "topic": "orders", "table": "lake", "kind": "delta", "number": 3, "rows": 1200,
        "in_topic": 1200, "waiting": 0, "begin_known": True, "findings": (), "hours": (),
    }  # fmt: skip
    return AuditReport(**{**fields, **changes})


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    fake = FakeJob(monkeypatch, audit_job, Params(topic="", target=""), report())
    fake.progress = AuditProgress(done=1, total=3, what="files")
    return fake


def test_few_options_are_required(job: FakeJob) -> None:
    result = spark("audit", "orders", "lake")
    assert (result.exit_code, result.stdout) == (
        0,
        "orders: 1,200 rows in lake: nothing is missing or doubled\n",
    )
    options = {"namesrv": "127.0.0.1:9876"}
    assert job.params == Params(topic="orders", target="lake", options=options)
    assert job.spark is None, "this process looks at the files"


def test_every_parameter_has_an_option(job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.spark.java.java_home", lambda: Path("/java"))
    words = "--producer counts.json --table lake.orders --catalog type=rest --master local[2]"
    words += " --option timeout=5s --namesrv there:1"
    spark("audit", "orders", "lake", *words.split())
    assert job.params == Params(
        topic="orders",
        target="lake",
        producer="counts.json",
        options={"timeout": "5s", "namesrv": "there:1"},
        name="lake.orders",
        catalog={"type": "rest"},
        master="local[2]",
    )
    assert callable(job.spark)


def test_findings_are_printed_and_set_the_exit_code(job: FakeJob) -> None:
    job.done = report(findings=(GONE, TWICE), waiting=2)
    result = spark("audit", "orders", "lake")
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0].endswith("3 missing, 1 doubled; 2 wait in the topic")
    assert "missing broker-a 2026-01-31 12:00 3 5..7 3" in lines
    assert "doubled broker-b 1 9 1 2" in lines


def test_the_first_of_very_many_findings_are_printed(job: FakeJob) -> None:
    job.done = report(findings=(GONE,) * (SHOWN_MAX + 2))
    assert "and 2 more: see --page" in spark("audit", "orders", "lake").stdout


def test_differences_to_other_sources_are_printed(job: FakeJob) -> None:
    job.done = report(
        begin_known=False,
        producer=(CountDifference(first=NOON, last=NOON + 1, more=-3),),
        row_gaps=(RowGap(what="missing", writer="q/1/0", start=4, end=9),),
    )
    result = spark("audit", "orders", "lake").stdout
    assert "2026-01-31 12:00 to 2026-01-31 13:00: -3 against the producer's count" in result
    assert "missing: rows 4..8 of q/1/0" in result
    assert "where the table began is not known" in result


def test_a_page_is_written_where_it_is_wanted(job: FakeJob, tmp_path: Path) -> None:
    job.done = report(findings=(GONE,))
    page = tmp_path / "audit.html"
    result = spark("audit", "orders", "lake", "--page", str(page))
    assert page.as_uri() in result.stdout
    assert "5..7" in page.read_text("utf-8")


def test_a_run_is_a_line_of_json_for_programs(job: FakeJob) -> None:
    job.done = report(findings=(GONE,))
    result = spark("audit", "orders", "lake", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    [finding] = json.loads(result.stdout)["findings"]
    assert (finding["what"], finding["queue_id"], finding["start"], finding["end"]) == (
        "missing",
        3,
        5,
        8,
    )


def test_progress_is_printed_while_it_runs(job: FakeJob) -> None:
    assert "1/3" in spark("audit", "orders", "lake").stderr


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    result = spark("audit", "orders", str(tmp_path / "lake"))
    assert isinstance(result.exception, ConfigError)
    assert "there is no" in str(result.exception)
