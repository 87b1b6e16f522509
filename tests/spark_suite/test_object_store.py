"""Archives in an S3 server: exactly once without renames and locks; a sentence per refusal."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import polars as pl
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable as Log
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table as IceTable
from pyspark.sql import SparkSession
from tests.lake.fault_proxy import Fault, fault_proxy
from tests.spark_suite.conftest import (
    SECRET,
    InProcessSpark,
    PersistentTopic,
    S3Server,
    s3_server,
)

from roquet.lake.columns.column_statistics import ColumnStatistics, statistics_of
from roquet.lake.files import object_staging, parquet_writer
from roquet.lake.files.object_staging import ObjectStaging
from roquet.lake.files.output_files import new_file
from roquet.lake.kinds.iceberg import catalog_of
from roquet.lake.maintain import maintenance
from roquet.lake.maintain.maintenance import HOUR_MS, MaintenanceReport, run_here
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import StorageFailed
from roquet.lake.open_table import KINDS, table_location
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import TableConflict
from roquet.model.errors import ConfigError, RoquetError
from roquet.net.clock import SYSTEM_CLOCK, SystemClock
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, open_archive, run
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.job_runner import JobFailed
from roquet.spark.jobs.materialize import materialize_job
from roquet.spark.jobs.replay import replay_job

pytestmark = pytest.mark.spark_suite

TABLE = "s3://lake/orders"
COUNT = 100
"""Messages sent to each of four queues at a time."""


class Archive:
    """Archives of the topic to one table of the server; tasks run in this process."""

    def __init__(self, topic: PersistentTopic, kind: str, root: Path) -> None:
        self.topic, self.kind = topic, kind
        sql = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db"}
        self.catalog = sql if kind == "iceberg" else {}

    def params(self, **params: Any) -> Params:
        options = {"namesrv": self.topic.namesrv, "minPartitions": "2", **params.pop("options", {})}
        arguments = {"topic": "orders", "target": TABLE, "options": options}
        return Params(**{**arguments, "kind": self.kind, "catalog": self.catalog, **params})

    def run(self, spark: Any = None, **params: Any) -> ArchiveProgress:
        session: Any = spark or InProcessSpark()
        return run(self.params(**params), lambda: session)

    @property
    def home(self) -> str:
        """The URL of the directory with the days."""
        return TABLE if self.kind == "delta" else f"{TABLE}/roquet/orders/data"

    def bodies(self) -> list[bytes]:
        """The bodies that anybody else reads from the table, sorted."""
        if self.kind == "delta":
            rows = Log(TABLE).to_pyarrow_table(columns=["body"])
        else:
            with self.opened() as table:
                rows = table.scan().to_arrow()
        return sorted(rows["body"].to_pylist())

    def old_rows(self) -> int:
        """The rows of an older version, whose files have been merged since."""
        if self.kind == "delta":
            Log(TABLE).create_checkpoint()
            return int(Log(TABLE, version=2).to_pyarrow_table().num_rows)
        with self.opened() as table:
            return len(table.scan(snapshot_id=table.snapshots()[1].snapshot_id).to_arrow())

    @contextmanager
    def opened(self) -> Iterator[IceTable]:
        """The Iceberg table as others open it."""
        where = table_location(TABLE)
        with closing(catalog_of(where, self.catalog)) as catalog:
            yield catalog.load_table("roquet.orders")


@pytest.fixture
def archive(s3: S3Server, orders: PersistentTopic, tmp_path: Path) -> Archive:
    """An archive of kind delta."""
    return Archive(orders, "delta", tmp_path)


@pytest.fixture(params=KINDS)
def any_archive(
    request: pytest.FixtureRequest, s3: S3Server, orders: PersistentTopic, tmp_path: Path
) -> Archive:
    """An archive of each kind that may lie in an object store."""
    return Archive(orders, request.param, tmp_path)


@pytest.fixture
def workers(s3: S3Server, spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, whose workers have the credentials in their environment."""
    environ: dict[str, str] = spark.sparkContext.environment
    before = dict(environ)
    environ.update(s3.environ)
    yield spark
    environ.clear()
    environ.update(before)


