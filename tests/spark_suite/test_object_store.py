"""Archives in an S3 server: exactly once without renames and locks; a sentence per refusal."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from pyspark.sql import SparkSession
from tests.spark_suite.conftest import (
    SECRET,
    InProcessSpark,
    PersistentTopic,
    S3Server,
    s3_server,
)

from roquet.model.errors import ConfigError, RoquetError
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, open_archive, run
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.replay import replay_job
from roquet.spark.tables import object_staging
from roquet.spark.tables.object_location import ObjectLocation
from roquet.spark.tables.object_staging import ObjectStaging
from roquet.spark.tables.object_store import StorageFailed
from roquet.spark.tables.output_files import new_file
from roquet.spark.tables.table import TableConflict

pytestmark = pytest.mark.spark_suite

TABLE = "s3://lake/orders"
COUNT = 100
"""Messages sent to each of four queues at a time."""


class Archive:
    """Archives of the topic to one table of the server; tasks run in this process."""

    def __init__(self, topic: PersistentTopic) -> None:
        self.topic = topic

    def params(self, **params: Any) -> Params:
        options = {"namesrv": self.topic.namesrv, "minPartitions": "2", **params.pop("options", {})}
        arguments = {"topic": "orders", "target": TABLE, "kind": "delta", "options": options}
        return Params(**{**arguments, **params})

    def run(self, spark: Any = None, **params: Any) -> ArchiveProgress:
        session: Any = spark or InProcessSpark()
        return run(self.params(**params), lambda: session)


@pytest.fixture
def archive(s3: S3Server, orders: PersistentTopic) -> Archive:
    return Archive(orders)


def bodies() -> list[bytes]:
    """What anybody else reads from the table."""
    rows = pa.table(Log(TABLE).to_pyarrow_table(columns=["body"]))
    return sorted(rows["body"].to_pylist())


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
    assert bodies() == sorted(archive.topic.sent)
    assert not [key for key in s3.stored() if "_roquet" in key], "no run has left a mark"


def test_runs_batches_and_merges_make_one_table(archive: Archive) -> None:
    for turn in range(3):
        archive.topic.send(count=COUNT)
        done = archive.run(options={"maxOffsetsPerTrigger": "150"}, compact=turn == 2)
        assert (done.rows, done.commits) == (4 * COUNT, 3 + (turn == 0))
    assert bodies() == sorted(archive.topic.sent)
    assert done.merged > 3


def test_the_second_of_two_archives_commits_nothing(archive: Archive) -> None:
    archive.topic.send(count=COUNT)

    class MeetsAnother(InProcessSpark):
        def collect(self) -> list[Any]:
            archive.run()
            return super().collect()

    with pytest.raises(TableConflict, match="another archive writes to it"):
        archive.run(MeetsAnother())
    assert bodies() == sorted(archive.topic.sent)


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
    assert bodies() == sorted(archive.topic.sent)


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
    assert bodies() == sorted(archive.topic.sent)


def test_orphans_go_and_what_versions_name_stays(
    archive: Archive, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.topic.send(count=COUNT)
    archive.run(options={"maxOffsetsPerTrigger": "150"}, compact=True)
    Log(TABLE).create_checkpoint()
    before = {key for key in s3.stored() if key.endswith(".parquet")}
    killed = ObjectStaging(ObjectLocation(TABLE, storage(s3)))
    file = new_file(killed.begin(), "2026-01-31")
    file.stream.write(b"half of a file")
    file.complete()
    theirs = "lake/orders/day=2026-01-31/part-0.parquet"
    with s3.files().open_output_stream(theirs) as stream:
        stream.write(b"of another writer")
    with open_archive(archive.params()) as table:
        assert table.clean() == 0, "it is young"
    monkeypatch.setattr(object_staging, "ORPHAN_MS", -60_000)
    monkeypatch.setattr(object_staging, "MARK_MS_MAX", -60_000)
    with open_archive(archive.params()):
        left = {key for key in s3.stored() if key.endswith(".parquet")}
    assert left == before | {theirs}
    assert not [key for key in s3.stored() if "_roquet" in key]
    assert bodies() == sorted(archive.topic.sent)
    first = Log(TABLE, version=2).to_pyarrow_table()
    assert first.num_rows, "older versions can be read as before"


def storage(s3: S3Server) -> dict[str, str]:
    return {name: s3.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION")}


def test_an_audit_and_a_replay_read_the_same_url(archive: Archive) -> None:
    archive.topic.send(count=COUNT)
    archive.run()
    options = {"namesrv": archive.topic.namesrv}
    audit = audit_job.Params(topic="orders", target=TABLE, options=options)
    report = audit_job.run(audit)
    assert report.is_clean
    assert report.rows == 4 * COUNT
    back = replay_job.Params(
        source=TABLE, topic="orders", options=options, same_topic=True, tasks=2
    )
    spark: Any = InProcessSpark
    assert replay_job.run(back, spark).rows == 4 * COUNT
    assert replay_job.run(back, spark).rows == 0


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


def test_a_bucket_that_is_not_there_is_named(archive: Archive) -> None:
    with pytest.raises(ConfigError, match=r"^there is no bucket 'sea' at http://127"):
        archive.run(target="s3://sea/orders")
    options = {"namesrv": archive.topic.namesrv}
    audit = audit_job.Params(topic="orders", target="s3://sea/orders", options=options)
    with pytest.raises(ConfigError, match=r"^there is no bucket 'sea'"):
        audit_job.run(audit)


def test_a_wrong_endpoint_is_named(archive: Archive) -> None:
    wrong = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with pytest.raises(StorageFailed, match=r"^http://127.0.0.1:1 cannot be reached for s3://lake"):
        archive.run(storage=wrong)


def test_a_path_with_files_of_others_is_left_alone(archive: Archive, s3: S3Server) -> None:
    with s3.files().open_output_stream("lake/orders/theirs.csv") as stream:
        stream.write(b"1,2")
    with pytest.raises(ConfigError, match="is not empty and no archive"):
        archive.run()
    assert s3.stored() == ["lake/orders/theirs.csv"]


@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_kinds_that_need_a_directory_are_refused(archive: Archive, kind: str) -> None:
    with pytest.raises(ConfigError, match="in an object store use --kind delta"):
        archive.run(kind=kind)


def test_a_store_that_refuses_access_says_so(orders: PersistentTopic) -> None:
    """A server of its own: it does not forget that it is strict."""
    with s3_server() as strict, strict.reached():
        strict.forbid()
        with pytest.raises(RoquetError, match="refuses access to s3://lake/orders") as no:
            Archive(orders).run()
    assert SECRET not in str(no.value)
