"""The flights on Spark: a stream from the topic to a table.

A process of its own, `python -m roquet.cli.demo.pipeline SETTINGS`, so that it can be stopped in
the middle and started again. It says on stdout how far it is.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.cli.demo import audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS: Final = (
    "broker", "queue_id", "queue_offset", "message_id", "row",
    "tailnum", "carrier", "hour", "origin", "dest", "dep_delay", "stored_at",
)  # fmt: skip
"""The table."""

FLIGHT: Final = (
    "tailnum string, carrier string, hour int, origin string, dest string, dep_delay int"
)

BATCHES: Final = 10
"""So many steps the whole topic takes: enough to stop in the middle of it."""

POLL_S: Final = 1


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the pipeline."""

    namesrv: str
    topic: str
    table: str
    checkpoint: str
    flights: int
    """In the topic."""
    before: int = 0
    """Rows that earlier runs brought into the table."""
    stop_after: int | None = None
    """Stop in the middle, with so many rows in the table; None goes on until all are there."""
    facts: str | None = None
    """Where to write what is in the table at the end."""


class RowsWritten(msgspec.Struct, frozen=True):
    """What the process says on stdout: so many rows are in the table."""

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
    """The topic to the table: from where the checkpoint stands to the end of the queues."""
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
    """Streams, stops in the middle when told to, and judges the table when told to."""
    from roquet.spark.session import session

    spark = session("flights")
    spark.sparkContext.setLogLevel("ERROR")
    query = stream(spark, settings)
    follow(query, settings)
    if settings.facts is not None:
        found = audit.table_facts(spark.read.parquet(settings.table))
        say(RowsWritten(found.rows))
        Path(settings.facts).write_bytes(msgspec.json.encode(found))
    spark.stop()


def follow(query: "StreamingQuery", settings: PipelineSettings) -> None:
    """Says how far the stream is until it has ended, or until it is time to stop it."""
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(POLL_S))  # raises what ended it
        rows = settings.before + sum(step.numInputRows for step in query.recentProgress)
        say(RowsWritten(rows))
        if settings.stop_after is not None and rows >= settings.stop_after:
            query.stop()
            ended = True


def say(moved: RowsWritten) -> None:
    """A line for the parent process."""
    print(msgspec.json.encode(moved).decode(), flush=True)


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=PipelineSettings))
