"""Equal works in Spark over Kafka's source and over ours; prints JSON: rows a second of each.

    python -m bench.spark_jobs JARS kafka|roquet ADDRESS TOPIC MESSAGES FOLDER

Runs in whichever Spark calls it, so it knows neither of our packages by itself.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

PASSES = 3
COLUMNS = {
    "kafka": "key, value, topic, partition, offset, timestamp",
    "roquet": "key, body, topic, queue_id, queue_offset, stored_at",
}
"""Columns that both have of a message."""


def options(kind: str, address: str, topic: str) -> dict[str, str]:
    """Where the messages are."""
    if kind == "kafka":
        return {
            "kafka.bootstrap.servers": address,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
    columns = COLUMNS[kind].replace(" ", "")
    return {"namesrv": address, "topic": topic, "startingOffsets": "earliest", "columns": columns}


def stream(frame: DataFrame, folder: Path) -> None:
    """All there is, as one stream."""
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    """Each work some times; the best counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("jars", help="for Spark's spark.jars; may be empty")
    parser.add_argument("kind", choices=[*COLUMNS])
    parser.add_argument("address", help="of the brokers (kafka) or the name server (roquet)")
    parser.add_argument("topic")
    parser.add_argument("messages", type=int, help="in the topic")
    parser.add_argument("folder", type=Path, help="for tables and checkpoints")
    arguments = parser.parse_args()
    kind, address, topic = arguments.kind, arguments.address, arguments.topic
    folder, messages = arguments.folder, arguments.messages
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {
        "spark.jars": arguments.jars,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        if value:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    given = options(kind, address, topic)
    table = str(folder / "table")

    def batch() -> DataFrame:
        return spark.read.format(kind).options(**given).load().selectExpr(*COLUMNS[kind].split(","))

    def streamed() -> DataFrame:
        frame = spark.readStream.format(kind).options(**given).load()
        return frame.selectExpr(*COLUMNS[kind].split(","))

    works: dict[str, Callable[[], object]] = {
        "batch to noop": lambda: batch().write.format("noop").mode("overwrite").save(),
        "stream to noop": lambda: stream(streamed(), folder),
        "batch to Parquet": lambda: batch().write.mode("overwrite").parquet(table),
    }
    found = {}
    for name, work in works.items():
        best = 0.0
        for _ in range(PASSES):
            began = time.monotonic()
            work()
            best = max(best, messages / (time.monotonic() - began))
        found[name] = best
    rows = spark.read.parquet(table).count()
    spark.stop()
    assert rows == messages, f"{rows} of {messages} came"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
