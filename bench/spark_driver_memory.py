"""Memory of an archive's driver by the number of files in its Delta table; prints JSON.

    python bench/spark_driver_memory.py --files 1000,100000

For each number a fresh process opens a table whose log names that many files, and archives a topic
in twenty commits; its tasks run in another process, as Spark's do, so only the driver's own memory
is counted. The files are entries of the log alone: an archive never opens those of earlier runs.
With --compact the run also lists them, to look for small ones.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]
os.environ["PYTHONPATH"] = str(HERE.parent / "src")

from filled import filled  # noqa: E402

TOPIC = "DriverMemory"
QUEUES = 4
COMMITS = 20
ENTRY_FILES = 10_000
"""Files of one log entry."""

PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_KIB / 1024


def run_task(task_set: Any, number: int) -> Any:
    return task_set.run(number)


class TaskProcess:
    """A stand-in for Spark whose tasks run in one process beside the driver."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def run(self, task_set: Any) -> list[Any]:
        numbers = range(len(task_set))
        return list(self._pool.map(run_task, [task_set] * len(numbers), numbers))


def params(namesrv: str, table: Path, messages: int, *, compact: bool) -> Any:
    from roquet.spark.jobs.archive.archive_job import Params

    limit = str(max(1, messages // COMMITS))
    options = {"namesrv": namesrv, "maxOffsetsPerTrigger": limit, "maxPartitions": "1"}
    return Params(topic=TOPIC, target=str(table), kind="delta", options=options, compact=compact)


def make_table(table: Path, namesrv: str, files: int) -> None:
    """An archive's table whose log names files of earlier days."""
    from deltalake import CommitProperties
    from deltalake import DeltaTable as Log
    from deltalake.transaction import AddAction

    from roquet.spark.jobs.archive.archive_job import open_archive

    with open_archive(params(namesrv, table, COMMITS, compact=False)):
        log = Log(str(table))
    stats = json.dumps({
        "numRecords": 100_000,
        "minValues": {"queue_id": 0, "queue_offset": 1_000_000, "stored_at": "2026-01-01T00:00:00"},
        "maxValues": {"queue_id": 7, "queue_offset": 1_100_000, "stored_at": "2026-01-01T23:59:59"},
        "nullCount": {},
    })  # fmt: skip
    for first in range(0, files, ENTRY_FILES):
        day = f"2026-{first // ENTRY_FILES % 12 + 1:02}-01"
        added = [
            AddAction(
                f"day={day}/part-{number:08}.parquet", 200 * 2**20, {"day": day}, 0, True, stats
            )
            for number in range(first, min(first + ENTRY_FILES, files))
        ]
        log.create_write_transaction(
            added,
            "append",
            log.schema(),
            partition_by=["day"],
            commit_properties=CommitProperties(),
        )
    Log(str(table)).create_checkpoint()


def drive(namesrv: str, table: Path, messages: int, *, compact: bool) -> dict[str, float]:
    """One archive; how much memory this process has at its steps."""
    from roquet.spark.jobs.archive import archive_job

    tasks = TaskProcess()
    archive_job.run_task_set = lambda _, task_set: tasks.run(task_set)
    archive_job.ready_cores = lambda _: 1
    seen = [resident_mib()]
    asked = params(namesrv, table, messages, compact=compact)
    done = archive_job.run(asked, lambda: None, lambda _: seen.append(resident_mib()))
    assert done.rows == messages, done
    return {
        "imported_mib": round(seen[0], 1),
        "first_commit_mib": round(seen[1], 1),
        "last_commit_mib": round(seen[-1], 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", default="1000,10000,100000", help="numbers of files")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--compact", action="store_true")
    parser.add_argument("--drive", nargs=2, metavar=("NAMESRV", "TABLE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        namesrv, table = args.drive
        print(json.dumps(drive(namesrv, Path(table), args.messages, compact=args.compact)))
        return
    measured = {}
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as name:
        folder = Path(name)
        with filled(folder, TOPIC, args.messages, 200, queues=QUEUES) as topic:
            for files in map(int, args.files.split(",")):
                table = folder / f"table-{files}"
                make_table(table, topic.namesrv, files)
                command = [sys.executable, __file__, "--messages", str(args.messages)]
                command += ["--compact"] if args.compact else []
                command += ["--drive", topic.namesrv, str(table)]
                result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                measured[files] = json.loads(result.stdout)
    print(json.dumps({"messages": args.messages, "commits": COMMITS, "files": measured}))


if __name__ == "__main__":
    main()
