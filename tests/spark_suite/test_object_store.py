"""Archives in object stores: exactly once without renames and locks; a sentence per refusal."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable as Log
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyspark.sql import SparkSession
from tests.lake.conftest import location_of, patch_first
from tests.lake.fault_proxy import Fault, fault_proxy
from tests.spark_suite.conftest import SECRET, InProcessSpark, PersistentTopic, S3Server, s3_server
from tests.spark_suite.object_archive import (
    COUNT,
    TABLES,
    Archive,
    as_iceberg,
    everywhere,
    in_each_store,
    of_each_kind,
)

from roquet.lake.columns.column_statistics import ColumnStatistics, statistics_of
from roquet.lake.files import object_staging, parquet_writer
from roquet.lake.files.object_staging import ObjectStaging
from roquet.lake.files.output_files import new_file
from roquet.lake.kinds.iceberg import catalog_of
from roquet.lake.maintain import maintenance
from roquet.lake.maintain.maintenance import HOUR_MS, MaintenanceReport, run_here
from roquet.lake.objects.object_store import ObjectStore, StorageFailed
from roquet.lake.open_table import table_location
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import TableConflict
from roquet.model.errors import ConfigError, RoquetError
from roquet.net.clock import SYSTEM_CLOCK, SystemClock
from roquet.spark.jobs.archive.archive_job import open_archive
from roquet.spark.jobs.job_runner import JobFailed

pytest_plugins = ["tests.spark_suite.object_archive"]
pytestmark = pytest.mark.spark_suite

TABLE = TABLES["s3"]


@pytest.fixture
def workers(archive: Archive, spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, whose workers have the credentials in their environment."""
    environ: dict[str, str] = spark.sparkContext.environment
    before = dict(environ)
    names = [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "STORAGE_"))]
    environ.update({name: os.environ[name] for name in names})
    yield spark
    environ.clear()
    environ.update(before)


@in_each_store
def test_a_topic_becomes_a_table_through_spark(workers: SparkSession, archive: Archive) -> None:
    archive.send_and_run(workers)
    archive.send_and_run(workers, compact=True)
    assert archive.run(workers).rows == 0
    assert archive.bodies() == sorted(archive.topic.sent)
    assert archive.files("_roquet/runs") == [], "no run has left a mark"


@as_iceberg
def test_a_topic_is_archived_once_in_a_catalog_whose_store_fails(
    archive: Archive, s3: S3Server
) -> None:
    """Metadata, manifests and files are refused, reset, slow, and their answers are lost."""
    with fault_proxy(s3.url) as proxy:
        for part in ("metadata/", "day="):
            for fault in (Fault.RESET, Fault.SLOW_DOWN, Fault.ERROR, Fault.LOST_ANSWER):
                proxy.add(fault, part=part, skip=2)
        for fault in (Fault.SLOW_DOWN, Fault.ERROR):
            proxy.add(fault, "GET", "metadata/", skip=2)
        for _ in range(2):
            archive.topic.send(count=COUNT)
            storage = {"AWS_ENDPOINT_URL": proxy.url}
            options = {"maxOffsetsPerTrigger": "150"}
            assert archive.run(storage=storage, options=options).rows == 4 * COUNT
        assert len(proxy.faults) == 10
    assert archive.bodies() == sorted(archive.topic.sent)


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


@of_each_kind
def test_runs_batches_and_merges_make_one_table(archive: Archive) -> None:
    for turn in range(3):
        archive.topic.send(count=COUNT)
        done = archive.run(options={"maxOffsetsPerTrigger": "150"}, compact=turn == 2)
        assert (done.rows, done.commits) == (4 * COUNT, 3 + (turn == 0))
    assert archive.bodies() == sorted(archive.topic.sent)
    assert done.merged > 3


def latest_bodies(archive: Archive) -> list[bytes]:
    """Of the messages of two runs with ten keys a queue those that count."""
    newest = archive.topic.sent[-4 * COUNT :]
    ends = range(COUNT, 4 * COUNT + 1, COUNT)
    return sorted(body for end in ends for body in newest[end - 10 : end])


