"""Spark's writers: refusals, commit messages, and one commit per batch."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType
from tests.spark.sink.conftest import SinkCluster

from roquet.model.errors import ConfigError, UsageError
from roquet.spark.sink import writers
from roquet.spark.sink.writers import BatchWriter, StreamWriter, TaskCommitMessage, micro_batch
from roquet.spark.source.data_source import RoquetDataSource

BODY = StructType([StructField("body", BinaryType())])


def rows(*bodies: bytes) -> Any:
    return iter([pa.RecordBatch.from_pydict({"body": list(bodies)})])


def options_of(sink_cluster: SinkCluster, topic: str, **more: str) -> dict[str, str]:
    sink_cluster.create(topic)
    return {"namesrv": sink_cluster.namesrv, "topic": topic, "transactional": "true", **more}


class FakeTaskContext:
    def __init__(self, query: str | None, batch: str | None) -> None:
        self._known = {writers.QUERY_ID: query, writers.BATCH_ID: batch}

    def get(self) -> "FakeTaskContext":
        return self

    def partitionId(self) -> int:  # noqa: N802
        return 0

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._known[name]


@pytest.fixture
def batch_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "TaskContext", FakeTaskContext("query", "3"))


def test_the_source_gives_a_writer_of_each_kind() -> None:
    source = RoquetDataSource({"namesrv": "here:1", "topic": "orders"})
    assert isinstance(source.writer(BODY, overwrite=False), BatchWriter)
    assert isinstance(source.streamWriter(schema=BODY, overwrite=False), StreamWriter)


def test_a_topic_cannot_be_overwritten() -> None:
    options = {"namesrv": "here:1", "topic": "orders"}
    with pytest.raises(ConfigError, match=r"a topic only grows: use mode\('append'\)"):
        BatchWriter(options, BODY, overwrite=True)
    with pytest.raises(ConfigError, match="a topic only grows: use outputMode"):
        StreamWriter(options, BODY, overwrite=True)


def test_a_wrong_frame_is_refused_before_anything_is_sent() -> None:
    schema = StructType([*BODY.fields, StructField("queue_id", IntegerType())])
    with pytest.raises(ConfigError, match="no column 'queue_id'"):
        BatchWriter({"namesrv": "here:1", "topic": "orders"}, schema, overwrite=False)
    with pytest.raises(ConfigError, match="column 'body' is missing"):
        StreamWriter(
            {"namesrv": "here:1", "topic": "orders"},
            StructType([StructField("key", StringType())]),
            overwrite=False,
        )


def test_a_stream_is_no_job() -> None:
    with pytest.raises(ConfigError, match="option 'job' names a batch write"):
        StreamWriter({"namesrv": "h:1", "topic": "t", "job": "j"}, BODY, overwrite=False)


def test_a_batch_write_goes_to_the_topic(sink_cluster: SinkCluster) -> None:
    sink_cluster.create("batch")
    writer = BatchWriter({"namesrv": sink_cluster.namesrv, "topic": "batch"}, BODY, overwrite=False)
    writer = pickle.loads(pickle.dumps(writer))
    message = writer.write(rows(b"a", b"b"))
    assert (message.rows, message.halves) == (2, b"")
    writer.commit([message])
    assert sink_cluster.bodies("batch") == [b"a", b"b"]
    properties = [dict(pairs) for pairs in sink_cluster.read("batch")["properties"].to_pylist()]
    assert {one["ROQUET_ROW"].rpartition("/")[0] for one in properties} == {f"{writer.job}/0/0"}


def test_a_named_job_that_is_committed_writes_nothing_again(
    sink_cluster: SinkCluster, tmp_path: Path
) -> None:
    options = options_of(sink_cluster, "job", commits=str(tmp_path), job="nightly")
    for _ in range(2):
        writer = BatchWriter(options, BODY, overwrite=False)
        message = writer.write(rows(b"a", b"b"))
        writer.commit([message])
    assert message.rows == 0
    assert sink_cluster.bodies("job") == [b"a", b"b"]


def test_a_job_without_a_name_leaves_no_record(sink_cluster: SinkCluster, tmp_path: Path) -> None:
    options = options_of(sink_cluster, "nameless", commits=str(tmp_path))
    writer = BatchWriter(options, BODY, overwrite=False)
    writer.commit([writer.write(rows(b"a"))])
    assert sink_cluster.bodies("nameless") == [b"a"]
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_micro_batch_that_is_run_again_writes_nothing(
    sink_cluster: SinkCluster, tmp_path: Path, batch_3: None
) -> None:
    options = options_of(sink_cluster, "micro", checkpointlocation=str(tmp_path), queryname="q")
    first = StreamWriter(options, BODY, overwrite=False).write(rows(b"a"))
    assert sink_cluster.bodies("micro") == []
    StreamWriter(options, BODY, overwrite=False).commit([first], 3)
    assert sink_cluster.bodies("micro") == [b"a"]
    again = StreamWriter(options, BODY, overwrite=False).write(rows(b"a"))
    assert (again.query, again.rows) == ("query", 0)
    StreamWriter(options, BODY, overwrite=False).commit([again], 3)
    assert sink_cluster.bodies("micro") == [b"a"]
    assert (tmp_path / "roquet-commits" / "query.000000000003.done").exists()


def test_an_aborted_micro_batch_is_never_seen(
    sink_cluster: SinkCluster, tmp_path: Path, batch_3: None
) -> None:
    options = options_of(sink_cluster, "torn", commits=str(tmp_path))
    writer = StreamWriter(options, BODY, overwrite=False)
    writer.abort([writer.write(rows(b"a")), None], 3)
    writer.abort([None], 3)
    writer.commit([writer.write(rows(b"b"))], 3)
    assert sink_cluster.bodies("torn") == [b"b"]


def test_without_transactions_there_is_nothing_to_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    for name in ("commit", "abort"):
        monkeypatch.setattr(f"roquet.spark.sink.commit.{name}", lambda *args: calls.append(args))
    options = {"namesrv": "nowhere:1", "topic": "t"}
    for writer in (
        BatchWriter(options, BODY, overwrite=False),
        StreamWriter(options, BODY, overwrite=False),
    ):
        arguments: Any = (
            [TaskCommitMessage("q", 1)],
            *([3] if isinstance(writer, StreamWriter) else []),
        )
        writer.commit(*arguments)
        writer.abort(*arguments)
    assert calls == []


def test_a_stream_knows_its_query_from_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "TaskContext", FakeTaskContext(None, None))
    with pytest.raises(UsageError, match="Spark does not say"):
        micro_batch()
    monkeypatch.setattr(writers, "TaskContext", FakeTaskContext("q", "12"))
    assert micro_batch() == ("q", 12)


@pytest.mark.spark_suite
def test_spark_writes_a_frame(spark: SparkSession, sink_cluster: SinkCluster) -> None:
    sink_cluster.create("frame")
    frame = spark.range(0, 3_000, 1, 2).selectExpr("cast(id as string) as body", "'t' as tag")
    writer = frame.write.format("roquet").mode("append").option("namesrv", sink_cluster.namesrv)
    writer.option("topic", "frame").save()
    assert sink_cluster.bodies("frame") == sorted(b"%d" % at for at in range(3_000))