def test_a_topic_becomes_a_table_of_the_server_through_spark(
    workers: SparkSession, archive: Archive, s3: S3Server
) -> None:
    archive.topic.send(count=COUNT)
    assert archive.run(workers).rows == 4 * COUNT
    archive.topic.send(count=COUNT)
    assert archive.run(workers, compact=True).rows == 4 * COUNT
    assert archive.run(workers).rows == 0
    assert archive.bodies() == sorted(archive.topic.sent)
    assert not [key for key in s3.stored() if "_roquet/runs/" in key], "no run has left a mark"


def test_a_topic_is_archived_once_in_a_catalog_whose_store_fails(
    iceberg: Archive, s3: S3Server
) -> None:
    """Metadata, manifests and files are refused, reset, slow, and their answers are lost."""
    with fault_proxy(s3.url) as proxy:
        for part in ("metadata/", "day="):
            for fault in (Fault.RESET, Fault.SLOW_DOWN, Fault.ERROR, Fault.LOST_ANSWER):
                proxy.add(fault, part=part, skip=2)
        for fault in (Fault.SLOW_DOWN, Fault.ERROR):
            proxy.add(fault, "GET", "metadata/", skip=2)
        for _ in range(2):
            iceberg.topic.send(count=COUNT)
            storage = {"AWS_ENDPOINT_URL": proxy.url}
            options = {"maxOffsetsPerTrigger": "150"}
            assert iceberg.run(storage=storage, options=options).rows == 4 * COUNT
        assert len(proxy.faults) == 10
    assert iceberg.bodies() == sorted(iceberg.topic.sent)


def test_a_topic_is_archived_once_through_a_store_that_fails(
    workers: SparkSession, archive: Archive, s3: S3Server
) -> None:
    """Answers of uploads and of commits are lost, uploads are reset, and the store is slow."""
    with fault_proxy(s3.url) as proxy:
        for fault in (Fault.RESET, Fault.SLOW_DOWN, Fault.ERROR, Fault.LOST_ANSWER):
            proxy.add(fault, part="day=", skip=1)
            proxy.add(fault, "GET", skip=3)
        proxy.add(Fault.LOST_ANSWER, part="_delta_log/00000000000000000002.json")
        proxy.add(Fault.FAILED_ANSWER, part="_delta_log/00000000000000000003.json")
        for _ in range(2):
            archive.topic.send(count=COUNT)
            storage = {"AWS_ENDPOINT_URL": proxy.url}
            options = {"maxOffsetsPerTrigger": "150"}
            assert archive.run(workers, storage=storage, options=options).rows == 4 * COUNT
        happened = {*proxy.faults}
    assert happened >= {Fault.RESET, Fault.SLOW_DOWN, Fault.LOST_ANSWER, Fault.FAILED_ANSWER}
    assert archive.bodies() == sorted(archive.topic.sent)


def test_runs_batches_and_merges_make_one_table(any_archive: Archive) -> None:
    for turn in range(3):
        any_archive.topic.send(count=COUNT)
        done = any_archive.run(options={"maxOffsetsPerTrigger": "150"}, compact=turn == 2)
        assert (done.rows, done.commits) == (4 * COUNT, 3 + (turn == 0))
    assert any_archive.bodies() == sorted(any_archive.topic.sent)
    assert done.merged > 3


