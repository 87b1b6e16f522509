"""Pipeline: a Spark stream from the topic to a table.

A process of its own, `python -m roquet.cli.demo.pipeline SETTINGS`. It gets ready, begins at a
line on stdin, and reports its progress on stdout. The stream is stopped in the middle and started
again from its checkpoint by the same Java process: another one would take longer to start than all
rows take.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

from roquet.cli.demo.facts import TableFacts

if TYPE_CHECKING:
    import pyarrow as pa
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

FACT_COLUMNS: Final = (
    "broker", "queue_id", "queue_offset", "row", "tailnum", "carrier", "hour"
)  # fmt: skip
"""Columns that the facts are counted from."""

BATCHES: Final = 4
"""Batches of the whole topic, of which the stream is stopped after half."""

POLL_S: Final = 0.2

SHORT_LIFE: Final[Mapping[str, str]] = MappingProxyType(
    {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
)
"""Java for a run of seconds: optimized compilation and parallel collection took half its CPU time,
and gained nothing."""


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, as JSON on its command line."""

    namesrv: str
    topic: str
    table: str
    checkpoint: str
    flights: int
    """In the topic."""
    facts: str
    """File for the table's counts at the end."""


class RowsWritten(msgspec.Struct, frozen=True):
    """Progress on stdout."""

    rows: int
    """In the table."""
    stopped: bool = False
    """Whether the stream was stopped in the middle, and is started again."""


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


def rows_to_write(spark: "SparkSession", settings: PipelineSettings) -> "DataFrame":
    """The stream of the table's rows, not started yet."""
    messages = (
        spark.readStream.format("roquet")
        .option("namesrv", settings.namesrv)
        .option("topic", settings.topic)
        .option("maxOffsetsPerTrigger", max(1, settings.flights // BATCHES))
        .load()
    )
    return transform(messages)


def start(rows: "DataFrame", settings: PipelineSettings) -> "StreamingQuery":
    """Start the stream: from the checkpoint to the end of the queues."""
    return (
        rows.writeStream.format("parquet")
        .option("path", settings.table)
        .option("checkpointLocation", settings.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def run(settings: PipelineSettings, begin: TextIO) -> None:
    """Run the stream at a line of `begin`, stopped once, and count the table.

    Does nothing at the end of `begin`: the parent process is gone.
    """
    from roquet.spark.session import session

    spark = session("flights", **SHORT_LIFE)
    spark.sparkContext.setLogLevel("ERROR")
    rows = rows_to_write(spark, settings)
    if begin.readline():
        written = follow(start(rows, settings), 0, settings.flights // 2)
        follow(start(rows, settings), written)
        table = spark.read.parquet(settings.table).select(*FACT_COLUMNS)
        facts = table_facts(table.toArrow())
        Path(settings.facts).write_bytes(msgspec.json.encode(facts))
    spark.stop()


def follow(query: "StreamingQuery", before: int, stop_at: int | None = None) -> int:
    """Report the rows in the table until the stream ends; `before` of them were there earlier.

    Stops the stream when the table has `stop_at` rows; None lets it end with the topic. Gives the
    rows.
    """
    rows = before
    while True:
        # Raises what ended it; takes fractions of seconds, other than its type says.
        ended = query.awaitTermination(POLL_S)  # type: ignore[arg-type]
        rows = before + rows_written(query)
        stopped = stop_at is not None and rows >= stop_at
        if stopped:
            query.stop()
        say(RowsWritten(rows, stopped))
        if ended or stopped:
            return rows


def rows_written(query: "StreamingQuery") -> int:
    """Rows of the batches that this start of the stream has finished."""
    return sum(step.numInputRows for step in query.recentProgress)


def say(moved: RowsWritten) -> None:
    """Print a line for the parent process."""
    print(msgspec.json.encode(moved).decode(), flush=True)


def table_facts(table: "pa.Table") -> TableFacts:
    """Counts of the table's rows, gaps and disorder, from its FACT_COLUMNS."""
    by_hour = table.group_by(["carrier", "hour"]).aggregate([([], "count_all")])
    carriers: dict[str, dict[int, int]] = {}
    for each in by_hour.to_pylist():
        carriers.setdefault(each["carrier"], {})[each["hour"]] = each["count_all"]
    return TableFacts(
        rows=table.num_rows,
        distinct=len(table["row"].unique()),
        gaps=offset_gaps(table),
        disordered=disordered_aircraft(table),
        carriers=carriers,
    )


def offset_gaps(table: "pa.Table") -> int:
    """Number of queue offsets below the highest that no row has."""
    offsets = table.group_by(["broker", "queue_id"]).aggregate(
        [("queue_offset", "max"), ("queue_offset", "count_distinct")]
    )
    return sum(
        each["queue_offset_max"] + 1 - each["queue_offset_count_distinct"]
        for each in offsets.to_pylist()
    )


def disordered_aircraft(table: "pa.Table") -> int:
    """Number of aircraft whose flights are not in one queue in the order of the file."""
    columns = table.sort_by("queue_offset").select(["tailnum", "broker", "queue_id", "row"])
    latest: dict[str, tuple[str, int, int]] = {}
    disordered: set[str] = set()
    for tailnum, *flight in zip(*(each.to_pylist() for each in columns.columns), strict=True):
        broker, queue_id, row = flight
        before = latest.get(tailnum, (broker, queue_id, row))
        if tailnum is not None and (before[:2] != (broker, queue_id) or row < before[2]):
            disordered.add(tailnum)
        latest[tailnum] = broker, queue_id, row
    return len(disordered)


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=PipelineSettings), sys.stdin)
