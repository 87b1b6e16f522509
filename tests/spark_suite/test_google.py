"""Archives in Google's object store, by fake-gcs-server; skipped where there is none."""

import signal
import subprocess
import sys
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.lake.conftest import location_of
from tests.lake.fault_proxy import ROOT, Fault, FaultProxy
from tests.spark_suite.conftest import InProcessSpark
from tests.spark_suite.object_archive import COUNT, TABLES, Archive, in_google

from roquet.arrow.encode import encode
from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.journal.object_lease import LeaseHeld, ObjectLease
from roquet.lake.kinds.delta import conditional_puts
from roquet.lake.kinds.delta.conditional_puts import create_twice
from roquet.lake.kinds.delta.storage import log_options
from roquet.lake.lag import lag_job
from roquet.lake.maintain import maintenance
from roquet.lake.maintain.maintenance import run_here
from roquet.lake.objects.object_store import StorageFailed
from roquet.model.errors import ConfigError
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.jobs.repair import repair_job
from roquet.spark.sink.writers import BatchWriter
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import SendBatch

pytest_plugins = ["tests.spark_suite.object_archive"]
pytestmark = [pytest.mark.spark_suite, in_google]

TABLE = TABLES["google"]


def test_polars_reads_a_table_of_the_bucket(archive: Archive) -> None:
    archive.send_and_run()
    by_polars = pl.scan_delta(TABLE, storage_options=log_options(location_of(TABLE)))
    assert by_polars.select(pl.len()).collect().item() == 4 * COUNT


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
    archive: Archive, when: str
) -> None:
    archive.send_and_run()
    archive.topic.send(count=COUNT)
    command = [sys.executable, "-c", KILLED, archive.topic.namesrv, when]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert len(archive.files("_roquet/runs")) == 1, "its mark is left"
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


def test_of_two_writers_the_bucket_refuses_one(archive: Archive) -> None:
    places = [location_of(f"{TABLE}/{number}") for number in range(conditional_puts.TRIES)]
    results = {create_twice(place, location_of(TABLE)) for place in places}
    assert True in results
    assert False not in results


def test_a_store_that_ignores_the_condition_is_refused(
    archive: Archive, google: FaultProxy
) -> None:
    google.add(Fault.UNCONDITIONAL, times=1_000)
    with pytest.raises(ConfigError, match=r"ignores x-goog-if-generation-match, so .* honours it$"):
        archive.run()
    assert archive.files() == [], "nothing was made, and nothing is left"


def test_maintenance_merges_files_of_the_bucket(archive: Archive) -> None:
    for _ in range(2):
        archive.send_and_run()
    params = maintenance.Params(target=TABLE, kind="delta", is_preview=False)
    done = maintenance.run(params, run_here, SYSTEM_CLOCK.now_ms())
    assert done.merged_files > done.left_files
    report = archive.audit()
    assert report.is_clean
    assert report.rows == 8 * COUNT


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


def test_a_lease_in_the_bucket_is_one_holders(archive: Archive) -> None:
    place = location_of("gs://lake/notes")
    with (
        ObjectLease(ObjectJournal(place), "another repair"),
        pytest.raises(LeaseHeld, match="another repair works here"),
    ):
        ObjectLease(ObjectJournal(place), "another repair")
    ObjectLease(ObjectJournal(place), "another repair").close()


def test_a_bucket_of_records_that_is_not_there_is_named(archive: Archive) -> None:
    with pytest.raises(ConfigError, match=r"^there is no bucket 'sea' at .*STORAGE_EMULATOR_HOST$"):
        ObjectJournal(location_of("gs://sea/commits")).read()


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
    archive.send_and_run()
    assert Fault.FORBIDDEN in google.faults
    assert archive.bodies() == sorted(archive.topic.sent)


def test_a_path_without_a_table_is_named(archive: Archive) -> None:
    says = "gs://lake/orders is no delta table: it has no _delta_log"
    with pytest.raises(ConfigError, match=says):
        archive.audit()


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
