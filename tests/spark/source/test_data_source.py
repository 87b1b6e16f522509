"""Spark finds the source by itself and reads exactly what the topic holds."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType
from tests.spark.jobs.conftest import Topic

from roquet.arrow import records
from roquet.lake.schema import DEFAULT, TYPES, ddl
from roquet.model.errors import ConfigError
from roquet.spark.source.batch import BatchReader, PushdownReader
from roquet.spark.source.data_source import RoquetDataSource, columns_of
from roquet.spark.typed import read_json
from roquet.testing.cluster import BlockingCluster

ROWS = 100
BODY = "{broker} {queue_id} {at}"


def send(topic: Topic, broker: str, queue_id: int, first: int, last: int) -> None:
    """Messages numbered from `first` to `last`, that one excluded."""
    places = range(first, last)
    columns = {
        "body": [BODY.format(broker=broker, queue_id=queue_id, at=at) for at in places],
        "keys": [f"key{at} more" for at in places],
        "tag": ["odd" if at % 2 else "even" for at in places],
        "message_id": [f"{at:032X}" for at in places],
    }
    topic.send_rows(broker, queue_id, pa.RecordBatch.from_pydict(columns))


@pytest.fixture(scope="module")
def topic() -> Iterator[Topic]:
    """A hundred messages in each of four queues."""
    with BlockingCluster(brokers=2) as running:
        orders = Topic(running)
        for broker, queue_id in orders.queues:
            send(orders, broker, queue_id, 0, ROWS)
        yield orders


def read(spark: SparkSession, topic: Topic, **options: str) -> DataFrame:
    reader = spark.read.format("roquet").option("namesrv", topic.namesrv)
    return reader.option("topic", topic.name).options(**options).load()


def test_a_batch_read_brings_every_message_once(spark: SparkSession, topic: Topic) -> None:
    rows = read(spark, topic, minPartitions="3").collect()
    assert len(rows) == 4 * ROWS
    bodies_by_place = {
        (row.broker, row.queue_id, row.queue_offset): bytes(row.body) for row in rows
    }
    assert bodies_by_place == {
        (broker, queue_id, at): BODY.format(broker=broker, queue_id=queue_id, at=at).encode()
        for broker, queue_id in topic.queues
        for at in range(ROWS)
    }


def test_the_columns_are_typed_and_filled(spark: SparkSession, topic: Topic) -> None:
    frame = read(spark, topic)
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
        (name, TYPES[name]) for name in DEFAULT
    ]
    rows = frame.selectExpr("*", "unix_millis(born_at) as born_ms").collect()
    [row] = [r for r in rows if (r.broker, r.queue_id, r.queue_offset) == ("broker-a", 1, 7)]
    assert (row.topic, row.key, row.tag) == ("orders", "key7", "odd")
    assert row.message_id == f"{7:032X}"
    assert {"KEYS": "key7 more", "TAGS": "odd", "UNIQ_KEY": row.message_id}.items() <= (
        row.properties.items()
    )
    assert {r.born_ms for r in rows} == {1_700_000_000_000}
    assert all(r.stored_at > r.born_at for r in rows)


def test_only_the_chosen_columns_are_made(spark: SparkSession, topic: Topic) -> None:
    assert read(spark, topic, columns="tag,position").columns == ["tag", "position"]
    frame_reader = spark.read.format("roquet").schema("queue_offset bigint, key string")
    frame = frame_reader.options(namesrv=topic.namesrv, topic=topic.name).load()
    assert frame.columns == ["queue_offset", "key"]
    assert max(row.queue_offset for row in frame.collect()) == ROWS - 1


def test_conditions_are_pushed_down_and_checked_again(spark: SparkSession, topic: Topic) -> None:
    frame = read(spark, topic, pushdown="true")
    wanted = frame.where("tag = 'odd' and queue_id = 1 and queue_offset >= 90")
    assert len(wanted.collect()) == 2 * 5
    narrower = wanted.where("stored_at > timestamp '2020-01-01' and broker = 'broker-a'")
    assert len(narrower.collect()) == 5


def test_json_bodies_become_typed_columns(spark: SparkSession, topic: Topic) -> None:
    options = {"namesrv": topic.namesrv, "topic": topic.name, "columns": "queue_offset,body"}
    frame = read_json(spark, options, "a int, _corrupt_record string")
    assert frame.columns == ["queue_offset", "a", "_corrupt_record"]
    bodies = frame.selectExpr("queue_offset", "_corrupt_record as was", "a")
    row = bodies.where("queue_offset = 7").first()
    assert row is not None
    assert (row.was[-1], row.a) == ("7", None), "they are no JSON"


def test_an_option_that_there_is_not_is_named(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'startingOffsets'"):
        read(spark, topic, startingOffset="earliest").collect()


def test_an_empty_range_is_an_empty_table(spark: SparkSession, topic: Topic) -> None:
    assert read(spark, topic, startingOffsets="latest").collect() == []


def test_a_stream_continues_from_its_checkpoint_without_loss_or_duplicates(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    first = run_stream(spark, topic, tmp_path)
    assert first == 4 * ROWS
    send(topic, "broker-b", 1, ROWS, ROWS + 2)
    assert run_stream(spark, topic, tmp_path) == 2
    table = spark.read.schema(ddl(DEFAULT)).parquet(str(tmp_path / "table"))
    rows = table.select("broker", "queue_id", "queue_offset").collect()
    assert len(rows) == len(set(rows)) == 4 * ROWS + 2


def run_stream(spark: SparkSession, topic: Topic, folder: Path) -> int:
    """Everything there is to the table; how many rows the batches had, each within the limit."""
    reader = spark.readStream.format("roquet").option("namesrv", topic.namesrv)
    frame = reader.option("topic", topic.name).option("maxOffsetsPerTrigger", "250").load()
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "table"))
    assert query.awaitTermination(120)
    counts = [progress.numInputRows for progress in query.recentProgress]
    assert max(counts) <= 250
    end = json.loads(query.recentProgress[-1].sources[0].endOffset)
    assert end["orders"]["broker-b"]["1"] == topic.ends["broker-b", 1]
    return sum(counts)


def test_a_schema_of_the_user_is_checked() -> None:
    ours = from_arrow_schema(records.SCHEMA)
    assert columns_of(ours) == tuple(TYPES)
    with pytest.raises(ConfigError, match="cast it"):
        columns_of(StructType([StructField("body", StringType())]))


def test_the_source_is_called_roquet_and_has_a_schema_without_a_broker() -> None:
    source = RoquetDataSource({"namesrv": "nowhere:1", "topic": "t", "columns": "body"})
    assert source.name() == "roquet"
    assert source.schema() == "body binary"


def test_looking_for_the_source_imports_neither_columns_nor_sockets() -> None:
    code = "import sys, roquet.spark.source.data_source; print(*sys.modules)"
    source = str(Path(__file__).parents[3] / "src")
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    ours = {name for name in run.stdout.split() if name.startswith("roquet.")}
    assert not {name for name in ours if name.startswith(("roquet.arrow", "roquet.net"))}


@pytest.mark.parametrize("is_worker", [True, False])
def test_only_workers_leave_what_is_loaded_out_of_collections(is_worker: bool) -> None:
    code = (
        "import gc, pyspark.sql.types as types, roquet.spark.source.data_source as source; "
        "source.RoquetDataSource({'topic': 't'}).streamReader(types.StructType([])); "
        "print(gc.get_freeze_count() > 1000)"
    )
    environ = {**os.environ, "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER" if is_worker else ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, stdout=subprocess.PIPE
    )
    assert done.stdout.split() == [str(is_worker).encode()]


def test_a_stream_has_no_end() -> None:
    options = {"namesrv": "nowhere:1", "topic": "t", "endingTime": "-1 h"}
    refused = RoquetDataSource(options).streamReader(from_arrow_schema(records.SCHEMA))
    # Spark hides an error of streamReader itself behind one of its own.
    for first_call in (refused.getDefaultReadLimit, refused.initialOffset):
        with pytest.raises(ConfigError, match="a stream has no end: leave out endingOffsets"):
            first_call()


def test_a_table_of_sql_is_made_of_its_own_options(caplog: pytest.LogCaptureFixture) -> None:
    added = {"provider": "roquet", "owner": "root", "location": "file:/t", "option.path": "/t"}
    assert RoquetDataSource(added).schema() == ddl(DEFAULT)
    own = {"topic": "orders", "columns": "tag,body"}
    properties = {**added, **own, **{f"option.{name}": text for name, text in own.items()}}
    assert not caplog.messages
    assert RoquetDataSource(properties).schema() == "tag string, body binary"
    assert "Spark does not pass a table's OPTIONS to its reads (topic)" in caplog.text
    with pytest.raises(ConfigError, match="no column 'tags'; did you mean 'tag'"):
        RoquetDataSource({**added, "option.columns": "tags"}).schema()


def test_a_batch_read_refuses_options_that_only_streams_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = from_arrow_schema(records.SCHEMA)
    options = {"namesrv": "nowhere:1", "topic": "t"}
    RoquetDataSource(options).reader(schema)
    assert not caplog.messages
    limits = {"publishprogress": "g", "maxOffsetsPerTrigger": "10"}
    RoquetDataSource({**options, **limits}).reader(schema)
    assert caplog.messages == [
        "a batch read ignores maxOffsetsPerTrigger, publishProgress: only streams use it"
    ]


def test_conditions_are_pushed_down_with_the_option() -> None:
    schema = from_arrow_schema(records.SCHEMA)
    options = {"namesrv": "nowhere:1", "topic": "t"}
    assert type(RoquetDataSource(options).reader(schema)) is BatchReader
    with_pushdown = RoquetDataSource({**options, "pushdown": "true"})
    assert type(with_pushdown.reader(schema)) is PushdownReader


def test_a_schema_with_foreign_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="no column 'queue'; did you mean 'queue_id'"):
        columns_of(StructType([StructField("queue", StringType())]))
