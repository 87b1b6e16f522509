"""Memory of a stream's Python processes, and how it grows; prints JSON.

    python -m bench.spark_memory --seconds 600

The broker is filled before; the stream takes a bounded batch at a time, so that it never ends
before the time is up: when it has read everything, it begins anew from its first message.
Growth is the slope of a line through the second half of the samples of each process.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.lib.filled import filled

TOPIC = "SparkMemory"
QUEUES = 8
EVERY_S = 1.0
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def below(pid: int) -> dict[int, str]:
    """The Python processes below this one that Spark has started, with their command lines."""
    parents, lines = dict[int, int](), dict[int, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            lines[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has just ended
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: lines[child] for child in found if "pyspark.daemon" in lines.get(child, "")}


def resident_mib(pid: int) -> float | None:
    """Resident memory of a process in MiB; None when it has ended."""
    try:
        pages = int((Path("/proc") / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * PAGE_KIB / 1024


def slope(samples: list[tuple[float, float]]) -> float:
    """MiB a minute, of the second half."""
    late = samples[len(samples) // 2 :]
    if len(late) < 3:
        return 0.0
    return statistics.linear_regression(*zip(*late, strict=True)).slope * 60


def started(spark: Any, namesrv: str, folder: Path, rows: int) -> Any:
    reader = spark.readStream.format("roquet").option("namesrv", namesrv)
    frame = reader.option("topic", TOPIC).option("maxOffsetsPerTrigger", str(rows)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    return writer.start()


def measured(namesrv: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    from roquet.spark.session import session

    spark = session("bench", master="local[2]")
    seen: dict[int, list[tuple[float, float]]] = defaultdict(list)
    began, runs, rows = time.monotonic(), 0, 0
    query: Any = None
    while (now := time.monotonic()) - began < args.seconds:
        told = query.lastProgress if query else None
        if query is None or (told and told.batchId > 0 and told.numInputRows == 0):
            if query:
                query.stop()
            runs += 1
            query = started(spark, namesrv, folder / str(runs), args.batch)
        rows = max(rows, told.numInputRows if told else 0)
        for pid in below(os.getpid()):
            if (held := resident_mib(pid)) is not None:
                seen[pid].append((now, held))
        time.sleep(EVERY_S)
    if query:
        query.stop()
    spark.stop()
    return {
        "runs": runs,
        "rows_of_a_batch": rows,
        "largest_mib": round(max(held for one in seen.values() for _, held in one), 1),
        "growth_mib_a_minute": round(max(map(slope, seen.values())), 2),
        "processes": {
            pid: [round(one[0][1]), round(one[-1][1]), round(slope(one), 2)]
            for pid, one in seen.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--batch", type=int, default=200_000, help="messages of one batch")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as name:
        folder = Path(name)
        with filled(folder, TOPIC, args.messages, 200, queues=QUEUES) as topic:
            print(json.dumps(measured(topic.namesrv, folder, args)))


if __name__ == "__main__":
    main()
