"""The lake: archives in an S3 server, latest states, audits, queries, small reads, executors.

    python -m bench.lake --only store,changes,audit,query,reads,executors

Prints a table of figures beside their goals, writes one JSON. `store` stands beside a local
directory and, unless Kafka is left out, beside Kafka's way into Parquet in the same run. The S3
server is that of `object_server.py`; its name is told. Needs Java; Kafka's side Maven and the
package index, too.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench import spark as spark_bench
from bench.lib.cpu_share import children_named, limited
from bench.lib.filled import filled
from bench.lib.measures import cpu_seconds
from bench.lib.object_server import served_objects, server_name
from bench.lib.rows import Row, save, show
from bench.small_reads import small_reads
from bench.spark_tables import COLUMNS
from harness import genuine

HERE = Path(__file__).resolve().parent

TOPIC = "LakeBench"
SIZE = 200
PASSES = 3
AUDIT_FILE_ROWS = 2_500_000
AUDIT_BATCH_ROWS = 100_000
QUEUES = 8
EXECUTOR = "CoarseGrainedExecutorBackend"
EXECUTOR_CORES = 0.5
"""Of each executor: broker, driver and two of them have their cores then, on a machine of two."""

Work = Callable[[argparse.Namespace, Path], list[Row]]


def best_rate(messages: int, work: Callable[[], int], passes: int) -> float:
    """Rows a second of the fastest pass."""
    best = 0.0
    for _ in range(passes):
        began = time.monotonic()
        rows = work()
        assert rows == messages, f"{rows} of {messages} came"
        best = max(best, messages / (time.monotonic() - began))
    return best


# -- archives ---------------------------------------------------------------------------------


def store(args: argparse.Namespace, folder: Path) -> list[Row]:
    """An archive of kind delta in an S3 server, beside a directory, and beside Kafka's Parquet."""
    from roquet.spark.jobs.archive.archive_job import Params, run
    from roquet.spark.jobs.job_runner import spark_for

    kafka: dict[str, float] = {}
    if not args.ours_only and genuine.missing() is None:
        kafka = spark_bench.theirs(folder / "kafka", args.messages)
    more = ("--distinct",)
    with (
        served_objects(folder / "s3") as (bucket, server),
        filled(folder / "ours", TOPIC, args.messages, SIZE, more=more) as topic,
    ):
        spark = spark_for("bench", "local[2,4]")
        targets = {"directory": str(folder / "table"), "S3": f"{bucket}/table"}
        number, rates, cpu = 0, dict[str, float](), cpu_seconds(server)

        def archive(target: str) -> int:
            nonlocal number
            number += 1
            params = Params(
                topic=TOPIC,
                target=f"{target}-{number}",
                kind="delta",
                options={"namesrv": topic.namesrv},
                columns=COLUMNS,
            )
            return run(params, lambda: spark).rows

        for _ in range(args.passes):  # in turn, so that a busy moment of the machine hits both
            for name, target in targets.items():
                rate = best_rate(args.messages, partial(archive, target), 1)
                rates[name] = max(rate, rates.get(name, 0.0))
                print(f"  archive to {name}: {rate:,.0f} rows/s", flush=True)
                shutil.rmtree(f"{targets['directory']}-{number}", ignore_errors=True)
        server_us = (cpu_seconds(server) - cpu) / args.passes / args.messages * 1e6
        spark.stop()
    parquet, name = kafka.get("batch to Parquet"), server_name()
    return [
        Row(f"archive to delta in {name}, beside Kafka's Parquet", "rows/s", rates["S3"], parquet,
            ">= 2.0 x"),
        Row(f"archive to delta in {name}, beside a directory", "x",
            rates["S3"] / rates["directory"], None, ">= 0.8"),
        Row("archive to delta in a directory", "rows/s", rates["directory"]),
        Row(f"CPU of {name} for a row", "us", server_us),
    ]  # fmt: skip


