"""Archives in Google's object store, by fake-gcs-server; skipped where there is none.

A proxy of these tests is in front of it (`tests.lake.google_proxy`). It adds what the server lacks
of the API that deltalake asks for: uploads in one request, their condition, `start-after` of lists,
and 404 for a bucket that is not there. The server itself decides about conditions.
"""

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable as Log
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.lake.fault_proxy import ROOT, Fault, FaultProxy, fault_proxy
from tests.spark_suite.conftest import InProcessSpark, PersistentTopic

from harness.ports import free_port
from roquet.arrow.encode import encode
from roquet.lake.files import object_staging
from roquet.lake.files.object_staging import ObjectStaging
from roquet.lake.files.output_files import new_file
from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.journal.object_lease import LeaseHeld, ObjectLease
from roquet.lake.kinds.delta import conditional_puts
from roquet.lake.kinds.delta.conditional_puts import create_twice
from roquet.lake.kinds.delta.storage import log_options
from roquet.lake.lag import lag_job
from roquet.lake.maintain import maintenance
from roquet.lake.maintain.maintenance import run_here
from roquet.lake.objects.cloud_file_systems import google_file_system
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore, StorageFailed
from roquet.lake.open_table import table_location
from roquet.lake.table import TableConflict
from roquet.model.errors import ConfigError
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, open_archive, run
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.materialize import materialize_job
from roquet.spark.jobs.repair import repair_job
from roquet.spark.jobs.replay import replay_job
from roquet.spark.sink.writers import BatchWriter
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import SendBatch

SERVER = shutil.which("fake-gcs-server")

pytestmark = [
    pytest.mark.spark_suite,
    pytest.mark.skipif(
        SERVER is None, reason="no fake-gcs-server on PATH: tools/install/servers.sh"
    ),
]

TABLE = "gs://lake/orders"

COUNT = 100
"""Messages sent to each of four queues at a time."""