@in_each_store
def test_the_latest_of_each_key_is_kept(archive: Archive) -> None:
    target = archive.beside("latest")
    for _ in range(2):
        archive.topic.send(count=COUNT, keys=10)
        assert archive.materialize(target).rows == 4 * COUNT
    log = archive.log(target)
    rows = log.to_pyarrow_table()
    assert sorted(rows["body"].to_pylist()) == latest_bodies(archive)
    assert len(set(rows["key"].to_pylist())) == rows.num_rows == 40
    removed = log.vacuum(0, dry_run=True, enforce_retention_duration=False)
    named = {path.rpartition("/")[2] for path in (*log.file_uris(), *removed)}
    stored = [file.path for file in ObjectStore(location_of(target)).files()]
    assert {path.rpartition("/")[2] for path in stored if path.endswith(".parquet")} == named, (
        "the files of changes are gone"
    )


@as_iceberg
def test_the_latest_of_each_key_is_kept_as_an_iceberg_table(archive: Archive, s3: S3Server) -> None:
    for _ in range(2):
        archive.topic.send(count=COUNT, keys=10)
        more = {"kind": "iceberg", "catalog": archive.catalog}
        assert archive.materialize(archive.table, **more).rows == 4 * COUNT
    assert archive.bodies() == latest_bodies(archive)
    with archive.opened() as table:
        paths = table.inspect.all_files()["file_path"].to_pylist()
    named = {path.removeprefix("s3://") for path in paths}
    assert named == {key for key in s3.stored() if key.endswith(".parquet")}


@of_each_kind
def test_the_second_of_two_archives_commits_nothing(archive: Archive) -> None:
    archive.topic.send(count=COUNT)

    class MeetsAnother(InProcessSpark):
        def collect(self) -> list[Any]:
            archive.run()
            return super().collect()

    with pytest.raises(TableConflict, match="another archive writes to it"):
        archive.run(MeetsAnother())
    assert archive.bodies() == sorted(archive.topic.sent)


Commit = Callable[..., Any]

COMMITS = {"delta": (Log, "create_write_transaction"), "iceberg": (SqlCatalog, "commit_table")}
"""The request that commits to a table."""


