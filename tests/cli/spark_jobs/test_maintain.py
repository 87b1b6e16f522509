"""roquet spark maintain: a preview unless --yes, in lines or as JSON."""

import json

import msgspec
import pytest
from tests.cli.spark_jobs.fake_job import FakeJob, spark

from roquet.lake.maintain import maintenance
from roquet.lake.maintain.maintenance import MaintenanceReport, Params
from roquet.lake.maintain.refill import RefillCounts
from roquet.model.errors import ConfigError, UsageError

REPORT = MaintenanceReport(
    topic="orders",
    kind="iceberg",
    files=1200,
    bytes=5 * 1024**3,
    retired_before="2026-02-05",
    retired_files=1,
    retired_rows=2000,
    retired_bytes=900,
    merged_files=40,
    merged_bytes=3 * 1024**2,
    groups=2,
    expired_versions=3,
    expired_files=80,
    left_files=1161,
)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    return FakeJob(monkeypatch, maintenance, Params(target=""), REPORT)


def test_it_says_what_it_would_do(job: FakeJob) -> None:
    result = spark("maintain", "lake", "--keep", "90d")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "lake: archive of orders, 1,200 files, 5.0 GiB",
        "  2,000 rows before 2026-02-05 would be removed: 1 file, 900 bytes",
        "  40 small files, 3.0 MiB, would be merged in 2 groups",
        "  3 older versions with 80 files that no later version has would be removed",
        "  1,161 files would be left; --yes does it",
    ]
    assert job.params == Params(target="lake", keep_days=90)


def test_it_says_what_columns_get_from_bodies(job: FakeJob) -> None:
    counts = RefillCounts(files=2, filled=87_115, unfit=1)
    job.done = msgspec.structs.replace(REPORT, refilled=counts)
    result = spark("maintain", "lake", "--refill", "crew", "--refill", "gate")
    assert result.stdout.splitlines()[2:4] == [
        "  87,115 values from bodies would be written to 2 files",
        "  1 value of another type than the column left in the body",
    ]
    assert job.params == Params(target="lake", refill=("crew", "gate"))


def test_it_does_it_when_told_so(job: FakeJob) -> None:
    words = "--yes --snapshots 12h --kind iceberg --table lake.orders --catalog http://lake"
    result = spark("maintain", "s3://lake/orders", *words.split())
    assert result.exit_code == 0, result.output
    assert "  40 small files, 3.0 MiB, merged in 2 groups\n" in result.stdout
    assert result.stdout.endswith("  1,161 files left\n")
    assert job.params == Params(
        target="s3://lake/orders",
        kind="iceberg",
        name="lake.orders",
        catalog={"uri": "http://lake"},
        versions_ms=12 * 3_600_000,
        is_preview=False,
    )


def test_a_table_in_order_has_nothing_to_do(job: FakeJob) -> None:
    job.done = MaintenanceReport(topic="orders", kind="delta", files=1, bytes=0)
    result = spark("maintain", "lake")
    assert result.stdout == "lake: archive of orders, 1 file, 0 bytes\n  nothing to do\n"


def test_json_has_all_numbers(job: FakeJob) -> None:
    result = spark("maintain", "lake", "--json")
    line = json.loads(result.stdout)
    assert line["table"] == "lake"
    assert line["preview"] is True
    assert line["expired_files"] == 80


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--keep 36h", "'36h' is not a number of whole days such as 90d"),
        ("--keep 0d", "is not a number of whole days"),
        ("--preview --yes", "--preview or --yes"),
    ],
)
def test_bad_words_are_a_sentence(job: FakeJob, words: str, says: str) -> None:
    result = spark("maintain", "lake", *words.split())
    assert result.exit_code
    assert isinstance(result.exception, UsageError | ConfigError | SystemExit)
    assert says in f"{result.output}{result.exception}"
