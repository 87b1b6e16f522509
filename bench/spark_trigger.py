"""How long one new row takes through a stream, Spark included: to nowhere, and to a local table.

    python -m bench.spark_trigger --rows 40

A row is sent, and the next one a random while after the batch before is done; what counts is from
the broker's receipt to the end of the batch that has it, by Spark's own record of the batch. The
table is a directory of Parquet files, written by Spark's own sink. Prints a table of figures beside
their goals and the parts of a batch, writes one JSON. Needs Java.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.lib.filled import filled
from bench.lib.measures import percentile
from bench.lib.rows import Row, save, show

HERE = Path(__file__).resolve().parent

TOPIC = "SparkTrigger"
QUEUES = 8
WARM_UP = 20
"""Rows that do not count: workers start, code is loaded and compiled."""
APART_S = (0.25, 1.25)
LOOK_S = 0.05
FLOOR_BATCHES = 30
NOWHERE, TABLE = "noop", "parquet"
KEEP = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}


def ended_ms(progress: Any) -> float:
    """When a batch was done, since 1970."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
    return began + float(progress["durationMs"]["triggerExecution"])


def wait_for(query: Any, rows: int, by_batch: dict[int, int]) -> None:
    """Wait until batches had so many rows; `by_batch` has those of the batches seen so far.

    Only the last batch is asked for: Spark writes each one anew as JSON, also those of before.
    """
    while sum(by_batch.values()) < rows:
        if not query.isActive:
            raise RuntimeError(f"the stream has ended: {query.exception()}")
        last = query.lastProgress
        if last is not None:
            by_batch[last["batchId"]] = last["numInputRows"] or 0
        time.sleep(LOOK_S)


def send(namesrv: str, query: Any, rows: int) -> list[float]:
    """Rows at random times, each when the one before is through; when each was acknowledged."""
    from roquet.client.blocking import Producer

    sent, by_batch, chance = list[float](), dict[int, int](), random.Random(7)
    with Producer(namesrv, group="bench") as producer:
        for number in range(rows):
            time.sleep(chance.uniform(*APART_S))
            producer.send(TOPIC, b"x" * 200)
            sent.append(time.time() * 1000)
            wait_for(query, number + 1, by_batch)
    return sent


def latencies(sent: list[float], told: list[Any]) -> list[float]:
    """From each receipt to the end of its batch."""
    ends = [end for one in told for end in [ended_ms(one)] * one["numInputRows"]]
    return [end - at for at, end in zip(sent, ends, strict=True)]


def started(frame: Any, folder: Path, kind: str = NOWHERE) -> Any:
    """A stream to nowhere, or to a table."""
    writer = frame.writeStream.format(kind).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start() if kind == NOWHERE else writer.start(str(folder / "table"))


def told(query: Any) -> list[Any]:
    """Progress reports of a query, of batches with rows."""
    found = [json.loads(progress.json) for progress in query.recentProgress]
    return [one for one in found if one["numInputRows"]]


def floor_ms(spark: Any, folder: Path) -> float:
    """Time that Spark itself takes for a batch of one row that its Java makes up."""
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = started(frame, folder / "floor")
    wait_for(query, WARM_UP + FLOOR_BATCHES, {})
    query.stop()
    return statistics.median(
        float(one["durationMs"]["triggerExecution"]) for one in told(query)[WARM_UP:]
    )


def measured(spark: Any, namesrv: str, rows: int, folder: Path, kind: str) -> dict[str, float]:
    """A stream of the topic, and rows into it."""
    reader = spark.readStream.format("roquet").option("namesrv", namesrv)
    frame = reader.option("topic", TOPIC).option("startingOffsets", "latest").load()
    query = started(frame, folder / kind, kind)
    while query.lastProgress is None:  # its first batch, which is empty
        time.sleep(0.2)
    sent = send(namesrv, query, rows + WARM_UP)
    time.sleep(1)
    batches = told(query)
    query.stop()
    found = sorted(latencies(sent, batches)[WARM_UP:])
    figures = {"p50": statistics.median(found), "p95": percentile(found, 95)}
    for part in batches[-1]["durationMs"]:
        counted = batches[len(batches) - rows :]
        figures[part] = statistics.median(one["durationMs"].get(part, 0) for one in counted)
    return figures


def rows_of(nowhere: dict[str, float], table: dict[str, float], floor: float) -> list[Row]:
    """The figures as rows of the report."""
    return [
        Row("stream: one new row to a local table, p50", "ms", table["p50"], None, "<= 200"),
        Row("stream: one new row to a local table, p95", "ms", table["p95"]),
        Row("stream: one new row to nowhere, p50", "ms", nowhere["p50"], None, "<= 200"),
        Row("stream: one new row to nowhere, p95", "ms", nowhere["p95"]),
        Row("Spark's own trigger, a row of its Java", "ms", floor),
    ]  # fmt: skip


def main() -> None:
    """Measure, print, write the JSON."""
    from roquet.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark-trigger.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as name:
        folder, found = Path(name), {}
        with filled(folder, TOPIC, QUEUES, 200, queues=QUEUES) as topic:
            spark = session("bench", master="local[2]", **KEEP)
            for kind in (NOWHERE, TABLE):
                found[kind] = measured(spark, topic.namesrv, args.rows, folder, kind)
                print(kind, json.dumps(found[kind]), flush=True)
            floor = floor_ms(spark, folder)
            spark.stop()
    table = rows_of(found[NOWHERE], found[TABLE], floor)
    show(table)
    save(table, args.out)


if __name__ == "__main__":
    main()