def test_the_latest_of_each_key_is_kept_in_the_server(archive: Archive, s3: S3Server) -> None:
    target = "s3://lake/latest"
    options = {"namesrv": archive.topic.namesrv, "minPartitions": "2"}
    params = materialize_job.Params(topic="orders", target=target, options=options)
    spark: Any = InProcessSpark()
    for _ in range(2):
        archive.topic.send(count=COUNT, keys=10)
        assert materialize_job.run(params, lambda: spark).rows == 4 * COUNT
    rows = Log(target).to_pyarrow_table()
    newest = archive.topic.sent[-4 * COUNT :]
    ends = range(COUNT, 4 * COUNT + 1, COUNT)
    latest = [body for end in ends for body in newest[end - 10 : end]]
    assert sorted(rows["body"].to_pylist()) == sorted(latest)
    assert len(set(rows["key"].to_pylist())) == rows.num_rows == 40
    log = Log(target)
    removed = log.vacuum(0, dry_run=True, enforce_retention_duration=False)
    named = {path.rpartition("/")[2] for path in (*log.file_uris(), *removed)}
    stored = {key.rpartition("/")[2] for key in s3.stored() if key.endswith(".parquet")}
    assert stored == named, "the files of changes are gone"


def test_the_latest_of_each_key_is_kept_as_an_iceberg_table(iceberg: Archive, s3: S3Server) -> None:
    options = {"namesrv": iceberg.topic.namesrv}
    params = materialize_job.Params(
        topic="orders",
        target=TABLE,
        kind="iceberg",
        catalog=iceberg.catalog,
        buckets=2,
        options=options,
    )
    spark: Any = InProcessSpark()
    for _ in range(2):
        iceberg.topic.send(count=COUNT, keys=10)
        assert materialize_job.run(params, lambda: spark).rows == 4 * COUNT
    newest = iceberg.topic.sent[-4 * COUNT :]
    ends = range(COUNT, 4 * COUNT + 1, COUNT)
    assert iceberg.bodies() == sorted(body for end in ends for body in newest[end - 10 : end])
    with iceberg.opened() as table:
        named = {
            path.removeprefix("s3://")
            for path in table.inspect.all_files()["file_path"].to_pylist()
        }
    assert named == {key for key in s3.stored() if key.endswith(".parquet")}


def test_the_second_of_two_archives_commits_nothing(any_archive: Archive) -> None:
    any_archive.topic.send(count=COUNT)

    class MeetsAnother(InProcessSpark):
        def collect(self) -> list[Any]:
            any_archive.run()
            return super().collect()

    with pytest.raises(TableConflict, match="another archive writes to it"):
        any_archive.run(MeetsAnother())
    assert any_archive.bodies() == sorted(any_archive.topic.sent)


