"""Pipeline: a Spark stream from the topic to a table.

A process of its own, `python -m roquet.cli.demo.pipeline SETTINGS`, so that it can be stopped in
the middle and started again. It reports its progress on stdout.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.cli.demo.facts import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS: Final = (
    "broker", "queue_id", "queue_offset", "message_id", "row",
    "tailnum", "carrier", "hour", "origin", "dest", "dep_delay", "stored_at",
)  # fmt: skip
"""Columns of the table."""

FLIGHT: Final = (
    "tailnum string, carrier string, hour int, origin string, dest string, dep_delay int"
)

BATCHES: Final = 10
"""Batches of the whole topic: enough to stop in the middle of it."""

POLL_S: Final = 1


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one run, as JSON on its command line."""

    namesrv: str
    topic: str
    table: str
    checkpoint: str
    flights: int
    """In the topic."""
    before: int = 0
    """Rows that earlier runs wrote."""
    stop_after: int | None = None
    """Stop with at least so many rows in the table; None ends with the topic."""
    facts: str | None = None
    """File for the table's counts at the end; None writes none."""


class RowsWritten(msgspec.Struct, frozen=True):
    """Progress on stdout: the number of rows in the table."""

    rows: int


def transform(messages: "DataFrame") -> "DataFrame":
    """A row of the table for each message of the topic."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

    flight = F.from_json(F.col("body").cast("string"), FLIGHT)
    return (
        messages.withColumn("row", F.col("properties")["row"].cast("bigint"))
        .withColumn("flight", flight)
        .select("*", "flight.*")
        .select(*COLUMNS)
    )


def stream(spark: "SparkSession", settings: PipelineSettings) -> "StreamingQuery":
    """Start the stream: from the checkpoint to the end of the queues."""
    messages = (
        spark.readStream.format("roquet")
        .option("namesrv", settings.namesrv)
        .option("topic", settings.topic)
        .option("maxOffsetsPerTrigger", max(1, settings.flights // BATCHES))
        .load()
    )
    return (
        transform(messages)
        .writeStream.format("parquet")
        .option("path", settings.table)
        .option("checkpointLocation", settings.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def run(settings: PipelineSettings) -> None:
    """Run the stream, and count the table if asked for."""
    from roquet.spark.session import session

    spark = session("flights")
    spark.sparkContext.setLogLevel("ERROR")
    query = stream(spark, settings)
    follow(query, settings)
    if settings.facts is not None:
        facts = table_facts(spark.read.parquet(settings.table))
        say(RowsWritten(facts.rows))
        Path(settings.facts).write_bytes(msgspec.json.encode(facts))
    spark.stop()


def follow(query: "StreamingQuery", settings: PipelineSettings) -> None:
    """Report the stream's progress until it ends, or stop it in the middle."""
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(POLL_S))  # raises what ended it
        rows = settings.before + sum(step.numInputRows for step in query.recentProgress)
        say(RowsWritten(rows))
        if settings.stop_after is not None and rows >= settings.stop_after:
            query.stop()
            ended = True


def say(moved: RowsWritten) -> None:
    """Print a line for the parent process."""
    print(msgspec.json.encode(moved).decode(), flush=True)


def table_facts(table: "DataFrame") -> TableFacts:
    """Counts of the table's rows, gaps and disorder."""
    from pyspark.sql import functions as F  # noqa: N812

    totals = table.agg(F.count("*").alias("rows"), F.countDistinct("row").alias("distinct")).first()
    by_hour = table.groupBy("carrier", "hour").count().collect()
    carriers: dict[str, dict[int, int]] = {}
    for carrier, hour, count in by_hour:
        carriers.setdefault(carrier, {})[hour] = count
    return TableFacts(
        rows=totals["rows"] if totals else 0,
        distinct=totals["distinct"] if totals else 0,
        gaps=offset_gaps(table),
        disordered=disordered_aircraft(table),
        carriers=carriers,
    )


def offset_gaps(table: "DataFrame") -> int:
    """Number of queue offsets below the highest that no row has."""
    from pyspark.sql import functions as F  # noqa: N812

    missing = F.max("queue_offset") + 1 - F.countDistinct("queue_offset")
    queues = table.groupBy("broker", "queue_id").agg(missing.alias("missing"))
    return sum(int(queue["missing"]) for queue in queues.collect())


def disordered_aircraft(table: "DataFrame") -> int:
    """Number of aircraft whose flights are not in one queue in the order of the file."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    before = F.lag("row").over(Window.partitionBy("tailnum").orderBy("queue_offset"))
    queues = F.countDistinct("broker", "queue_id")
    return (
        table.where(F.col("tailnum").isNotNull())
        .withColumn("is_late", F.col("row") < before)
        .groupBy("tailnum")
        .agg(F.bool_or("is_late").alias("is_late"), queues.alias("queues"))
        .where("is_late or queues > 1")
        .count()
    )


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=PipelineSettings))