@everywhere
def test_of_two_commits_at_the_same_moment_the_store_takes_one(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before; the request of the later one is refused."""

    def commit_after_another(commit: Commit, *args: object, **kwargs: object) -> Any:
        assert archive.run().rows == 4 * COUNT
        return commit(*args, **kwargs)

    archive.send_and_run()
    archive.topic.send(count=COUNT)
    owner, name = COMMITS[archive.kind]
    patch_first(monkeypatch, owner, name, commit_after_another)
    with pytest.raises(TableConflict, match="another archive writes to it"):
        archive.run()
    assert archive.bodies() == sorted(archive.topic.sent)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_commit_whose_answer_was_lost_is_looked_for(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:

    def loses(write: Commit, *args: object, **kwargs: object) -> None:
        if is_stored:
            write(*args, **kwargs)
        raise OSError("Generic S3 error: error sending request: connection reset")

    archive.run()
    archive.topic.send(count=COUNT)
    patch_first(monkeypatch, Log, "create_write_transaction", loses)
    if is_stored:
        assert archive.run().rows == 4 * COUNT
    else:
        with pytest.raises(StorageFailed, match="cannot be reached"):
            archive.run()
    assert archive.run().rows == (0 if is_stored else 4 * COUNT)
    assert archive.bodies() == sorted(archive.topic.sent)


@as_iceberg
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_change_whose_answer_was_lost_is_looked_for(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:

    def loses(commit: Commit, *args: object) -> None:
        if is_stored:
            commit(*args)
        raise CommitStateUnknownException("the catalog did not answer")

    archive.run()
    patch_first(monkeypatch, SqlCatalog, "commit_table", loses)
    archive.send_and_run()
    assert archive.run().rows == 0
    assert archive.bodies() == sorted(archive.topic.sent)


@as_iceberg
@pytest.mark.parametrize("is_sent_twice", [False, True])
def test_a_table_of_glue_lies_in_the_server(
    archive: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch, is_sent_twice: bool
) -> None:
    """Glue's client sends a commit again whose answer was lost, and Glue refuses it then."""
    archive.catalog = {"name": "glue", "glue.endpoint": s3.url, "glue.region": "us-east-1"}

    def sent_twice(commit: Commit, *args: object) -> None:
        commit(*args)
        raise CommitFailedException("Glue detected concurrent update to table version 1")

    archive.send_and_run()
    if is_sent_twice:
        commits = patch_first(monkeypatch, GlueCatalog, "commit_table", sent_twice)
    archive.send_and_run()
    assert not is_sent_twice or len(commits) == 1
    assert archive.bodies() == sorted(archive.topic.sent)
    assert archive.audit().is_clean
    monkeypatch.undo()
    with closing(catalog_of(table_location(TABLE), archive.catalog)) as glue:
        glue.drop_table("roquet.orders")  # the server knows it longer than its bucket


@everywhere
def test_orphans_go_and_what_versions_name_stays(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.send_and_run(options={"maxOffsetsPerTrigger": "150"}, compact=True)
    old_rows, before = archive.old_rows(), parquet_files(archive)
    file = new_file(ObjectStaging(archive.store.location).begin(), "2026-01-31")
    file.stream.write(b"half of a file")
    file.complete()
    theirs = "day=2026-01-31/part-0.parquet"
    archive.store.put(theirs, b"of another writer")
    with open_archive(archive.params()) as table:
        assert table.clean() == 0, "it is young"
    monkeypatch.setattr(object_staging, "ORPHAN_MS", -60_000)
    monkeypatch.setattr(object_staging, "MARK_MS_MAX", -60_000)
    with open_archive(archive.params()):
        assert parquet_files(archive) == before | {theirs}
    assert archive.files("_roquet/runs") == []
    assert archive.bodies() == sorted(archive.topic.sent)
    assert archive.old_rows() == old_rows > 0


def parquet_files(archive: Archive) -> set[str]:
    """The paths of the files in the days."""
    return {path for path in archive.files() if path.endswith(".parquet")}


@as_iceberg
def test_a_second_catalog_cannot_make_a_table_at_the_place_of_another(
    archive: Archive, tmp_path: Path
) -> None:
    archive.run()
    other = {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db"}
    with pytest.raises(ConfigError, match="is not empty, and the catalog knows no table there"):
        archive.run(catalog=other)


@as_iceberg
def test_a_table_of_another_place_is_refused(archive: Archive) -> None:
    archive.run()
    with pytest.raises(ConfigError, match="has the table outside of s3://lake/else"):
        archive.run(target="s3://lake/else")


@everywhere
def test_an_audit_and_a_replay_read_the_same_url(archive: Archive) -> None:
    archive.send_and_run()
    report = archive.audit()
    assert report.is_clean
    assert report.rows == 4 * COUNT
    assert archive.replay(tasks=2) == 4 * COUNT
    assert archive.replay(tasks=2) == 0


@of_each_kind
def test_readers_of_others_see_the_same_rows_in_the_server(
    archive: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for is_last in (False, True):
        archive.send_and_run(options={"maxOffsetsPerTrigger": "150"}, compact=is_last)
    wanted = (8 * COUNT, 4 * sum(range(2 * COUNT)))
    snapshot = read_snapshot(TABLE, "orders", catalog=archive.catalog)
    paths = [path.removeprefix("s3://") for path in snapshot.paths]
    by_pyarrow = ds.dataset(paths, format="parquet", filesystem=s3.files())
    with duckdb.connect() as connection:
        connection.register("orders", by_pyarrow)
        by_duckdb = connection.execute("select count(*), sum(queue_offset) from orders").fetchone()
    assert by_duckdb == wanted
    offsets = by_pyarrow.to_table(columns=["queue_offset"])["queue_offset"]
    assert (len(offsets), pc.sum(offsets).as_py()) == wanted
    rows: Any
    if archive.kind == "delta":
        rows = pl.scan_delta(TABLE, storage_options=s3.environ)
        sums = rows.select(pl.len(), pl.col("queue_offset").sum()).collect()
    else:
        with archive.opened() as table:
            rows = pl.scan_iceberg(table)
            sums = rows.select(pl.len(), pl.col("queue_offset").sum()).collect()
    assert tuple(map(int, sums.row(0))) == wanted


@of_each_kind
def test_maintenance_is_previewed_and_done_in_the_server(archive: Archive, s3: S3Server) -> None:
    """Files are merged, versions expire, old days go; files of others stay."""
    for _ in range(2):
        archive.send_and_run(options={"maxOffsetsPerTrigger": "150"})
    theirs = f"{archive.home}/day=2026-01-31/part-0.parquet".removeprefix("s3://")
    with s3.files().open_output_stream(theirs) as stream:
        stream.write(b"of another writer")

    def maintain(now_ms: int, **params: Any) -> MaintenanceReport:
        kind: dict[str, Any] = {"kind": archive.kind, "catalog": archive.catalog}
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
    assert archive.bodies() == sorted(archive.topic.sent)
    later_ms = now_ms + 9 * maintenance.DAY_MS
    plan = maintain(later_ms, versions_ms=maintenance.HOUR_MS)
    assert plan.expired_files >= len(before)
    done = maintain(later_ms, versions_ms=maintenance.HOUR_MS, is_preview=False)
    assert done.expired_files == plan.expired_files
    assert len(files()) == done.left_files
    assert archive.bodies() == sorted(archive.topic.sent)
    done = maintain(later_ms, keep_days=7, is_preview=False)
    assert (done.retired_rows, done.left_files) == (8 * COUNT, 0)
    assert archive.bodies() == []
    assert theirs in s3.stored()
    archive.topic.send(count=COUNT)
    assert archive.run().rows == 4 * COUNT, "the offsets stay"


@of_each_kind
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off_costs_no_message(
    archive: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The driver's clock is wrong in every second run; the server's is right."""
    now_ms = SystemClock.now_ms
    for turn in range(4):
        archive.topic.send(count=COUNT)
        with monkeypatch.context() as patch:
            if turn % 2:
                patch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + hours * HOUR_MS)
            assert archive.run(compact=turn > 1).rows == 4 * COUNT
            with open_archive(archive.params()) as table:
                assert table.clean() == 0
    assert archive.bodies() == sorted(archive.topic.sent)


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
    archive.send_and_run(workers)
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


@of_each_kind
def test_credentials_that_expire_while_a_table_is_read_are_one_sentence(
    archive: Archive, s3: S3Server
) -> None:
    archive.send_and_run()
    url = r"s3://lake/orders[^ \n]*"
    # The body of the answer to a GET, which would say so, is not always looked at.
    expired = f"the credentials for {url} have expired: renew "
    says = rf"({expired}|\S+ refuses requests for {url} without a reason: check )[^\n]*$"
    with fault_proxy(s3.url) as proxy:
        proxy.add(Fault.EXPIRED, "GET", "day=", times=1_000)
        storage = {"AWS_ENDPOINT_URL": proxy.url}
        for read in (archive.audit, archive.replay):
            with pytest.raises(StorageFailed, match=f"^{says}"):
                read(storage=storage)
        archive.topic.send(count=COUNT)
        # An Iceberg commit reads its own files, a merge the table's.
        with pytest.raises(RoquetError, match=f"^(the Spark job failed: )?{says}"):
            archive.run(storage=storage, compact=True)
    archive.run(compact=True)
    assert archive.bodies() == sorted(archive.topic.sent)


@of_each_kind
def test_nothing_secret_is_in_the_table_or_in_tasks(archive: Archive, s3: S3Server) -> None:
    from pyspark import cloudpickle

    archive.topic.send(count=COUNT)

    class Looks(InProcessSpark):
        def collect(self) -> list[Any]:
            assert SECRET.encode() not in cloudpickle.dumps(self._work)  # type: ignore[no-untyped-call]
            return super().collect()

    archive.run(Looks())
    for key in s3.stored():
        with s3.files().open_input_file(key) as file:
            assert SECRET.encode() not in file.read()


NOT_THERE = {
    "s3": r"^there is no bucket 'sea' at http://127",
    "gs": r"^there is no bucket 'sea' at http://127.* the name and STORAGE_EMULATOR_HOST$",
    "abfss": r"^there is no container 'sea' at Azure account devst",
}


@everywhere
def test_a_bucket_that_is_not_there_is_named(archive: Archive) -> None:
    scheme, _, rest = archive.table.partition("://")
    target = f"{scheme}://{rest.replace('lake', 'sea', 1)}"
    for read_or_write in (archive.run, archive.audit):
        with pytest.raises(ConfigError, match=NOT_THERE[scheme]):
            read_or_write(target=target)


@of_each_kind
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault.EXPIRED, "^the credentials for s3://lake/orders have expired: renew"),
        (Fault.SKEWED, "because a clock is wrong: set those of the driver"),
        (Fault.ELSEWHERE, "^bucket lake is in another region than us-east-1: set AWS_REGION"),
    ],
)
def test_a_store_that_refuses_in_the_middle_leaves_nothing_visible(
    archive: Archive, s3: S3Server, fault: Fault, says: str
) -> None:
    """The files of the batch are there; what would name them is refused."""
    archive.send_and_run()
    archive.topic.send(count=COUNT)
    with fault_proxy(s3.url) as proxy:
        names = "_delta_log/" if archive.kind == "delta" else "metadata/"
        proxy.add(fault, "PUT", names, times=1_000)
        storage = {"AWS_ENDPOINT_URL": proxy.url}
        with pytest.raises(StorageFailed, match=says) as no:
            archive.run(storage=storage)
        assert "\n" not in str(no.value)
        assert proxy.faults
        assert archive.bodies() == sorted(archive.topic.sent[: 4 * COUNT])
        proxy.clear()
        assert archive.run(storage=storage).rows == 4 * COUNT
    assert archive.bodies() == sorted(archive.topic.sent)


def test_changes_whose_credentials_expire_are_taken_by_the_next_run(
    archive: Archive, s3: S3Server
) -> None:
    target = archive.beside("latest")
    archive.topic.send(count=COUNT, keys=10)
    with fault_proxy(s3.url) as proxy:
        storage = {"AWS_ENDPOINT_URL": proxy.url}
        proxy.add(Fault.EXPIRED, "PUT", "_delta_log/00000000000000000002", times=1_000)
        with pytest.raises(StorageFailed, match="have expired: renew"):
            archive.materialize(target, storage=storage)
        assert Log(target).to_pyarrow_table().num_rows == 0
        proxy.clear()
        assert archive.materialize(target, storage=storage).rows == 4 * COUNT
    assert Log(target).to_pyarrow_table().num_rows == 40


def test_a_wrong_endpoint_is_named(archive: Archive) -> None:
    wrong = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with pytest.raises(StorageFailed, match=r"^http://127.0.0.1:1 cannot be reached for s3://lake"):
        archive.run(storage=wrong)


@everywhere
@pytest.mark.parametrize("path", ["theirs.csv", "theirs/1.csv"])
def test_a_path_with_files_of_others_is_left_alone(archive: Archive, path: str) -> None:
    archive.store.put(path, b"1,2")
    with pytest.raises(ConfigError, match=r"is not empty,? and"):
        archive.run()
    assert archive.files() == [path]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("parquet", "Write --kind delta, the default, or iceberg"),
        ("iceberg", "needs a catalog elsewhere: --catalog https://"),
    ],
)
def test_a_kind_that_cannot_be_is_refused(archive: Archive, kind: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        archive.run(kind=kind)


def test_a_store_that_refuses_access_says_so(orders: PersistentTopic, tmp_path: Path) -> None:
    """A server of its own: it does not forget that it is strict."""
    with s3_server() as strict, strict.reached():
        strict.forbid()
        sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
        for kind, catalog in (("delta", {}), ("iceberg", sql)):
            with pytest.raises(RoquetError, match="refuses access to s3://lake/orders") as no:
                Archive(orders, TABLE, kind, catalog).run()
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
