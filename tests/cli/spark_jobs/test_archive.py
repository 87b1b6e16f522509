"""roquet spark archive: options become parameters, a run becomes one line; bad input one error."""

import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.spark_jobs.fake_job import FakeJob, refuse_java, spark

from roquet.model.errors import ConfigError, UsageError
from roquet.net.blocking import BlockingChannel
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.topic import CreateTopic


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    done = ArchiveProgress(rows=1200, commits=2, number=7)
    return FakeJob(monkeypatch, archive_job, Params(topic="", target=""), done)


def test_few_options_are_required(job: FakeJob) -> None:
    result = spark("archive", "orders", "/lake/orders")
    assert (result.exit_code, result.stdout) == (
        0,
        "orders: 1,200 messages to /lake/orders; commit 7, 0 behind\n",
    )
    options = {"namesrv": "127.0.0.1:9876"}
    assert job.params == Params(topic="orders", target="/lake/orders", options=options)


def test_every_parameter_has_an_option(job: FakeJob) -> None:
    words = "--kind iceberg --every 10s --start latest --columns broker,queue_id --compact"
    words += " --table lake.orders --catalog type=rest --catalog uri=http://lake?a=b"
    words += " --option failOnDataLoss=false --master local[2] --namesrv there:1"
    words += " --storage-option AWS_REGION=eu-west-1 --partition-by hour --sort-by key,stored_at"
    words += " --body-format json --infer --body-prefix b_ --body-schema"
    result = spark("archive", "orders", "lake", *words.split(), "id int, name string")
    assert result.exit_code == 0, result.output
    assert job.params == Params(
        topic="orders",
        target="lake",
        kind="iceberg",
        options={"startingOffsets": "latest", "failOnDataLoss": "false", "namesrv": "there:1"},
        columns=("broker", "queue_id"),
        every_ms=10_000,
        compact=True,
        name="lake.orders",
        catalog={"type": "rest", "uri": "http://lake?a=b"},
        storage={"AWS_REGION": "eu-west-1"},
        partition_by="hour",
        sort_by=("key", "stored_at"),
        body_format="json",
        body_schema="id int, name string",
        body_prefix="b_",
        infer_body=True,
        master="local[2]",
    )


def test_a_run_may_have_an_end(job: FakeJob) -> None:
    spark("archive", "orders", "lake", "--once", "--until", "2026-01-31T12:00")
    assert job.params.options["endingOffsets"] == "2026-01-31T12:00"


def test_lost_rows_and_merged_files_are_printed(job: FakeJob) -> None:
    job.done = ArchiveProgress(rows=1, skipped=20, merged=3, lag=4, number=5)
    assert spark("archive", "orders", "lake").stdout == (
        "orders: 1 message to lake; 20 were gone; 3 small files merged; commit 5, 4 behind\n"
    )


def test_a_run_is_a_line_of_json_for_programs(job: FakeJob) -> None:
    line = json.loads(spark("archive", "orders", "lake", "--json").stdout)
    assert line.pop("seconds") >= 0
    assert line == {
        "topic": "orders",
        "table": "lake",
        "rows": 1200,
        "skipped": 0,
        "commits": 2,
        "merged": 0,
        "lag": 0,
        "number": 7,
        "unknown_fields": {},
        "bad_bodies": 0,
        "new_columns": [],
        "bytes": 0,
        "kind": "",
    }


def test_fields_without_a_column_are_named_the_most_frequent_ones_first(job: FakeJob) -> None:
    counts = Counter({f"f{number:02}": number for number in range(1, 12)} | {"cr\new": 87_115})
    job.done = ArchiveProgress(rows=1, unknown_fields=counts)
    [_, line] = spark("archive", "orders", "lake").stdout.splitlines()
    assert line.startswith(
        "fields without a column, and bodies that have them: cr\\new 87,115, f11 11, f10 10, "
    )
    assert line.endswith(
        "f03 3 and 2 more; --body-schema 'COLUMN=FIELD TYPE' adds one, and `roquet spark maintain "
        "--refill COLUMN` fills it for the rows that are there"
    )
    line = json.loads(spark("archive", "orders", "lake", "--json").stdout)
    assert line["unknown_fields"] == counts


def test_a_schema_file_gives_the_format_of_bodies(job: FakeJob, tmp_path: Path) -> None:
    pytest.importorskip("fastavro", reason="pip install 'roquet[avro]'")
    path = tmp_path / "order.avsc"
    path.write_text('{"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}]}')
    result = spark("archive", "orders", "lake", "--avro", str(path))
    assert result.exit_code == 0, result.output
    assert (job.params.body_format, job.params.body_source.format) == ("avro", "avro")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--avro", "a.avsc", "--protobuf", "b.desc", "--message-type", "a.B"], "have one format"),
        (["--avro", "a.avsc", "--body-format", "json"], "have one format"),
        (["--protobuf", "b.desc"], "go together"),
        (["--message-type", "a.B"], "go together"),
    ],
)
def test_bodies_have_one_format(job: FakeJob, words: list[str], text: str) -> None:
    error = spark("archive", "orders", "lake", *words).exception
    assert isinstance(error, UsageError)
    assert text in str(error)


