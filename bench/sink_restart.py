"""The transactional sink's driver is killed at 40 % of its commits, and started again later.

    .venv/bin/python -m bench.sink_restart /tmp/restart           # in real time: 15 minutes
    .venv/bin/python -m bench.sink_restart /tmp/restart --hasty --rows 20000

One micro-batch of so many rows goes to a topic of 8 queues. When 40 % of them are visible, the
driver, its Java and its Python workers are killed (SIGKILL). The broker, at its defaults, asks
about the other half messages for as long as it does, gives them up, and then the query is started
again from its checkpoint. Prints JSON: all rows are visible, each once.

`--hasty` makes the fifteen minutes pass by settings: half messages are left alone for 20 s instead
of 2 minutes, looked at each 3 s instead of 30, and given up at the second look instead of the 16th.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.process_tree import descendants

TOPIC = "restart"
QUEUES = 8
SHARE = 0.4
HASTY: dict[str, Any] = {
    "transaction_timeout": 1_000,
    "transaction_check_interval": 3_000,
    "transaction_check_max": 1,
}
PATIENCE_S = 600


def drive(folder: Path, namesrv: str, immune: str) -> None:
    """The query: all there is, in one transaction."""
    from roquet.spark.session import session

    spark = session("restart", master="local[2]")
    frame = spark.readStream.schema("value string").text(str(folder / "rows"))
    writer = frame.selectExpr("value as body").writeStream.format("roquet")
    writer = writer.options(namesrv=namesrv, topic=TOPIC, transactional="true")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("transactionTime", immune).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


def started(folder: Path, namesrv: str, immune: str) -> subprocess.Popen[bytes]:
    """The driver, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.sink_restart",
        str(folder),
        "--driver",
        namesrv,
        "--immune",
        immune,
    ]
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def kill(driver: subprocess.Popen[bytes], below: Sequence[int]) -> int:
    """Kill the driver and the processes below it; gives how many that were.

    `below` has parents first, and is killed from its end: the Python workers, which commit, before
    Java and the driver, which would only start others.
    """
    everybody = [*reversed(below), driver.pid]
    for pid in everybody:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.wait()
    return len(everybody)


def visible(namesrv: str) -> Callable[[], int]:
    """Counts the topic's messages whenever it is called, over connections that stay open."""
    from roquet.spark.cluster.cluster_client import ClusterClient
    from roquet.spark.options import SourceOptions

    cluster = ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(TOPIC,)))
    return lambda: sum(cluster.latest().values())


def read(namesrv: str, topic: str = TOPIC) -> Counter[bytes]:
    """The bodies of all messages, counted."""
    from roquet.lake.queue_offsets import ranges
    from roquet.model.errors import RoquetError
    from roquet.spark.cluster.cluster_client import ClusterClient
    from roquet.spark.cluster.range_reader import RangeReader
    from roquet.spark.options import SourceOptions

    cluster = ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(topic,), timeout_ms=10_000))
    found = Counter[bytes]()
    try:
        pieces = ranges(cluster.earliest(), cluster.latest())
    except RoquetError:  # nothing was ever given up
        return found
    for batch in RangeReader(cluster, ("body",)).batches(pieces):
        found.update(batch["body"].to_pylist())
    return found


def run(running: Any, folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Kill, wait, start again, count."""
    namesrv, immune = running.namesrv_addr, "20s" if args.hasty else "2m"
    rows = [f"row {at:07d}" for at in range(args.rows)]
    (folder / "rows").mkdir(parents=True)
    for part in range(4):
        (folder / "rows" / f"{part}.txt").write_text("\n".join(rows[part::4]) + "\n")
    driver = started(folder, namesrv, immune)
    count = visible(namesrv)
    deadline = time.monotonic() + PATIENCE_S
    below = list[int]()
    while (seen := count()) < args.rows * SHARE:
        if driver.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError((folder / "driver.log").read_text()[-3_000:])
        if seen and not below:  # now, because thousands of rows are committed while it looks
            below = descendants(driver.pid)
        time.sleep(0.01)
    killed = kill(driver, below or descendants(driver.pid))
    at_kill = count()
    time.sleep(args.after if args.after is not None else 30 if args.hasty else 900)
    given_up = sum(read(namesrv, "TRANS_CHECK_MAX_TIME_TOPIC").values())
    began = time.monotonic()
    driver = started(folder, namesrv, immune)
    if driver.wait(PATIENCE_S):
        raise RuntimeError((folder / "driver.log").read_text()[-3_000:])
    found = read(namesrv)
    return {
        "rows": args.rows,
        "processes_killed": killed,
        "visible_when_killed": at_kill,
        "given_up_by_the_broker": given_up,
        "restart_s": round(time.monotonic() - began, 1),
        "visible": sum(found.values()),
        "missing": len(set(map(str.encode, rows)) - found.keys()),
        "doubled": sum(count - 1 for count in found.values()),
    }


def main() -> None:
    """One or the other part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="empty, or not there yet")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--hasty", action="store_true")
    parser.add_argument("--after", type=float, help="seconds between the kill and the restart")
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    parser.add_argument("--immune", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.driver:
        drive(args.folder, args.driver, args.immune)
        return
    from roquet.net.blocking import BlockingChannel
    from roquet.testing.cluster import BlockingCluster
    from roquet.wire.calls.admin.topic import CreateTopic

    settings = HASTY if args.hasty else {}
    with BlockingCluster(1, 1, args.folder / "store", **settings) as running:
        with BlockingChannel(running.broker_addrs[0]) as channel:
            channel.call(
                CreateTopic(topic=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
            )
        time.sleep(0.5)
        print(json.dumps(run(running, args.folder, args)))


if __name__ == "__main__":
    main()