def test_of_two_commits_at_the_same_moment_the_server_takes_one(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before; the request of the later one is refused."""
    archive.topic.send(count=COUNT)
    archive.run()
    archive.topic.send(count=COUNT)
    write: Callable[..., None] = Log.create_write_transaction

    def write_after_another(log: Log, *args: object, **kwargs: object) -> None:
        monkeypatch.setattr(Log, "create_write_transaction", write)
        assert archive.run().rows == 4 * COUNT
        write(log, *args, **kwargs)

    monkeypatch.setattr(Log, "create_write_transaction", write_after_another)
    with pytest.raises(TableConflict, match="another archive writes to it"):
        archive.run()
    assert archive.bodies() == sorted(archive.topic.sent)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_commit_whose_answer_was_lost_is_looked_for(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    archive.run()
    archive.topic.send(count=COUNT)
    write: Callable[..., None] = Log.create_write_transaction

    def loses(log: Log, *args: object, **kwargs: object) -> None:
        if is_stored:
            write(log, *args, **kwargs)
        raise OSError("Generic S3 error: error sending request: connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(Log, "create_write_transaction", loses)
        if is_stored:
            assert archive.run().rows == 4 * COUNT
        else:
            with pytest.raises(StorageFailed, match="cannot be reached"):
                archive.run()
    assert archive.run().rows == (0 if is_stored else 4 * COUNT)
    assert archive.bodies() == sorted(archive.topic.sent)


@pytest.fixture
def iceberg(s3: S3Server, orders: PersistentTopic, tmp_path: Path) -> Archive:
    """An archive of kind iceberg, its catalog an SQLite file of this machine."""
    return Archive(orders, "iceberg", tmp_path)


def test_of_two_commits_at_the_same_moment_the_catalog_takes_one(
    iceberg: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.topic.send(count=COUNT)
    iceberg.run()
    iceberg.topic.send(count=COUNT)
    commit: Callable[..., Any] = SqlCatalog.commit_table

    def commit_after_another(*args: object) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        assert iceberg.run().rows == 4 * COUNT
        return commit(*args)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_another)
    with pytest.raises(TableConflict, match="another archive writes to it"):
        iceberg.run()
    assert iceberg.bodies() == sorted(iceberg.topic.sent)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_change_whose_answer_was_lost_is_looked_for(
    iceberg: Archive, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    iceberg.run()
    iceberg.topic.send(count=COUNT)
    commit: Callable[..., Any] = SqlCatalog.commit_table

    def loses(*args: object) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        if is_stored:
            commit(*args)
        raise CommitStateUnknownException("the catalog did not answer")

    monkeypatch.setattr(SqlCatalog, "commit_table", loses)
    assert iceberg.run().rows == 4 * COUNT
    assert iceberg.run().rows == 0
    assert iceberg.bodies() == sorted(iceberg.topic.sent)


@pytest.mark.parametrize("is_sent_twice", [False, True])
def test_a_table_of_glue_lies_in_the_server(
    iceberg: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch, is_sent_twice: bool
) -> None:
    """Glue's client sends a commit again whose answer was lost, and Glue refuses it then."""
    iceberg.catalog = {"name": "glue", "glue.endpoint": s3.url, "glue.region": "us-east-1"}
    commit: Callable[..., Any] = GlueCatalog.commit_table
    commits = 0

    def sent_twice(*args: object) -> None:
        nonlocal commits
        commits += 1
        commit(*args)
        raise CommitFailedException("Glue detected concurrent update to table version 1")

    for _ in range(2):
        iceberg.topic.send(count=COUNT)
        assert iceberg.run().rows == 4 * COUNT
        if is_sent_twice:
            monkeypatch.setattr(GlueCatalog, "commit_table", sent_twice)
    assert commits == is_sent_twice
    assert iceberg.bodies() == sorted(iceberg.topic.sent)
    more: dict[str, Any] = {"options": {"namesrv": iceberg.topic.namesrv}}
    audit = audit_job.Params(topic="orders", target=TABLE, catalog=iceberg.catalog, **more)
    assert audit_job.run(audit).is_clean
    monkeypatch.undo()
    with closing(catalog_of(table_location(TABLE), iceberg.catalog)) as glue:
        glue.drop_table("roquet.orders")  # the server knows it longer than its bucket


def test_orphans_go_and_what_versions_name_stays(
    any_archive: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = any_archive
    archive.topic.send(count=COUNT)
    archive.run(options={"maxOffsetsPerTrigger": "150"}, compact=True)
    old_rows = archive.old_rows()
    before = {key for key in s3.stored() if key.endswith(".parquet")}
    killed = ObjectStaging(ObjectLocation(archive.home, storage(s3)))
    file = new_file(killed.begin(), "2026-01-31")
    file.stream.write(b"half of a file")
    file.complete()
    theirs = f"{archive.home}/day=2026-01-31/part-0.parquet".removeprefix("s3://")
    with s3.files().open_output_stream(theirs) as stream:
        stream.write(b"of another writer")
    with open_archive(archive.params()) as table:
        assert table.clean() == 0, "it is young"
    monkeypatch.setattr(object_staging, "ORPHAN_MS", -60_000)
    monkeypatch.setattr(object_staging, "MARK_MS_MAX", -60_000)
    with open_archive(archive.params()):
        left = {key for key in s3.stored() if key.endswith(".parquet")}
    assert left == before | {theirs}
    assert not [key for key in s3.stored() if "_roquet/runs/" in key]
    assert archive.bodies() == sorted(archive.topic.sent)
    assert archive.old_rows() == old_rows > 0


def test_a_second_catalog_cannot_make_a_table_at_the_place_of_another(
    iceberg: Archive, tmp_path: Path
) -> None:
    iceberg.run()
    other = {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db"}
    with pytest.raises(ConfigError, match="is not empty, and the catalog knows no table there"):
        iceberg.run(catalog=other)


def test_a_table_of_another_place_is_refused(iceberg: Archive) -> None:
    iceberg.run()
    with pytest.raises(ConfigError, match="has the table outside of s3://lake/else"):
        iceberg.run(target="s3://lake/else")


def storage(s3: S3Server) -> dict[str, str]:
    return {name: s3.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION")}


def test_an_audit_and_a_replay_read_the_same_url(any_archive: Archive) -> None:
    any_archive.topic.send(count=COUNT)
    any_archive.run()
    options = {"namesrv": any_archive.topic.namesrv}
    audit = audit_job.Params(
        topic="orders", target=TABLE, options=options, catalog=any_archive.catalog
    )
    report = audit_job.run(audit)
    assert report.is_clean
    assert report.rows == 4 * COUNT
    back = replay_job.Params(
        source=TABLE,
        topic="orders",
        options=options,
        same_topic=True,
        tasks=2,
        catalog=any_archive.catalog,
    )
    spark: Any = InProcessSpark
    assert replay_job.run(back, spark).rows == 4 * COUNT
    assert replay_job.run(back, spark).rows == 0


def test_readers_of_others_see_the_same_rows_in_the_server(
    any_archive: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for is_last in (False, True):
        any_archive.topic.send(count=COUNT)
        any_archive.run(options={"maxOffsetsPerTrigger": "150"}, compact=is_last)
    wanted = (8 * COUNT, 4 * sum(range(2 * COUNT)))
    snapshot = read_snapshot(TABLE, "orders", catalog=any_archive.catalog)
    paths = [path.removeprefix("s3://") for path in snapshot.paths]
    by_pyarrow = ds.dataset(paths, format="parquet", filesystem=s3.files())
    with duckdb.connect() as connection:
        connection.register("orders", by_pyarrow)
        by_duckdb = connection.execute("select count(*), sum(queue_offset) from orders").fetchone()
    assert by_duckdb == wanted
    offsets = by_pyarrow.to_table(columns=["queue_offset"])["queue_offset"]
    assert (len(offsets), pc.sum(offsets).as_py()) == wanted
    rows: Any
    if any_archive.kind == "delta":
        rows = pl.scan_delta(TABLE, storage_options=s3.environ)
        sums = rows.select(pl.len(), pl.col("queue_offset").sum()).collect()
    else:
        with any_archive.opened() as table:
            rows = pl.scan_iceberg(table)
            sums = rows.select(pl.len(), pl.col("queue_offset").sum()).collect()
    assert tuple(map(int, sums.row(0))) == wanted


def test_maintenance_is_previewed_and_done_in_the_server(
    any_archive: Archive, s3: S3Server
) -> None:
    """Files are merged, versions expire, old days go; files of others stay."""
    for _ in range(2):
        any_archive.topic.send(count=COUNT)
        any_archive.run(options={"maxOffsetsPerTrigger": "150"})
    theirs = f"{any_archive.home}/day=2026-01-31/part-0.parquet".removeprefix("s3://")
    with s3.files().open_output_stream(theirs) as stream:
        stream.write(b"of another writer")

    def maintain(now_ms: int, **params: Any) -> MaintenanceReport:
        kind: dict[str, Any] = {"kind": any_archive.kind, "catalog": any_archive.catalog}
        return maintenance.run(maintenance.Params(target=TABLE, **kind, **params), run_here, now_ms)

    def files() -> set[str]:
        return {key for key in s3.stored() if key.endswith(".parquet")} - {theirs}

    now_ms, before = SYSTEM_CLOCK.now_ms(), files()
    plan = maintain(now_ms)
    assert (plan.files, plan.merged_files, plan.groups) == (len(before), len(before), plan.groups)
    assert (files(), plan.retired_files, plan.left_files) == (before, 0, plan.groups)
    done = maintain(now_ms, is_preview=False)
    assert (done.merged_files, done.left_files) == (plan.merged_files, plan.left_files)
    assert before < files(), "older versions have them still"
    assert any_archive.bodies() == sorted(any_archive.topic.sent)
    later_ms = now_ms + 9 * maintenance.DAY_MS
    plan = maintain(later_ms, versions_ms=maintenance.HOUR_MS)
    assert plan.expired_files >= len(before)
    done = maintain(later_ms, versions_ms=maintenance.HOUR_MS, is_preview=False)
    assert done.expired_files == plan.expired_files
    assert len(files()) == done.left_files
    assert any_archive.bodies() == sorted(any_archive.topic.sent)
    done = maintain(later_ms, keep_days=7, is_preview=False)
    assert (done.retired_rows, done.left_files) == (8 * COUNT, 0)
    assert any_archive.bodies() == []
    assert theirs in s3.stored()
    any_archive.topic.send(count=COUNT)
    assert any_archive.run().rows == 4 * COUNT, "the offsets stay"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off_costs_no_message(
    any_archive: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The driver's clock is wrong in every second run; the server's is right."""
    now_ms = SystemClock.now_ms
    for turn in range(4):
        any_archive.topic.send(count=COUNT)
        with monkeypatch.context() as patch:
            if turn % 2:
                patch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + hours * HOUR_MS)
            assert any_archive.run(compact=turn > 1).rows == 4 * COUNT
            with open_archive(any_archive.params()) as table:
                assert table.clean() == 0
    assert any_archive.bodies() == sorted(any_archive.topic.sent)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_nothing_secret_is_in_words_of_processes_logs_and_plans(
    archive: Archive, s3: S3Server, tmp_path: Path
) -> None:
    """A run by the command line, its Java and its workers, with Spark's log of all its events."""
    archive.topic.send(count=COUNT)
    events = tmp_path / "events"
    (tmp_path / "conf").mkdir()
    events.mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\n"
        f"spark.eventLog.dir file://{events}\n"
    )
    command = [
        sys.executable, "-m", "roquet", "spark", "archive", "orders", TABLE, "--kind", "delta",
        "--namesrv", archive.topic.namesrv, "--storage-option", "AWS_REGION=us-east-1",
    ]  # fmt: skip
    environ = {**os.environ, **s3.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")}
    words = set[bytes]()
    with (
        (tmp_path / "said").open("wb") as log,
        subprocess.Popen(command, env=environ, stdout=log, stderr=log) as driver,
    ):
        while driver.poll() is None:
            words |= process_words()
            time.sleep(0.1)
    said = (tmp_path / "said").read_bytes()
    assert driver.returncode == 0, said
    assert any(b"java" in each for each in words), "the words of its Java were seen"
    written = [path.read_bytes() for path in events.rglob("*") if path.is_file()]
    assert any(b"mapInArrow" in text or b"MapInArrow" in text for text in written), "a plan is seen"
    for text in (*words, said, *written):
        assert SECRET.encode() not in text
    assert archive.bodies() == sorted(archive.topic.sent)


def process_words() -> set[bytes]:
    """The command lines of all processes of this machine."""
    found = set[bytes]()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.add(path.read_bytes())
    return found


def test_credentials_that_expire_in_a_worker_are_one_sentence(
    workers: SparkSession, archive: Archive, s3: S3Server
) -> None:
    archive.topic.send(count=COUNT)
    archive.run(workers)
    archive.topic.send(count=COUNT)
    with fault_proxy(s3.url) as proxy:
        proxy.add(Fault.EXPIRED, part="day=", times=1_000)
        says = "^the Spark job failed: the credentials for s3://lake/orders have expired: renew"
        with pytest.raises(JobFailed, match=says) as no:
            archive.run(workers, storage={"AWS_ENDPOINT_URL": proxy.url})
        assert "\n" not in str(no.value)
    assert archive.bodies() == sorted(archive.topic.sent[: 4 * COUNT])
    assert archive.run(workers).rows == 4 * COUNT
    assert archive.bodies() == sorted(archive.topic.sent)


def test_credentials_that_expire_while_a_table_is_read_are_one_sentence(
    any_archive: Archive, s3: S3Server
) -> None:
    any_archive.topic.send(count=COUNT)
    any_archive.run()
    more: dict[str, Any] = {
        "options": {"namesrv": any_archive.topic.namesrv},
        "catalog": any_archive.catalog,
    }
    url = r"s3://lake/orders[^ \n]*"
    # The body of the answer to a GET, which would say so, is not always looked at.
    expired = f"the credentials for {url} have expired: renew "
    says = rf"({expired}|\S+ refuses requests for {url} without a reason: check )[^\n]*$"
    with fault_proxy(s3.url) as proxy:
        proxy.add(Fault.EXPIRED, "GET", "day=", times=1_000)
        storage = {"AWS_ENDPOINT_URL": proxy.url}
        with pytest.raises(StorageFailed, match=f"^{says}"):
            audit_job.run(audit_job.Params(topic="orders", target=TABLE, storage=storage, **more))
        with pytest.raises(StorageFailed, match=f"^{says}"):
            replay_job.run(
                replay_job.Params(
                    source=TABLE, topic="orders", same_topic=True, storage=storage, **more
                ),
                cast("Any", InProcessSpark),
            )
        any_archive.topic.send(count=COUNT)
        # An Iceberg commit reads its own files, a merge the table's.
        with pytest.raises(RoquetError, match=f"^(the Spark job failed: )?{says}"):
            any_archive.run(storage=storage, compact=True)
    any_archive.run(compact=True)
    assert any_archive.bodies() == sorted(any_archive.topic.sent)


def test_nothing_secret_is_in_the_table_or_in_tasks(any_archive: Archive, s3: S3Server) -> None:
    from pyspark import cloudpickle

    any_archive.topic.send(count=COUNT)

    class Looks(InProcessSpark):
        def collect(self) -> list[Any]:
            assert SECRET.encode() not in cloudpickle.dumps(self._work)  # type: ignore[no-untyped-call]
            return super().collect()

    any_archive.run(Looks())
    for key in s3.stored():
        with s3.files().open_input_file(key) as file:
            assert SECRET.encode() not in file.read()


def test_a_bucket_that_is_not_there_is_named(any_archive: Archive) -> None:
    with pytest.raises(ConfigError, match=r"^there is no bucket 'sea' at http://127"):
        any_archive.run(target="s3://sea/orders")
    options = {"namesrv": any_archive.topic.namesrv}
    audit = audit_job.Params(topic="orders", target="s3://sea/orders", options=options)
    with pytest.raises(ConfigError, match=r"^there is no bucket 'sea'"):
        audit_job.run(audit)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault.EXPIRED, "^the credentials for s3://lake/orders have expired: renew"),
        (Fault.SKEWED, "because a clock is wrong: set those of the driver"),
        (Fault.ELSEWHERE, "^bucket lake is in another region than us-east-1: set AWS_REGION"),
    ],
)
def test_a_store_that_refuses_in_the_middle_leaves_nothing_visible(
    any_archive: Archive, s3: S3Server, fault: Fault, says: str
) -> None:
    """The files of the batch are there; what would name them is refused."""
    any_archive.topic.send(count=COUNT)
    any_archive.run()
    any_archive.topic.send(count=COUNT)
    with fault_proxy(s3.url) as proxy:
        names = "_delta_log/" if any_archive.kind == "delta" else "metadata/"
        proxy.add(fault, "PUT", names, times=1_000)
        storage = {"AWS_ENDPOINT_URL": proxy.url}
        with pytest.raises(StorageFailed, match=says) as no:
            any_archive.run(storage=storage)
        assert "\n" not in str(no.value)
        assert proxy.faults
        assert any_archive.bodies() == sorted(any_archive.topic.sent[: 4 * COUNT])
        proxy.clear()
        assert any_archive.run(storage=storage).rows == 4 * COUNT
    assert any_archive.bodies() == sorted(any_archive.topic.sent)


def test_changes_whose_credentials_expire_are_taken_by_the_next_run(
    archive: Archive, s3: S3Server
) -> None:
    target = "s3://lake/latest"
    spark: Any = InProcessSpark()
    options = {"namesrv": archive.topic.namesrv}
    archive.topic.send(count=COUNT, keys=10)
    with fault_proxy(s3.url) as proxy:
        params = materialize_job.Params(
            topic="orders",
            target=target,
            options=options,
            buckets=2,
            storage={"AWS_ENDPOINT_URL": proxy.url},
        )
        proxy.add(Fault.EXPIRED, "PUT", "_delta_log/00000000000000000002", times=1_000)
        with pytest.raises(StorageFailed, match="have expired: renew"):
            materialize_job.run(params, lambda: spark)
        assert Log(target).to_pyarrow_table().num_rows == 0
        proxy.clear()
        assert materialize_job.run(params, lambda: spark).rows == 4 * COUNT
    assert Log(target).to_pyarrow_table().num_rows == 40


def test_a_wrong_endpoint_is_named(archive: Archive) -> None:
    wrong = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with pytest.raises(StorageFailed, match=r"^http://127.0.0.1:1 cannot be reached for s3://lake"):
        archive.run(storage=wrong)


def test_a_path_with_files_of_others_is_left_alone(any_archive: Archive, s3: S3Server) -> None:
    theirs = f"{any_archive.home}/theirs.csv".removeprefix("s3://")
    with s3.files().open_output_stream(theirs) as stream:
        stream.write(b"1,2")
    with pytest.raises(ConfigError, match=r"is not empty,? and"):
        any_archive.run()
    assert s3.stored() == [theirs]


def test_the_kind_parquet_is_refused(archive: Archive) -> None:
    with pytest.raises(ConfigError, match="Write --kind delta, the default, or iceberg"):
        archive.run(kind="parquet")


def test_an_iceberg_table_needs_a_catalog_elsewhere(archive: Archive) -> None:
    with pytest.raises(ConfigError, match="needs a catalog elsewhere: --catalog https://"):
        archive.run(kind="iceberg")


def test_a_store_that_refuses_access_says_so(orders: PersistentTopic, tmp_path: Path) -> None:
    """A server of its own: it does not forget that it is strict."""
    with s3_server() as strict, strict.reached():
        strict.forbid()
        for kind in KINDS:
            with pytest.raises(RoquetError, match="refuses access to s3://lake/orders") as no:
                Archive(orders, kind, tmp_path).run()
            assert SECRET not in str(no.value)


def test_statistics_of_an_earlier_roquet_are_completed_in_the_server(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_nulls(*args: Any) -> ColumnStatistics:
        return msgspec.structs.replace(statistics_of(*args), nulls={})

    archive.topic.send(count=COUNT)
    with monkeypatch.context() as earlier:
        earlier.setattr(parquet_writer, "statistics_of", without_nulls)
        archive.run()
    with open_archive(archive.params()) as table:
        count = len(table.files())
        assert [len(table.incomplete_files()), table.complete_statistics()] == [count, count]
        assert not table.incomplete_files()
    rows = Log(TABLE).to_pyarrow_dataset()
    assert rows.count_rows(filter=pc.field("key") == "0-1-0") == COUNT
    assert archive.bodies() == sorted(archive.topic.sent)
    archive.topic.send(count=COUNT)
    assert archive.run().rows == 4 * COUNT, "the offsets stay"
