"""Memory of an archive's driver by the number of files in its Delta table.

    python -m bench.spark_driver_memory --files 1000,100000

For each number a fresh process opens a table whose log names that many files, and archives a topic
in so many commits; its tasks run in another process, as Spark's do, so only the driver's own memory
is counted. The files are entries of the log alone, with the statistics that an archive gives them:
it never opens those of earlier runs. With --compact the run also lists them, to look for small
ones; with --commits 120 deltalake writes a checkpoint of the log meanwhile.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.lib.filled import filled
from bench.lib.rows import Row, bound, save, show

HERE = Path(__file__).resolve().parent

TOPIC = "DriverMemory"
QUEUES = 4
ENTRY_FILES = 10_000
"""Files of one log entry."""

GROWTH_MAX = 1.2
"""Memory of the driver with the most files, beside that with the fewest."""

PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_KIB / 1024


def peak_mib() -> float:
    """The most memory this process has had; `ru_maxrss` counts its parent's at the fork, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def run_task(task_set: Any, number: int) -> Any:
    return task_set.run(number)


class TaskProcess:
    """A stand-in for Spark whose tasks run in one process beside the driver."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def run(self, task_set: Any) -> list[Any]:
        numbers = range(len(task_set))
        return list(self._pool.map(run_task, [task_set] * len(numbers), numbers))


def params(
    namesrv: str, table: Path, messages: int, *, commits: int = 1, compact: bool = False
) -> Any:
    from roquet.spark.jobs.archive.archive_job import Params

    limit = str(max(1, messages // commits))
    options = {"namesrv": namesrv, "maxOffsetsPerTrigger": limit, "maxPartitions": "1"}
    return Params(topic=TOPIC, target=str(table), kind="delta", options=options, compact=compact)


def statistics_of(number: int) -> str:
    """Statistics of the columns for which an archive writes some."""
    first = number * 1000
    day = "2026-01-01T"
    least = {"queue_id": 0, "queue_offset": first, "stored_at": f"{day}00:00:00.123456+00:00"}
    most = {"queue_id": 7, "queue_offset": first + 999, "stored_at": f"{day}23:59:59.123456+00:00"}
    least["key"], most["key"] = f"order-{first:012}", f"order-{first + 999:012}"
    return json.dumps(
        {
            "numRecords": 1000,
            "minValues": least,
            "maxValues": most,
            "nullCount": dict.fromkeys(least, 0),
        },
        separators=(",", ":"),
    )


def make_table(table: Path, namesrv: str, files: int) -> None:
    """An archive's table whose log names files of earlier days, and begins with a checkpoint."""
    from deltalake import DeltaTable as Log
    from deltalake.transaction import AddAction, RemoveAction

    from roquet.spark.jobs.archive.archive_job import open_archive

    def commit() -> None:
        with open_archive(params(namesrv, table, 1)) as archive:
            archive.commit(archive.state(()).then({}, archive.begin().name, (), ()))

    commit()
    log = Log(str(table))
    for first in range(0, files, ENTRY_FILES):
        day = f"2026-{first // ENTRY_FILES % 12 + 1:02}-01"
        added: list[AddAction | RemoveAction] = [
            AddAction(
                f"day={day}/roquet-{uuid4().hex}.parquet",
                200 * 2**20,
                {"day": day},
                0,
                True,
                statistics_of(number),
            )
            for number in range(first, min(first + ENTRY_FILES, files))
        ]
        log.create_write_transaction(added, "append", log.schema(), partition_by=["day"])
    commit()
    log.update_incremental()
    log.create_checkpoint()
    for version in range(log.version()):
        (table / "_delta_log" / f"{version:020}.json").unlink()


def drive(asked: Any, messages: int) -> dict[str, float]:
    """One archive; how much memory this process has at its steps."""
    from roquet.spark.jobs.archive import archive_job

    tasks = TaskProcess()
    replaced: Any = archive_job
    replaced.run_task_set = lambda _, task_set: tasks.run(task_set)
    replaced.ready_cores = lambda _: 1
    seen = [resident_mib()]
    done = replaced.run(asked, lambda: None, lambda _: seen.append(resident_mib()))
    assert done.rows == messages, done
    return {
        "imported_mib": round(seen[0], 1),
        "first_commit_mib": round(seen[1], 1),
        "last_commit_mib": round(seen[-1], 1),
        "peak_mib": round(peak_mib(), 1),
    }


def rows(measured: Mapping[int, Mapping[str, float]]) -> list[Row]:
    """The most memory that the driver had, by files; that of the most beside that of the fewest."""
    table = [
        Row(f"archive's driver, {files:,} files: memory", "MiB", figures["peak_mib"])
        for files, figures in measured.items()
    ]
    growth = measured[max(measured)]["peak_mib"] / measured[min(measured)]["peak_mib"]
    work = f"archive's driver, {max(measured):,} files: memory, beside {min(measured):,}"
    return [*table, bound(work, "x", growth, GROWTH_MAX)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", default="1000,100000", help="numbers of files")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--compact", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark-driver-memory.json"))
    parser.add_argument("--drive", nargs=2, metavar=("NAMESRV", "TABLE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        namesrv, table = args.drive
        commits, compact = args.commits, args.compact
        asked = params(namesrv, Path(table), args.messages, commits=commits, compact=compact)
        print(json.dumps(drive(asked, args.messages)))
        return
    measured = {}
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as name:
        folder = Path(name)
        with filled(folder, TOPIC, args.messages, 200, queues=QUEUES) as topic:
            for files in map(int, args.files.split(",")):
                table = folder / f"table-{files}"
                make_table(table, topic.namesrv, files)
                command = [
                    sys.executable,
                    "-m",
                    "bench.spark_driver_memory",
                    "--messages",
                    str(args.messages),
                ]
                command += ["--commits", str(args.commits)]
                command += ["--compact"] if args.compact else []
                command += ["--drive", topic.namesrv, str(table)]
                result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                measured[files] = json.loads(result.stdout)
    table = rows(measured)
    show(table)
    save(table, args.out)


if __name__ == "__main__":
    main()
