"""Spark over a full topic: our source, and Spark's own Kafka source on the same machine.

    python -m bench.spark --messages 4000000

Both hold as many messages of 200 bytes in 8 queues; each side's works run in one Spark session,
the best of three passes counts. Archives stand beside Kafka's way into Parquet, store files beside
its way to nowhere. Prints a table of figures and ratios, writes one JSON. The Kafka side needs
Java, Maven and the package index; without them ours is measured alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.lib.filled import filled
from bench.lib.rows import Row, save, show
from harness import genuine, kafka_beside

HERE = Path(__file__).resolve().parent

TOPIC = "SparkBench"
SIZE = 200
GOALS = {
    "batch to noop": ("batch to noop", 1.0),
    "stream to noop": ("stream to noop", 1.0),
    "batch to Parquet": ("batch to Parquet", 0.9),
    "archive to delta": ("batch to Parquet", 2.0),
    "archive to iceberg": ("batch to Parquet", 2.0),
    "store files to noop": ("batch to noop", 1.0),
    "store files, count per key": ("batch to noop", 1.0),
}
"""Of each work of ours: beside which of Kafka's it stands, and how much faster it is to be."""


def ours(folder: Path, messages: int) -> dict[str, float]:
    """Rows a second of each work over our source."""
    from roquet.spark.session import prepare_environment

    with filled(folder, TOPIC, messages, SIZE) as topic:
        environ = {**os.environ}
        prepare_environment(environ)
        given = {
            "spark_jobs.py": ["", "roquet", topic.namesrv, TOPIC],
            "spark_tables.py": [topic.namesrv, TOPIC, str(topic.data)],
        }
        found: dict[str, float] = {}
        for script, words in given.items():
            command = [sys.executable, str(HERE / script), *words, str(messages), str(folder)]
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=environ
            )
            found |= _figures(done.stdout)
    return found


def theirs(folder: Path, messages: int) -> dict[str, float]:
    """Figures of the same work over Kafka's source."""
    with kafka_beside.broker(folder, partitions=8) as address:
        kafka_beside.fill(address, TOPIC, messages, SIZE, folder)
        given = ("kafka", address, TOPIC, str(messages), str(folder))
        return _figures(kafka_beside.spark(HERE / "spark_jobs.py", *given, folder=folder))


def _figures(output: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return found


def rows(mine: dict[str, float], other: dict[str, float]) -> list[Row]:
    """The figures as lines of the table."""
    return [
        Row(f"Spark, {work}", "rows/s", mine[work], other.get(peer), f">= {goal} x")
        for work, (peer, goal) in GOALS.items()
    ]  # fmt: skip


def main() -> None:
    """Measure both sides in turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--ours-only", action="store_true", help="leave Kafka out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        other: dict[str, float] = {}
        if not args.ours_only and genuine.missing() is None:
            other = theirs(Path(folder) / "kafka", args.messages)
        table = rows(ours(Path(folder) / "ours", args.messages), other)
    show(table, peer="kafka")
    save(table, args.out, peer="kafka")


if __name__ == "__main__":
    main()