def changes(args: argparse.Namespace, folder: Path) -> list[Row]:
    """A table of latest states from changes of a tenth as many keys."""
    from deltalake import DeltaTable

    from roquet.spark.jobs.job_runner import spark_for
    from roquet.spark.jobs.materialize.materialize_job import Params, run

    keys = max(1, args.messages // 10)
    with filled(folder / "ours", TOPIC, args.messages, SIZE, more=("--keys", str(keys))) as topic:
        spark, number = spark_for("bench", "local[2,4]"), 0

        def materialize() -> int:
            nonlocal number
            number += 1
            params = Params(
                topic=TOPIC,
                target=str(folder / f"state-{number}"),
                options={"namesrv": topic.namesrv},
            )
            done = run(params, lambda: spark)
            rows = DeltaTable(params.target).to_pyarrow_dataset().count_rows()
            assert rows == keys, f"{rows} rows of {keys} keys"
            return done.rows

        rate = best_rate(args.messages, materialize, args.passes)
        spark.stop()
    work = f"materialize {args.messages:,} changes of {keys:,} keys"
    return [Row(work, "rows/s", rate, None, ">= 200,000")]


# -- audit ------------------------------------------------------------------------------------


def write_rows(directory: Any, first: int, count: int) -> list[Any]:
    """One file with messages of all queues, in the columns of an archive."""
    import numpy as np
    import pyarrow as pa

    from roquet.lake.columns.partitioning import schema_of
    from roquet.lake.files.parquet_writer import PartitionedWriter

    schema = schema_of(COLUMNS)
    writer = PartitionedWriter(directory, schema)
    for begin in range(first, first + count, AUDIT_BATCH_ROWS):
        numbers = np.arange(begin, min(begin + AUDIT_BATCH_ROWS, first + count))
        size = len(numbers)
        columns = {
            "key": pa.nulls(size, pa.string()),
            "body": pa.array([b"%016x" % number for number in numbers.tolist()], pa.binary()),
            "topic": pa.repeat(TOPIC, size),
            "broker": pa.repeat("broker-a", size),
            "queue_id": pa.array((numbers % QUEUES).astype(np.int32)),
            "queue_offset": pa.array(numbers // QUEUES),
            "stored_at": pa.array(1_790_000_000_000_000 + numbers * 100).cast(
                pa.timestamp("us", "UTC")
            ),
        }
        writer.write(pa.RecordBatch.from_pydict(columns, schema=schema))
    return writer.close()


def make_table(namesrv: str, target: str, rows: int, broker: str) -> None:
    """An archive's table with so many rows, which no topic ever had."""
    from roquet.spark.jobs.archive.archive_job import Params, open_archive

    params = Params(
        topic=TOPIC, target=target, kind="delta", options={"namesrv": namesrv}, columns=COLUMNS
    )
    ends = {(TOPIC, broker, queue): len(range(queue, rows, QUEUES)) for queue in range(QUEUES)}
    with (
        open_archive(params) as table,
        ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool,
    ):
        state = table.state(ends)
        table.commit(state.then(dict.fromkeys(ends, 0), table.begin().name, (), ()))
        directory = table.begin()
        written = [
            pool.submit(write_rows, directory, first, min(AUDIT_FILE_ROWS, rows - first))
            for first in range(0, rows, AUDIT_FILE_ROWS)
        ]
        files = [file for part in written for file in part.result()]
        table.commit(table.state(ends).then(ends, directory.name, files, ()))


def drive_audit(namesrv: str, target: str) -> dict[str, float]:
    """One audit in this process, which reads the files itself."""
    from roquet.spark.jobs.audit.audit_job import Params, run

    began, cpu = time.monotonic(), time.process_time()
    report = run(Params(topic=TOPIC, target=target, options={"namesrv": namesrv}))
    return {
        "rows": report.rows,
        "seconds": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def audit(args: argparse.Namespace, folder: Path) -> list[Row]:
    """An audit of a table in an S3 server, of one size and of a tenth of it."""
    found = {}
    with (
        served_objects(folder / "s3") as (bucket, _),
        filled(folder / "ours", TOPIC, QUEUES, SIZE, queues=QUEUES) as topic,
    ):
        for rows in (args.audit_rows // 10, args.audit_rows):
            target = f"{bucket}/audited-{rows}"
            make_table(topic.namesrv, target, rows, broker_name(topic.namesrv))
            found[rows] = driven("audit", topic.namesrv, target)
            print(f"  audit: {found[rows]}", flush=True)
    few, many = found.values()
    work = f"audit of {args.audit_rows:,} rows in {server_name()}"
    return [
        Row(work, "s", many["seconds"], None, "<= 60"),
        Row(f"{work}: CPU", "s", many["cpu_s"]),
        Row(f"{work}: memory beside a tenth of the rows", "x", many["peak_mib"] / few["peak_mib"],
            None, "<= 1.5"),
        Row(f"{work}: memory", "MiB", many["peak_mib"]),
    ]  # fmt: skip


def query(args: argparse.Namespace, folder: Path) -> list[Row]:
    """`roquet lake query` on the table of the demo's flights, as a command that starts anew."""
    from roquet.cli.demo.flights import archive_path, read

    messages = list(read(archive_path()))
    target = str(folder / "flights")
    make_flights(target, messages)
    command = [sys.executable, "-m", "roquet", "lake", "query", "--json", "--table"]
    command += [f"flights={target}"]
    sql = {
        "by tag": "select tag, count(*) as n from flights group by 1",
        "by a field of the bodies": "select decode(body)::json->>'carrier' as carrier, "
        "count(*) as n from flights group by 1",
    }
    rows = []
    for name, text in sql.items():
        best = float("inf")
        for _ in range(args.passes):
            began = time.monotonic()
            done = subprocess.run([*command, text], check=True, stdout=subprocess.PIPE, text=True)
            best = min(best, time.monotonic() - began)
            found = sum(json.loads(line)["n"] for line in done.stdout.splitlines())
            assert found == len(messages), found
        work = f"lake query, {len(messages):,} flights {name}"
        rows.append(Row(work, "s", best, None, "<= 1"))
    return rows


def make_flights(target: str, messages: Sequence[Any]) -> None:
    """The flights as an archive's table."""
    import pyarrow as pa

    from roquet.lake.columns.partitioning import schema_of
    from roquet.lake.files.parquet_writer import PartitionedWriter
    from roquet.spark.jobs.archive.archive_job import Params, open_archive

    columns = (*COLUMNS, "tag")
    params = Params(topic=TOPIC, target=target, kind="delta", columns=columns)
    size, schema = len(messages), schema_of(columns)
    ends = {(TOPIC, "broker-a", 0): size}
    columns_of_rows = {
        "key": pa.array([" ".join(message.keys) or None for message in messages]),
        "body": pa.array([message.body for message in messages], pa.binary()),
        "topic": pa.repeat(TOPIC, size),
        "broker": pa.repeat("broker-a", size),
        "queue_id": pa.repeat(pa.scalar(0, pa.int32()), size),
        "queue_offset": pa.array(range(size)),
        "stored_at": pa.repeat(pa.scalar(1_790_000_000_000_000, pa.timestamp("us", "UTC")), size),
        "tag": pa.array([message.tag for message in messages]),
    }
    with open_archive(params) as table:
        directory = table.begin()
        writer = PartitionedWriter(directory, schema)
        writer.write(pa.RecordBatch.from_pydict(columns_of_rows, schema=schema))
        state = table.state(ends)
        table.commit(state.then(ends, directory.name, writer.close(), ()))


def broker_name(namesrv: str) -> str:
    """The name of the broker that serves the topic."""
    from roquet.spark.cluster.cluster_client import ClusterClient
    from roquet.spark.options import parse

    latest = ClusterClient(parse({"namesrv": namesrv, "topic": TOPIC}, {})).latest()
    return next(broker for _, broker, _ in latest)


# -- executors --------------------------------------------------------------------------------


def drive_archive(namesrv: str, target: str, broker_pid: str, executors: str) -> dict[str, float]:
    """Archives by executors of half a core each: seconds and broker CPU of the second one."""
    from roquet.spark.jobs.archive.archive_job import Params, run
    from roquet.spark.session import session

    spark = session("bench", f"local-cluster[{executors},1,1024]")
    spark.sparkContext.setLogLevel("ERROR")
    while len(workers := children_named(EXECUTOR)) < int(executors):
        time.sleep(0.1)
    seconds = cpu = 0.0
    with limited(workers, EXECUTOR_CORES) as is_limited:
        for number in range(2):
            params = Params(
                topic=TOPIC,
                target=f"{target}-{number}",
                kind="delta",
                options={"namesrv": namesrv},
                columns=COLUMNS,
            )
            began, before = time.monotonic(), cpu_seconds(int(broker_pid))
            rows = run(params, lambda: spark).rows
            seconds = time.monotonic() - began
            cpu = cpu_seconds(int(broker_pid)) - before
            shutil.rmtree(params.target)
        spark.stop()
    cores = EXECUTOR_CORES if is_limited else 0.0
    return {
        "rows": rows, "seconds": seconds, "broker_cores": cpu / seconds, "executor_cores": cores
    }  # fmt: skip


def planned_share(messages: int, executors: int) -> float:
    """The most that any executor of an archive reads, as a share of all messages.

    Batches are those of an archive's default limits; a batch takes as long as its longest task.
    """
    from roquet.lake.queue_offsets import OffsetRange
    from roquet.spark.jobs.archive.archive_job import DEFAULT_LIMITS
    from roquet.spark.source import plan

    limit, longest = int(DEFAULT_LIMITS["maxOffsetsPerTrigger"]), 0
    for begin in range(0, messages, limit):
        rows = min(limit, messages - begin)
        share = -(-rows // QUEUES)
        ranges = [OffsetRange(TOPIC, "broker-a", queue, 0, share) for queue in range(QUEUES)]
        parts = plan.pack(ranges, plan.partition_count(rows, 1, executors, None))
        longest += max(sum(map(len, part)) for part in parts)
    return longest / messages


def archive_rows(one: Mapping[str, float], two: Mapping[str, float]) -> list[Row]:
    """Rows of archives by one and two executors; without the ratio of times if none was limited."""
    is_limited = bool(one["executor_cores"] and two["executor_cores"])
    each = " of half a core each" if is_limited else ""
    rows = [
        Row(f"archive by two executors{each}: broker", "cores", two["broker_cores"], None, "<= 1"),
    ]  # fmt: skip
    if not is_limited:
        print(
            "  the ratio of times is left out: executors could not be held to half a core each",
            flush=True,
        )
        return rows
    ratio = two["seconds"] / one["seconds"]
    name = f"archive by two executors{each}, beside one: time"
    return [Row(name, "x", ratio, None, "<= 0.6"), *rows]


def executors(args: argparse.Namespace, folder: Path) -> list[Row]:
    """Archives by one and two executors, and the plan's balance for up to four."""
    found = {}
    more = ("--distinct",)
    with filled(folder / "ours", TOPIC, args.messages, SIZE, more=more) as topic:
        for count in (1, 2):
            target = str(folder / f"by-{count}")
            found[count] = driven("archive", topic.namesrv, target, str(topic.pid), str(count))
            print(f"  {count} executors: {found[count]}", flush=True)
    works = archive_rows(found[1], found[2])
    for count in (1, 2, 4):
        share = planned_share(args.planned, count)
        text = f"planned time of {args.planned:,} messages with {count} executors, beside one"
        goal = 1.2 / count
        works.append(Row(text, "x", share, None, f"<= {goal:.2f}"))
    return works


def driven(*words: str) -> dict[str, float]:
    """The JSON of a run of this program in a process of its own."""
    command = [sys.executable, "-m", "bench.lake", "--drive", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def reads(args: argparse.Namespace, folder: Path) -> list[Row]:
    """Batches of a second from 64 queues."""
    return small_reads(folder, queues=args.queues, rows=args.rows, seconds=args.seconds)


WORKS: dict[str, Work] = {
    "store": store,
    "changes": changes,
    "audit": audit,
    "query": query,
    "reads": reads,
    "executors": executors,
}


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """The rows of the wanted works."""
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory(prefix="roquet-bench-", dir=args.scratch) as folder:
            print(f"{name} …", flush=True)
            yield from WORKS[name](args, Path(folder))


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(WORKS), help=f"some of {','.join(WORKS)}")
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--audit-rows", type=int, default=50_000_000)
    parser.add_argument("--planned", type=int, default=50_000_000)
    parser.add_argument("--queues", type=int, default=64, help="of the small reads")
    parser.add_argument("--rows", type=int, default=1_000, help="new in each of them, a second")
    parser.add_argument("--seconds", type=int, default=600, help="of small reads")
    parser.add_argument("--ours-only", action="store_true", help="leave Kafka out")
    parser.add_argument("--scratch", type=Path, help="directory for data; default: the system's")
    parser.add_argument("--out", type=Path, default=Path("build/bench-lake.json"))
    parser.add_argument("--drive", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        what, *words = args.drive
        drives: dict[str, Callable[..., object]] = {"audit": drive_audit, "archive": drive_archive}
        print(json.dumps(drives[what](*words)))
        return
    table = list(measured(args))
    show(table, peer="kafka")
    save(table, args.out, peer="kafka")


if __name__ == "__main__":
    main()