def test_bad_bodies_and_new_columns_are_named(job: FakeJob) -> None:
    columns = [f"c{number} int" for number in range(12)]
    job.done = ArchiveProgress(rows=3, bytes=2048, bad_bodies=1_200, new_columns=columns, number=4)
    first, second, third = spark("archive", "orders", "lake").stdout.splitlines()
    assert first == "orders: 3 messages to lake; 2.0 KiB of files; commit 4, 0 behind"
    assert second == "1,200 bodies could not be parsed: the reasons are in the column body_error"
    assert third == f"new columns: {', '.join(columns[:10])} and 2 more"


def test_progress_is_printed_while_it_runs(job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def running(params: Params, _spark: Any, tell: Any, ended: Any) -> ArchiveProgress:
        tell(ArchiveProgress(rows=5, lag=10))
        assert not ended()
        return ArchiveProgress(rows=15)

    monkeypatch.setattr(archive_job, "run", running)
    result = spark("archive", "orders", "lake")
    assert "15 messages" in result.stdout
    assert "10 behind" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--once", "--every", "10s"], "--once or --every"),
        (["--every", "10"], "--every"),
        (["--option", "failOnDataLoss"], "--option: 'failOnDataLoss' is not NAME=VALUE"),
        (["--storage-option", "AWS_REGION"], "--storage-option: 'AWS_REGION' is not NAME"),
        (["--catalog", "=sql"], "--catalog: give a URI, a catalog's name, or NAME=VALUE"),
    ],
)
def test_impossible_options_are_an_error_before_anything_runs(
    job: FakeJob, words: list[str], says: str
) -> None:
    result = spark("archive", "orders", "lake", *words)
    assert isinstance(result.exception, ConfigError | UsageError)
    assert says in str(result.exception)
    assert job.params.topic == ""


@pytest.mark.parametrize("name", ["secretKey", "SECRETKEY", "securityToken"])
def test_a_secret_is_no_option_of_a_command(job: FakeJob, name: str) -> None:
    result = spark("archive", "orders", "lake", "--option", f"{name}=hunter2")
    assert isinstance(result.exception, ConfigError)
    says = str(result.exception)
    assert says.startswith(f"--option {name}: every user of the machine sees the words")
    assert "set ROCKETMQ_SEC" in says
    assert "hunter2" not in says
    assert job.params.topic == ""


@pytest.mark.parametrize(
    ("package", "words", "says"),
    [
        ("matplotlib", "lag lag", r"needs matplotlib: pip install 'roquet\[spark,pictures\]'"),
        ("numpy", "lag --table lake", r"needs numpy: pip install 'roquet\[arrow\]'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, words: str, says: str
) -> None:
    find = importlib.util.find_spec
    missing = lambda name: None if name == package else find(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    with pytest.raises(UsageError, match=says):
        raise spark(*words.split()).exception or AssertionError


def test_without_java_nothing_starts(job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_java(monkeypatch)
    assert "no Java 17" in str(spark("archive", "orders", "lake").exception)
    assert job.params.topic == ""


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A cluster with an empty topic."""
    with BlockingCluster() as running, BlockingChannel(running.broker_addrs[0]) as channel:
        channel.call(CreateTopic(topic="orders", read_queue_nums=2, write_queue_nums=2, perm=6))
        yield running.namesrv_addr


def test_a_missing_topic_is_an_error(tmp_path: Path, namesrv: str) -> None:
    table = tmp_path / "lake"
    result = spark("archive", "odrers", str(table), "--namesrv", namesrv)
    assert "topic 'odrers' is unknown" in str(result.exception)
    assert not result.stderr.strip(), "no empty bar above the error"
    assert not table.exists()


def test_progress_before_an_error_stays_on_the_screen(
    job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(params: Params, _spark: Any, tell: Any, ended: Any) -> ArchiveProgress:
        tell(ArchiveProgress(rows=5, lag=10))
        raise ConfigError("the disk is full")

    monkeypatch.setattr(archive_job, "run", failing)
    result = spark("archive", "orders", "lake")
    assert "5 rows" in result.stderr


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_cleaning_needs_no_broker_and_no_spark(tmp_path: Path, kind: str) -> None:
    words = ["archive", "orders", str(tmp_path), "--kind", kind, "--clean"]
    assert spark(*words).exit_code == 0
    home = next(path for path in tmp_path.rglob("_roquet"))
    attempt = home / "staging" / "attempt"
    attempt.mkdir()
    (attempt / "roquet-1.parquet").write_bytes(b"left behind")
    result = spark(*words)
    assert result.stdout == f"{tmp_path} is clean, at commit 0\n"
    assert not attempt.exists()