@pytest.fixture(scope="module")
def google() -> Iterator[FaultProxy]:
    """The server with the bucket `lake`, by way of the proxy."""
    port = free_port()
    command = [SERVER or "", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-public-host", "127.0.0.1", "-backend", "memory", "-log-level", "error"]
    with subprocess.Popen(command) as process:
        try:
            for _ in range(300):
                assert process.poll() is None, "fake-gcs-server ended"
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            bucket: Any = {"scheme": "http", "endpoint_override": f"127.0.0.1:{port}"}
            pafs.GcsFileSystem(anonymous=True, project_id="tests", **bucket).create_dir("lake")
            with fault_proxy(f"http://127.0.0.1:{port}", "tests.lake.google_proxy") as proxy:
                yield proxy
        finally:
            process.kill()


@pytest.fixture
def lake(google: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The place of the table in an empty bucket."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.url)
    conditional_puts.check_server.cache_clear()
    place = location()
    files: pafs.FileSystem = google_file_system(tuple(place.options.items()))
    yield ObjectStore(place)
    google.clear()
    for info in files.get_file_info(pafs.FileSelector("lake", recursive=True)):
        files.delete_file(info.path)


def location(url: str = TABLE) -> ObjectLocation:
    place = table_location(url)
    assert isinstance(place, ObjectLocation)
    return place


def log_of(url: str = TABLE) -> Log:
    return Log(url, storage_options=log_options(location(url)))


class Archive:
    """Archives of the topic to one table of the bucket; tasks run in this process."""

    def __init__(self, topic: PersistentTopic) -> None:
        self.topic = topic
        self.options = {"namesrv": topic.namesrv}

    def params(self, **params: Any) -> Params:
        options = {**self.options, "minPartitions": "2", **params.pop("options", {})}
        arguments = {"topic": "orders", "target": TABLE, "kind": "delta", "options": options}
        return Params(**{**arguments, **params})

    def run(self, spark: Any = None, **params: Any) -> ArchiveProgress:
        session: Any = spark or InProcessSpark()
        return run(self.params(**params), lambda: session)

    def bodies(self) -> list[bytes]:
        return sorted(log_of().to_pyarrow_table(columns=["body"])["body"].to_pylist())


@pytest.fixture
def archive(lake: ObjectStore, orders: PersistentTopic) -> Archive:
    return Archive(orders)


def test_a_topic_becomes_a_table_of_the_bucket_through_spark(
    spark: SparkSession, archive: Archive, lake: ObjectStore
) -> None:
    for compact in (False, True):
        archive.topic.send(count=COUNT)
        assert archive.run(spark, compact=compact).rows == 4 * COUNT
    assert archive.run(spark).rows == 0
    assert archive.bodies() == sorted(archive.topic.sent)
    assert lake.files("_roquet/runs") == [], "no run has left a mark"
    by_polars = pl.scan_delta(TABLE, storage_options=log_options(lake.location))
    assert by_polars.select(pl.len()).collect().item() == 8 * COUNT


KILLED = """
import os, signal, sys
from deltalake import DeltaTable as Log
from tests.spark_suite.conftest import InProcessSpark
from roquet.spark.jobs.archive.archive_job import Params, run

write = Log.create_write_transaction

def dies(log, *args, **kwargs):
    if sys.argv[2] == "after":
        write(log, *args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)

Log.create_write_transaction = dies
options = {"namesrv": sys.argv[1], "minPartitions": "2"}
params = Params(topic="orders", target="gs://lake/orders", kind="delta", options=options)
run(params, InProcessSpark)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_killed_at_its_commit_archives_each_message_once(
    archive: Archive, lake: ObjectStore, when: str
) -> None:
    archive.topic.send(count=COUNT)
    archive.run()
    archive.topic.send(count=COUNT)
    command = [sys.executable, "-c", KILLED, archive.topic.namesrv, when]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert len(lake.files("_roquet/runs")) == 1, "its mark is left"
    assert archive.run().rows == (4 * COUNT if when == "before" else 0)
    assert archive.bodies() == sorted(archive.topic.sent)


def test_a_topic_is_archived_once_through_a_store_that_fails(
    archive: Archive, google: FaultProxy
) -> None:
    """Requests are reset and slow, and answers of commits are lost.

    No answer of an upload is: the server forgets an upload that is complete, so pyarrow, which asks
    how far it is, gets 404. Google's store answers that it is complete.
    """
    for fault in (Fault.RESET, Fault.SLOW_DOWN):
        google.add(fault, "PUT", "^/upload/", skip=1)
        google.add(fault, "GET", skip=5)
    google.add(Fault.LOST_ANSWER, part="_delta_log/00000000000000000002.json")
    google.add(Fault.FAILED_ANSWER, part="_delta_log/00000000000000000003.json")
    for _ in range(2):
        archive.topic.send(count=COUNT)
        assert archive.run(options={"maxOffsetsPerTrigger": "150"}).rows == 4 * COUNT
    happened = {*google.faults}
    assert happened >= {Fault.RESET, Fault.SLOW_DOWN, Fault.LOST_ANSWER, Fault.FAILED_ANSWER}
    assert archive.bodies() == sorted(archive.topic.sent)


def test_of_two_commits_at_the_same_moment_the_bucket_takes_one(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_of_two_writers_the_bucket_refuses_one(lake: ObjectStore) -> None:
    places = [location(f"{TABLE}/{number}") for number in range(conditional_puts.TRIES)]
    results = {create_twice(place, lake.location) for place in places}
    assert True in results
    assert False not in results


def test_a_store_that_ignores_the_condition_is_refused(
    archive: Archive, lake: ObjectStore, google: FaultProxy
) -> None:
    google.add(Fault.UNCONDITIONAL, times=1_000)
    with pytest.raises(ConfigError, match=r"ignores x-goog-if-generation-match, so .* honours it$"):
        archive.run()
    assert lake.files() == [], "nothing was made, and nothing is left"


def test_orphans_go_and_the_table_stays(
    archive: Archive, lake: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.topic.send(count=COUNT)
    archive.run()
    before = {file.path for file in lake.files() if file.path.endswith(".parquet")}
    killed = new_file(ObjectStaging(location()).begin(), "2026-01-31")
    killed.stream.write(b"half of a file")
    killed.complete()
    lake.put("day=2026-01-31/part-0.parquet", b"of another writer")
    with open_archive(archive.params()) as table:
        assert table.clean() == 0, "it is young"
    monkeypatch.setattr(object_staging, "ORPHAN_MS", -60_000)
    monkeypatch.setattr(object_staging, "MARK_MS_MAX", -60_000)
    with open_archive(archive.params()):
        left = {file.path for file in lake.files() if file.path.endswith(".parquet")}
    assert left == {*before, "day=2026-01-31/part-0.parquet"}


def test_audit_replay_and_maintenance_read_the_url(archive: Archive) -> None:
    for _ in range(2):
        archive.topic.send(count=COUNT)
        archive.run()
    done = maintenance.run(
        maintenance.Params(target=TABLE, kind="delta", is_preview=False),
        run_here,
        SYSTEM_CLOCK.now_ms(),
    )
    assert done.merged_files > done.left_files
    audit = audit_job.Params(topic="orders", target=TABLE, options=archive.options)
    report = audit_job.run(audit)
    assert report.is_clean
    assert report.rows == 8 * COUNT
    back = replay_job.Params(
        source=TABLE, topic="orders", options=archive.options, same_topic=True, tasks=2
    )
    spark: Any = InProcessSpark
    assert replay_job.run(back, spark).rows == 8 * COUNT
    assert replay_job.run(back, spark).rows == 0


def test_the_latest_of_each_key_is_kept_in_the_bucket(archive: Archive) -> None:
    params = materialize_job.Params(
        topic="orders", target="gs://lake/latest", buckets=1, options=archive.options
    )
    spark: Any = InProcessSpark()
    for _ in range(2):
        archive.topic.send(count=COUNT, keys=10)
        assert materialize_job.run(params, lambda: spark).rows == 4 * COUNT
    rows = log_of("gs://lake/latest").to_pyarrow_table()
    assert len(set(rows["key"].to_pylist())) == rows.num_rows == 40


def test_samples_of_lag_lie_in_the_bucket(archive: Archive) -> None:
    target = "gs://lake/lag"
    params = lag_job.Params(target=target, namesrv=archive.topic.namesrv, every_ms=100, for_ms=200)
    for _ in range(2):
        done = lag_job.run(params)
        assert (done.samples, done.page) == (3, f"{target}/lag.html")
    with pytest.raises(ConfigError, match="not empty and holds no samples"):
        lag_job.open_samples(lag_job.Params(target="gs://lake/lag/samples"))


DEAD = "%DLQ%billing"


def test_letters_in_the_bucket_are_sent_once(archive: Archive) -> None:
    topic = archive.topic
    properties = [
        [("DLQ_ORIGIN_TOPIC", "orders"), ("UNIQ_KEY", f"ID{at}"), ("DELAY", "0")] for at in range(3)
    ]
    rows = pa.RecordBatch.from_pydict(
        {
            "body": [b"letter %d" % at for at in range(3)],
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        }
    )
    with BlockingChannel(topic.running.broker_addrs[0]) as channel:
        channel.call(CreateTopic(topic=DEAD, read_queue_nums=1, write_queue_nums=1, perm=6))
        body = b"".join(encode(rows).to_pylist())
        channel.call(SendBatch(
            batch=True,
            producer_group="t", topic=DEAD, queue_id=0, born_timestamp=1_700_000_000_000, body=body
        ))  # fmt: skip
    params = repair_job.Params(
        group="billing",
        directory="gs://lake/letters",
        options={"namesrv": topic.namesrv},
        resend=True,
        ids=("ID0", "ID1", "ID2"),
    )
    spark: Any = InProcessSpark
    done = repair_job.run(params, spark)
    assert (done.letters, done.sent) == (3, 3)
    assert repair_job.run(params, spark).sent == 0


def test_the_records_of_a_sink_lie_in_the_bucket(archive: Archive) -> None:
    """A job that was committed writes nothing again."""
    options = {"topic": "orders", "transactional": "true", "job": "nightly"}
    options |= {"namesrv": archive.topic.namesrv, "commits": "gs://lake/commits"}
    schema = StructType([StructField("body", BinaryType())])
    for count in (3, 0):
        writer = BatchWriter(options, schema, overwrite=False)
        rows = pa.RecordBatch.from_pydict({"body": [b"1", b"2", b"3"]})
        message = writer.write(iter([rows]))
        assert message.rows == count
        writer.commit([message])
    assert archive.run().rows == 3


def test_a_lease_in_the_bucket_is_one_holders(lake: ObjectStore) -> None:
    place = location("gs://lake/notes")
    with (
        ObjectLease(ObjectJournal(place), "another repair"),
        pytest.raises(LeaseHeld, match="another repair works here"),
    ):
        ObjectLease(ObjectJournal(place), "another repair")
    ObjectLease(ObjectJournal(place), "another repair").close()


def test_a_bucket_that_is_not_there_is_named(archive: Archive) -> None:
    says = r"^there is no bucket 'sea' at http://127.* the name and STORAGE_EMULATOR_HOST$"
    with pytest.raises(ConfigError, match=says):
        archive.run(target="gs://sea/orders")
    audit = audit_job.Params(topic="orders", target="gs://sea/orders", options=archive.options)
    with pytest.raises(ConfigError, match=says):
        audit_job.run(audit)
    with pytest.raises(ConfigError, match=says):
        ObjectJournal(location("gs://sea/commits")).read()


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_store_that_refuses_access_says_so(
    archive: Archive, google: FaultProxy, method: str
) -> None:
    """At the beginning, or at the commit."""
    archive.run()
    archive.topic.send(count=COUNT)
    google.add(Fault.FORBIDDEN, method, times=1_000)
    says = (
        r"^http://127\S+ refuses access to gs://lake/orders: check GOOGLE_APPLICATION_CRED[^\n]*$"
    )
    with pytest.raises(StorageFailed, match=says):
        archive.run()
    google.clear()
    assert archive.run().rows == 4 * COUNT


def test_access_to_the_objects_of_a_bucket_is_enough(archive: Archive, google: FaultProxy) -> None:
    """Google's roles for objects do not allow to ask for the bucket."""
    google.add(Fault.FORBIDDEN, "GET", "/b/lake$", times=1_000)
    archive.topic.send(count=COUNT)
    assert archive.run().rows == 4 * COUNT
    assert Fault.FORBIDDEN in google.faults
    assert archive.bodies() == sorted(archive.topic.sent)


@pytest.mark.parametrize("path", ["theirs.csv", "theirs/1.csv"])
def test_a_path_with_files_of_others_is_left_alone(
    archive: Archive, lake: ObjectStore, path: str
) -> None:
    lake.put(path, b"1,2")
    with pytest.raises(ConfigError, match="is not empty and no archive"):
        archive.run()
    assert [file.path for file in lake.files()] == [path]


def test_a_path_without_a_table_is_named(archive: Archive) -> None:
    audit = audit_job.Params(topic="orders", target=TABLE, options=archive.options)
    with pytest.raises(
        ConfigError, match="gs://lake/orders is no delta table: it has no _delta_log"
    ):
        audit_job.run(audit)


def test_an_emulator_that_is_away_is_named(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.lake.objects.cloud_file_systems.GOOGLE_RETRY_S", 1)
    storage = {"STORAGE_EMULATOR_HOST": "127.0.0.1:1"}
    says = (
        "^http://127.0.0.1:1 cannot be reached for gs://lake/orders: check STORAGE_EMULATOR_HOST "
    )
    with pytest.raises(StorageFailed, match=says):
        archive.run(storage=storage)
