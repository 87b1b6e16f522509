"""A full topic to tables, and its store files as one; prints JSON: rows a second of each work.

    python -m bench.spark_tables NAMESRV TOPIC DATA MESSAGES FOLDER

DATA is the directory of the broker that serves the topic. Archives have the columns that Kafka's
source can tell as well, so that the figures stand beside Kafka's.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from roquet.spark.jobs.archive.archive_job import Params, run
from roquet.spark.jobs.job_runner import spark_for

PASSES = 3
KINDS = ("delta", "iceberg")
COLUMNS = ("key", "body", "topic", "broker", "queue_id", "queue_offset", "stored_at")


def main() -> None:
    """Each work some times; the best counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("namesrv")
    parser.add_argument("topic")
    parser.add_argument("data", help="directory of the broker that serves the topic")
    parser.add_argument("messages", type=int, help="in the topic")
    parser.add_argument("folder", type=Path, help="for tables and checkpoints")
    options = parser.parse_args()
    namesrv, topic, data = options.namesrv, options.topic, options.data
    folder, messages = options.folder, int(options.messages)
    spark = spark_for("bench", "local[2,4]")
    spark.sparkContext.setLogLevel("ERROR")

    def archive(kind: str) -> int:
        table = folder / kind
        shutil.rmtree(table, ignore_errors=True)
        params = Params(
            topic=topic,
            target=str(table),
            kind=kind,
            options={"namesrv": namesrv},
            columns=COLUMNS,
        )
        return int(run(params, lambda: spark).rows)

    files = spark.read.format("roquet").option("store", data).option("topic", topic)

    def to_noop() -> int:
        frame = files.option("columns", ",".join(COLUMNS)).load().select(*COLUMNS)
        frame.write.format("noop").mode("overwrite").save()
        return messages

    def per_key() -> int:
        frame = files.option("columns", "key").load()
        found = frame.groupBy("key").count().agg({"count": "sum"}).collect()
        return int(found[0][0])

    works: dict[str, Callable[[], int]] = {
        **{f"archive to {kind}": partial(archive, kind) for kind in KINDS},
        "store files to noop": to_noop,
        "store files, count per key": per_key,
    }
    found = {}
    for name, work in works.items():
        best = 0.0
        for _ in range(PASSES):
            began = time.monotonic()
            rows = work()
            assert rows == messages, f"{name}: {rows} of {messages} came"
            best = max(best, messages / (time.monotonic() - began))
        found[name] = best
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
