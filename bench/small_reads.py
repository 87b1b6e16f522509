"""Small reads: a stream's driver under many queues with few new rows each, for `lake.py`.

A producer of its own sends a second's rows to all queues of a topic, and a stream to nowhere takes
them by a trigger a second. Executors are processes of their own, so that the driver's CPU time is
its own: Spark's JVM, and the Python processes that plan its batches.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.lib.filled import filled
from bench.lib.measures import cpu_seconds, percentile
from bench.lib.rows import Row

TOPIC = "SmallReads"
SIZE = 200
WARM_UP_S = 20
"""Seconds that do not count: processes start, Java compiles."""

EXECUTOR = "CoarseGrainedExecutorBackend"
"""In the command of a process that is no part of the driver, nor those below it."""


def processes_of_driver(pid: int) -> set[int]:
    """This process's Java, and what is below it, without executors."""
    parents, lines = dict[int, int](), dict[int, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            lines[int(folder.name)] = (folder / "cmdline").read_text()
        except OSError:
            continue  # it has just ended
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found, last = set[int](), {pid}
    while last:
        last = {
            child
            for child, parent in parents.items()
            if parent in last and EXECUTOR not in lines[child] and TOPIC not in lines[child]
        }
        found |= last
    return found


def driver_seconds(pid: int) -> dict[int, float]:
    """CPU seconds of each process of the driver so far."""
    found = {}
    for child in processes_of_driver(pid):
        try:
            found[child] = cpu_seconds(child)
        except OSError:
            continue
    return found


def produce(namesrv: str, rows: int, seconds: float) -> None:
    """Send so many rows a second; late seconds are made up for."""
    from roquet.client import Message
    from roquet.client.blocking import Producer

    body, began, number = b"x" * SIZE, time.monotonic(), 0
    with Producer(namesrv, group="bench") as producer:
        while time.monotonic() - began < seconds:
            producer.send_many([Message(TOPIC, body) for _ in range(rows)])
            number += 1
            time.sleep(max(0.0, began + number - time.monotonic()))


def small_reads(folder: Path, *, queues: int, rows: int, seconds: int) -> list[Row]:
    """How long batches take, how far behind the stream is in the end, and the driver's CPU."""
    from roquet.spark.session import session

    with filled(folder / "ours", TOPIC, queues, SIZE, queues=queues) as topic:
        spark = session("bench", "local-cluster[1,2,1024]")
        spark.sparkContext.setLogLevel("ERROR")
        reader = spark.readStream.format("roquet").option("namesrv", topic.namesrv)
        frame = reader.option("topic", TOPIC).option("startingOffsets", "latest").load()
        writer = frame.writeStream.format("noop").trigger(processingTime="1 second")
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        words = [topic.namesrv, str(queues * rows), str(seconds + WARM_UP_S)]
        sender = subprocess.Popen([sys.executable, "-m", "bench.small_reads", TOPIC, *words])
        try:
            time.sleep(WARM_UP_S)
            before, began = driver_seconds(os.getpid()), time.monotonic()
            batches, seen = list[Any](), -1
            while sender.poll() is None:
                for progress in query.recentProgress:
                    told = json.loads(progress.json)
                    if told["batchId"] > seen and told["numInputRows"]:
                        batches.append(told)
                        seen = told["batchId"]
                time.sleep(5)
            took = time.monotonic() - began
            after = driver_seconds(os.getpid())
        finally:
            sender.kill()
            sender.wait()
        query.stop()
        spark.stop()
    spent = sum(after[pid] - before.get(pid, 0.0) for pid in after)
    durations = sorted(told["durationMs"]["triggerExecution"] for told in batches)
    received = [told["numInputRows"] for told in batches[len(batches) // 2 :]]
    work = f"{queues} queues with {rows:,} rows each a second"
    return [
        Row(f"{work}: a batch, p50", "ms", statistics.median(durations)),
        Row(f"{work}: a batch, p95", "ms", percentile(durations, 95), None, "<= 1,000"),
        Row(f"{work}: rows of a batch, beside a second's", "x",
            statistics.mean(received) / (queues * rows), None, "<= 1.2"),
        Row(f"{work}: driver", "cores", spent / took, None, "<= 0.2"),
    ]  # fmt: skip


def main() -> None:
    """The producer, in a process of its own."""
    parser = argparse.ArgumentParser(description="Send rows at a rate; started by lake.py.")
    parser.add_argument("topic", choices=[TOPIC])
    parser.add_argument("namesrv")
    parser.add_argument("rows", type=int, help="a second")
    parser.add_argument("seconds", type=float)
    args = parser.parse_args()
    produce(args.namesrv, args.rows, args.seconds)


if __name__ == "__main__":
    main()
