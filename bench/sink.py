"""Rows a second from a Parquet table to a topic, plain mode, the broker included; JSON and rows.

    python -m bench.sink --messages 4000000

The table is written once; then it is sent to a new topic of 8 queues, `--rounds` times. Afterwards
the topic is asked how many messages it has.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.lib.measures import cpu_seconds
from bench.lib.rows import Row, reach, save
from harness.servers import DevServer

QUEUES = 8
GOAL = 200_000
"""Messages a second, in each round."""


def create(broker: str, topic: str) -> None:
    """The topic, before anything is sent to it."""
    from roquet.net.blocking import BlockingChannel
    from roquet.wire.calls.admin.topic import CreateTopic

    with BlockingChannel(broker) as channel:
        channel.call(
            CreateTopic(topic=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
        )


def ended(namesrv: str, topic: str) -> int:
    """How many messages a topic has."""
    from roquet.spark.cluster.cluster_client import ClusterClient
    from roquet.spark.options import SourceOptions

    return sum(ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(topic,))).latest().values())


def table(spark, path: Path, count: int, size: int) -> None:  # type: ignore[no-untyped-def]
    """A table of so many bodies of a size."""
    frame = spark.range(0, count, 1, 4).selectExpr(f"rpad(cast(id as string), {size}, 'x') as body")
    frame.write.mode("overwrite").parquet(str(path))


def measured(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Rows a second of each round, and what the broker has spent on a message."""
    with DevServer(folder, *(["--memory"] if args.memory else [])) as server:
        namesrv = server.address
        from roquet.spark.session import session

        spark = session("bench", master="local[2]")
        table(spark, folder / "table", args.messages, args.size)
        frame = spark.read.parquet(str(folder / "table"))
        found = []
        for at in range(args.rounds):
            topic = f"Sunk{at}"
            create(server.broker, topic)
            writer = frame.write.format("roquet").mode("append")
            began, spent = time.monotonic(), cpu_seconds(server.pid)
            writer.options(namesrv=namesrv, topic=topic, batchBytes=args.batch_bytes).save()
            took = time.monotonic() - began
            found.append(
                {
                    "per_second": round(args.messages / took),
                    "broker_us": round((cpu_seconds(server.pid) - spent) / args.messages * 1e6, 2),
                    "stored": ended(namesrv, topic),
                }
            )
        spark.stop()
    best = max(one["per_second"] for one in found)
    return {"rows_per_second": best, "goal": GOAL, "queues": QUEUES, "rounds": found}


def rows(found: dict[str, Any]) -> list[Row]:
    """The worst round, which has the goal, and the broker's cost in the middle one."""
    rates = [one["per_second"] for one in found["rounds"]]
    costs = [one["broker_us"] for one in found["rounds"]]
    return [
        reach("Spark sink, plain: worst round", "rows/s", min(rates), GOAL),
        Row("Spark sink, plain: best round", "rows/s", max(rates)),
        Row("Spark sink, plain: broker CPU a message", "us", statistics.median(costs)),
    ]


def main() -> None:
    """Fill the table, serve, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-bytes", default="1MiB")
    parser.add_argument("--memory", action="store_true", help="the broker keeps nothing on disk")
    parser.add_argument("--out", type=Path, default=Path("build/bench-sink.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        found = measured(Path(folder), args)
    print(json.dumps(found))
    save(rows(found), args.out)


if __name__ == "__main__":
    main()
