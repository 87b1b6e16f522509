"""Spark over a full topic: our source, and Spark's own Kafka source on the same machine.

    python -m bench.spark --messages 4000000

Both hold as many messages of 200 bytes in 8 queues; each side's works run in one Spark session,
the best of three passes counts, and of the rounds the median. Archives stand beside Kafka's way
into Parquet, store files beside its way to nowhere. Prints a table of figures and ratios, writes
one JSON. The Kafka side needs Java, Maven and the package index; without them ours is measured
alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.lib.calibration import Calibration, steadily
from bench.lib.filled import filled
from bench.lib.rows import Row, at_least, compared, in_each_round, save, show
from harness import genuine, kafka_beside

HERE = Path(__file__).resolve().parent

TOPIC = "SparkBench"
SIZE = 200
GOALS = {
    "batch to noop": ("batch to noop", 1.0),
    "stream to noop": ("stream to noop", 1.8),
    "batch to Parquet": ("batch to Parquet", 0.9),
    "archive to delta": ("batch to Parquet", 2.0),
    "archive to iceberg": ("batch to Parquet", 2.0),
    "store files to noop": ("batch to noop", 1.0),
    "store files, count per key": ("batch to noop", 1.0),
}
"""Of each work of ours: beside which of Kafka's it stands, and how much faster it is to be."""
IN_EACH_ROUND = "stream to noop"
"""The work whose goal is that of the worst round, too."""


@dataclass(frozen=True)
class Figure:
    """Rows a second of a work in a round."""

    rate: float
    calibration: Calibration


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


def rows(found: Mapping[str, Sequence[Mapping[str, Figure]]]) -> list[Row]:
    """The figures as lines of the table; Kafka is the `genuine` side."""
    table: list[Row] = []
    for work, (peer, goal) in GOALS.items():
        rounds = {
            side: [one[work if side == "ours" else peer] for one in all_]
            for side, all_ in found.items()
        }
        row = compared(f"Spark, {work}", "rows/s", rounds, lambda one: one.rate)
        at_least(row, f"{goal} x")
        table += (
            in_each_round(row, rounds, lambda one: one.rate) if work == IN_EACH_ROUND else [row]
        )
    return table


def main() -> None:
    """Measure both sides in turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="of both sides, in turn")
    parser.add_argument("--ours-only", action="store_true", help="leave Kafka out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark.json"))
    args = parser.parse_args()
    starts = {"ours": ours}
    if not args.ours_only and genuine.missing() is None:
        starts["genuine"] = theirs
    found: dict[str, list[dict[str, Figure]]] = {side: [] for side in starts}
    for _ in range(args.rounds):
        for side, start in starts.items():
            with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
                rates, calibration = steadily(
                    partial(start, Path(folder), args.messages), repeats_max=0
                )  # minutes
            found[side].append({work: Figure(rate, calibration) for work, rate in rates.items()})
            print(f"  {side:8} {rates}", flush=True)
    table = rows(found)
    show(table, peer="kafka")
    save(table, args.out, peer="kafka")


if __name__ == "__main__":
    main()
