"""Frames and streams written by Spark: all rows, once, or one clear error and nothing visible."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.conftest import create_topic

from roquet.testing.cluster import BlockingCluster

pytestmark = pytest.mark.spark_suite

TIMEOUT_S = 120


class SinkCluster:
    def __init__(self, running: BlockingCluster, spark: SparkSession) -> None:
        self.running = running
        self.namesrv = running.namesrv_addr
        self._spark = spark

    def create(self, topic: str) -> str:
        create_topic(self.running, topic, 4)
        return topic

    def read(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("roquet").option("namesrv", self.namesrv)
        return reader.option("topic", topic).load()

    def bodies(self, topic: str) -> Counter[str]:
        rows = self.read(topic).select(F.col("body").cast("string").alias("body")).collect()
        return Counter(row.body for row in rows)

    def write(self, frame: DataFrame, **options: str) -> None:
        writer = frame.write.format("roquet").mode("append").option("namesrv", self.namesrv)
        writer.options(**options).save()

    def stream(self, frame: DataFrame, folder: Path, **options: str) -> Any:
        """The query, once it has written all there was."""
        writer = frame.writeStream.format("roquet").option("namesrv", self.namesrv)
        writer = writer.option("checkpointLocation", str(folder)).options(**options)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        return query


@pytest.fixture(scope="module")
def place(spark: SparkSession) -> Iterator[SinkCluster]:
    with BlockingCluster(brokers=2) as running:
        yield SinkCluster(running, spark)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as body")


def test_a_table_arrives_with_all_rows_and_columns(place: SinkCluster, spark: SparkSession) -> None:
    topic = place.create("table")
    frame = numbers(spark, 25_000).withColumns(
        {
            "key": F.concat(F.lit("k"), "body"),
            "tag": F.lit("even"),
            "properties": F.create_map(F.lit("colour"), F.lit("red")),
        }
    )
    place.write(frame, topic=topic)
    rows = place.read(topic)
    assert rows.count() == 25_000
    assert rows.select("body").distinct().count() == 25_000
    row = rows.where("key = 'k77'").first()
    assert row is not None
    assert (bytes(row.body), row.tag, row.properties["colour"]) == (b"77", "even", "red")
    assert row.properties["ROQUET_ROW"].count("/") == 3


def test_a_topic_is_copied_with_its_properties(
    place: SinkCluster, spark: SparkSession, tmp_path: Path
) -> None:
    first, second = place.create("original"), place.create("copy")
    place.write(numbers(spark, 1_000).withColumn("tag", F.lit("t")), topic=first)
    read = spark.readStream.format("roquet").option("namesrv", place.namesrv)
    frame = read.option("topic", first).load()
    place.stream(frame, tmp_path, topic=second, otherColumns="ignore")
    columns = ("message_id", "tag", "body")
    left, right = (place.read(topic).select(*columns) for topic in (first, second))
    assert left.exceptAll(right).isEmpty()
    assert right.count() == 1_000


def test_a_body_over_the_default_limit_is_one_clear_error(
    place: SinkCluster, spark: SparkSession
) -> None:
    frame = spark.range(0, 5, 1, 1).selectExpr("rpad(cast(id as string), 4194305, 'x') as body")
    with pytest.raises(PySparkException, match=r"row 0 .* over the limit of 4194304"):
        place.write(frame, topic="clear")


def test_overwriting_is_refused(place: SinkCluster, spark: SparkSession) -> None:
    writer = numbers(spark, 3).write.format("roquet").mode("overwrite")
    with pytest.raises(PySparkException, match="a topic only grows"):
        writer.options(namesrv=place.namesrv, topic="table").save()


def test_a_task_that_fails_leaves_nothing_visible_in_a_transaction(
    place: SinkCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = place.create("torn")
    frame = numbers(spark, 20_000).selectExpr("nullif(body, '19999') as body")
    with pytest.raises(PySparkException, match="has no body"):
        place.write(frame, topic=topic, transactional="true", commits=str(tmp_path))
    assert place.bodies(topic) == Counter()
    place.write(numbers(spark, 2_000), topic=topic, transactional="true", commits=str(tmp_path))
    assert place.bodies(topic) == Counter(map(str, range(2_000)))


def test_a_stream_in_transactions_is_exactly_once_across_restarts(
    place: SinkCluster, spark: SparkSession, tmp_path: Path
) -> None:
    first, second = place.create("from"), place.create("to")
    total = 0
    for at in range(2):
        place.write(numbers(spark, 1_500).selectExpr(f"concat('{at}/', body) as body"), topic=first)
        total += 1_500
        read = spark.readStream.format("roquet").option("namesrv", place.namesrv)
        frame = read.option("topic", first).option("maxOffsetsPerTrigger", "500").load()
        place.stream(frame.select("body"), tmp_path, topic=second, transactional="true")
        bodies = place.bodies(second)
        assert (len(bodies), sum(bodies.values())) == (total, total)
    records = sorted(path.name for path in (tmp_path / "roquet-commits").glob("*.done"))
    batches = json.loads((tmp_path / "metadata").read_text().splitlines()[0])["id"]
    assert len(records) == 6
    assert all(name.startswith(batches) for name in records)
    assert not list((tmp_path / "roquet-commits").glob("*.open"))
