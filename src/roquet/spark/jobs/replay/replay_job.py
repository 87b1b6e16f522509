"""Replay job: sends the rows of a table to a topic, in order and at a rate, each exactly once.

    main(Params(source="/lake/orders", topic="OrdersAgain", options={"namesrv": "127.0.0.1:9876"}))

The destination holds the state: each copy names its original in the property ROQUET_FROM. A run
reads which rows have copies and sends the others, so the same run started again after a kill does
the rest. A run with `since` reads the destination from that time on, and does not see the copies of
earlier runs.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.lake.files.staging import HIDDEN
from roquet.lake.open_table import directory, table_location
from roquet.lake.queue_offsets import QueueOffsets, queue_text, ranges
from roquet.lake.snapshot import TableSnapshot
from roquet.lake.task_set import TaskResult, rows_by_queue
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError, StoreError, StoreLocked
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.job_runner import JobFailed, ready_cores, run_task_set, spark_for
from roquet.spark.jobs.replay.archive_scan import (
    QueueRows,
    filter_rows,
)
from roquet.spark.jobs.replay.replay_plan import (
    Params,
    ReplayScan,
    check_origins,
    destination_options,
    map_to_destination,
    scan_table,
    snapshot_of,
)
from roquet.spark.jobs.replay.replay_tasks import ReplayTasks, TaskPlan
from roquet.spark.jobs.resend_rows import REQUIRED_COLUMNS, USED_COLUMNS
from roquet.spark.jobs.send_plan import split_among_tasks, task_rates
from roquet.spark.options import SourceOptions
from roquet.store.filesystem.directory_lock import FileLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logger(__name__)

PROGRESS_PERIOD_S: Final = 1.0
"""How often the destination is asked for its offsets, to report progress."""


class ReplayProgress(msgspec.Struct, kw_only=True):
    """The progress of a run."""

    rows: int = 0
    """Rows that this run has sent."""
    there: int = 0
    """Chosen rows of which the destination had copies before."""
    left: int = 0
    doubled: int = 0
    """Messages that are known to be there twice; readers drop them with dropDoubles."""


OnReplayProgress = Callable[[ReplayProgress], object]


transform = filter_rows
"""The rows to replay. Pure; each task applies it to its rows."""


def main(params: Params) -> ReplayProgress:
    """Run the replay with the provided Spark session, or with a local one."""
    return run(params, lambda: spark_for("roquet replay", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession]",
    on_progress: OnReplayProgress = lambda _: None,
) -> ReplayProgress:
    """Send the rows that have no copies yet; `spark` is called only when there are some."""
    settings, snapshot = destination_options(params), snapshot_of(params)
    with _exclusive_run(params):
        return _run(params, settings, snapshot, spark, on_progress)


def _run(
    params: Params,
    settings: SourceOptions,
    snapshot: TableSnapshot,
    spark: "Callable[[], SparkSession]",
    on_progress: OnReplayProgress,
) -> ReplayProgress:
    scan = scan_table(params, settings, snapshot)
    progress = ReplayProgress(
        left=sum(queue_rows.rows for queue_rows in scan.sources),
        there=sum(queue_rows.already_sent for queue_rows in scan.sources),
    )
    on_progress(progress)
    if not progress.left:
        return progress
    check_origins(params, scan, snapshot)
    params = msgspec.structs.replace(params, tasks=params.tasks or ready_cores(spark()))
    task_set = _task_set(params, scan)
    with _progress_reported(settings, scan.bounds.latest, progress, on_progress):
        results = run_task_set(spark(), task_set)
    _check_complete(scan.sources, results)
    last = ReplayProgress(rows=progress.left, there=progress.there)
    last.doubled = sum(result.doubled for result in results)
    on_progress(last)
    return last


def replay_frame(frame: "DataFrame", params: Params, spark: "SparkSession") -> ReplayProgress:
    """Replay a DataFrame with the needed columns.

    It is written to `params.source` first and stays there, so a repeated run sends the same rows:
    where the directory has been written already, its rows are sent and not those of the frame.
    """
    if not (directory(params.source) / "_SUCCESS").exists():
        missing = [name for name in REQUIRED_COLUMNS if name not in frame.columns]
        if missing:
            raise ConfigError(f"the frame has no column {missing[0]!r}")
        columns = [name for name in USED_COLUMNS if name in frame.columns]
        queue = [name for name in ("topic", "broker", "queue_id") if name in columns]
        rows = frame.select(*columns).repartition(*queue)
        ordered = rows.sortWithinPartitions(*queue, "queue_offset")
        ordered.write.mode("overwrite").parquet(params.source)
    return run(params, lambda: spark)


def _task_set(params: Params, scan: ReplayScan) -> ReplayTasks:
    queue_map, already_sent = map_to_destination(params, scan), scan.already_sent
    by_source = {queue_rows.source: queue_rows for queue_rows in scan.sources if queue_rows.rows}
    rows = {source: queue_rows.rows for source, queue_rows in by_source.items()}
    plans = split_among_tasks(rows, queue_map, params.tasks or os.cpu_count() or 1)
    rates = task_rates(params.rate, [sum(rows[source] for source in plan) for plan in plans])
    return ReplayTasks(
        settings=scan.cluster.settings,
        plans=[
            TaskPlan(sources=tuple(by_source[source] for source in plan), rate=rate)
            for plan, rate in zip(plans, rates, strict=True)
        ],
        queue_map={source: queue_map[source] for source in rows},
        since=scan.bounds.latest,
        already_sent={source: already_sent[source] for source in rows if source in already_sent},
        row_filter=scan.row_filter,
    )


@contextmanager
def _exclusive_run(params: Params) -> Iterator[None]:
    """Lock the pair of directory and topic against other runs.

    In an object store, and where the directory cannot be written, there is no lock. The tasks then
    detect another run from the offsets in the broker's replies, but only after both have sent some
    rows.
    """
    lock, root = None, table_location(params.source, params.storage)
    try:
        if isinstance(root, Path) and root.is_dir():
            lock = FileLock(root / HIDDEN / f"replay-{params.topic}", "another replay")
    except StoreLocked:
        raise RoquetError(
            f"another replay of {root} to topic {params.topic} is running: when it has ended, "
            "start this one again for the rows it has not sent"
        ) from None
    except StoreError:
        log.debug("%s cannot be written: there is no lock against other replays", root)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def _progress_reported(
    settings: SourceOptions,
    before: QueueOffsets,
    progress: ReplayProgress,
    on_progress: OnReplayProgress,
) -> Iterator[None]:
    """Report progress from a thread, by how far the destination's queues have grown."""
    is_over, channels = threading.Event(), dict[str, BlockingChannel]()
    cluster = ClusterClient(settings, channels=channels)
    total = progress.left

    def report() -> None:
        while not is_over.wait(PROGRESS_PERIOD_S):
            with suppress(RoquetError):
                grown = sum(map(len, ranges(before, cluster.latest())))
                rows = min(grown, total)
                on_progress(ReplayProgress(rows=rows, there=progress.there, left=total - rows))

    thread = threading.Thread(target=report, name="roquet-replay-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        for channel in channels.values():
            channel.close()


def _check_complete(sources: Sequence[QueueRows], results: Sequence[TaskResult]) -> None:
    """JobFailed when a queue's rows were not all sent."""
    sent = rows_by_queue(results)
    for queue_rows in sources:
        source = queue_rows.source
        if sent[source] != queue_rows.rows:
            raise JobFailed(
                f"{queue_text(source)}: {sent[source]} rows of {queue_rows.rows} were sent: was "
                "the table changed meanwhile? Start again to send the others"
            )
