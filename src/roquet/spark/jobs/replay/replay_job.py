"""Replay job: sends the rows of a table to a topic, in order and at a rate, each exactly once.

    main(Params(source="/lake/orders", topic="OrdersAgain", options={"namesrv": "127.0.0.1:9876"}))

The destination holds the state: each copy names its original in the property ROQUET_FROM. A run
reads which rows have copies and sends the others, so the same run started again after a kill does
the rest. A run with `since` reads the destination from that time on, and does not see the copies of
earlier runs.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.lake.files.staging import HIDDEN
from roquet.lake.intervals import OffsetSet
from roquet.lake.open_table import directory, table_location
from roquet.lake.queue_offsets import QueueKey, QueueOffsets, queue_text, ranges
from roquet.lake.snapshot import TableSnapshot, read_snapshot
from roquet.lake.task_set import TaskResult, rows_by_queue
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError, StoreError, StoreLocked
from roquet.model.names import can_clients_send_to, is_dlq, is_retry
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.jobs.exactly_once_sender import read_originals, writable_queues
from roquet.spark.jobs.job_runner import JobFailed, ready_cores, run_task_set, spark_for
from roquet.spark.jobs.replay import origin_check
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, filter_rows, scan_files
from roquet.spark.jobs.replay.replay_tasks import ReplayTasks, TaskPlan
from roquet.spark.jobs.resend_rows import REQUIRED_COLUMNS, USED_COLUMNS
from roquet.spark.jobs.send_plan import map_queues, split_among_tasks, task_rates
from roquet.spark.offset_spec import TimeAgo, parse_time
from roquet.spark.options import SourceOptions, parse
from roquet.store.filesystem.directory_lock import FileLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logger(__name__)

OPTIONS: Final = ("namesrv", "timeout", "group")
"""Options of the source that apply to a destination, too."""

PROGRESS_PERIOD_S: Final = 1.0
"""How often the destination is asked for its offsets, to report progress."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a replay."""

    source: str
    """An archive of any kind, or a directory of Parquet files with the needed columns."""
    topic: str
    """The destination."""
    kind: str | None = None
    """Kind of the table; None detects it from the directory."""
    options: Mapping[str, str] = {}
    """Options of the destination: namesrv, timeout."""
    only_topic: str | None = None
    """The one topic to send, of a table with several."""
    begin: str | None = None
    until: str | None = None
    """Only messages stored within [begin, until)."""
    keys: tuple[str, ...] = ()
    """Only messages with at least one of these keys."""
    rate: float | None = None
    """Messages per second of all tasks together; None for no limit."""
    since: str | None = None
    """The earliest time at which the destination may have got copies; None reads all of it."""
    same_topic: bool = False
    """Send also to a topic that still holds the original messages."""
    tasks: int | None = None
    name: str = ""
    catalog: Mapping[str, str] = {}
    storage: Mapping[str, str] = {}
    """Options of the object store of `source`; the environment gives those that are not here."""
    master: str | None = None


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
    settings = destination_options(params)
    row_filter = row_filter_of(params)
    snapshot = read_snapshot(
        params.source,
        params.only_topic or "",
        kind=params.kind,
        name=params.name,
        catalog=params.catalog,
        storage=params.storage,
    )
    with _exclusive_run(params):
        return _run(params, settings, row_filter, snapshot, spark, on_progress)


def _run(
    params: Params,
    settings: SourceOptions,
    row_filter: RowFilter,
    snapshot: TableSnapshot,
    spark: "Callable[[], SparkSession]",
    on_progress: OnReplayProgress,
) -> ReplayProgress:
    # A replica may lack copies that its master has, which would be sent twice.
    cluster = ClusterClient(settings, leaders_only=True)
    bounds = cluster.bounds()
    start = _scan_start(params, cluster, bounds)
    already_sent = read_originals(cluster, ranges(start, bounds.latest))
    sources = scan_files(snapshot.paths, snapshot.topic, row_filter, already_sent, snapshot.storage)
    progress = ReplayProgress(
        left=sum(queue_rows.rows for queue_rows in sources),
        there=sum(queue_rows.already_sent for queue_rows in sources),
    )
    on_progress(progress)
    if not progress.left:
        return progress
    if not params.same_topic:
        may_hold = [
            each for each in sources if origin_check.may_hold_originals(bounds, each, snapshot)
        ]
        queue = origin_check.queue_with_originals(
            cluster, bounds, may_hold, row_filter, already_sent
        )
        if queue is not None:
            raise ConfigError(
                f"{queue_text(queue)} still holds the original messages of {params.source}, so "
                "each would be there twice: give another topic, or --same-topic to send them "
                "nevertheless"
            )
    params = msgspec.structs.replace(params, tasks=params.tasks or ready_cores(spark()))
    task_set = _task_set(params, cluster, bounds.latest, sources, already_sent, row_filter)
    with _progress_reported(settings, bounds.latest, progress, on_progress):
        results = run_task_set(spark(), task_set)
    _check_complete(sources, results)
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


def destination_options(params: Params) -> SourceOptions:
    """The settings of the destination; ConfigError for parameters that no replay can have."""
    known = {name.lower() for name in OPTIONS}
    for name in params.options:
        if name.lower() not in known:
            raise ConfigError(f"option {name!r} is not for replays: they have {', '.join(OPTIONS)}")
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"a replay goes to exactly one topic, not to {params.topic!r}")
    if is_retry(params.topic) or is_dlq(params.topic) or not can_clients_send_to(params.topic):
        raise ConfigError(f"topic {params.topic} is internal to the broker: give another one")
    if params.rate is not None and not params.rate > 0:
        raise ConfigError(f"the rate has to be over 0, and is {params.rate:g} messages a second")
    return parse({**params.options, "topic": params.topic}, os.environ)


def row_filter_of(params: Params) -> RowFilter:
    """The conditions that choose the rows to send."""
    first = _ms(params.begin, "--from")
    end = _ms(params.until, "--until")
    if first is not None and end is not None and first >= end:
        raise ConfigError("--from is not before --until: no message would be chosen")
    return RowFilter(topic=params.only_topic, from_ms=first, until_ms=end, keys=params.keys)


def _ms(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    time = parse_time(text, name)
    return SYSTEM_CLOCK.now_ms() - time.ms if isinstance(time, TimeAgo) else time.ms


def _scan_start(params: Params, cluster: ClusterClient, bounds: OffsetBounds) -> QueueOffsets:
    """The offsets from which the destination is searched for copies.

    Raises ConfigError where the broker may have deleted copies of earlier runs.
    """
    since_ms = _ms(params.since, "--since")
    start = dict(bounds.earliest)
    for queue, first in sorted(bounds.earliest.items()):
        last = bounds.latest[queue]
        if since_ms is not None:
            start[queue] = cluster.first_since(queue, (first, last), since_ms)
        if first > 0 and start[queue] == first < last:
            raise ConfigError(
                f"{queue_text(queue)} has lost its messages before offset {first}, and with them "
                "any copies that earlier runs have sent: give --since, a time before the first "
                "run of this replay and after the oldest message in the topic"
            )
    return start


def _task_set(
    params: Params,
    cluster: ClusterClient,
    latest: QueueOffsets,
    sources: Sequence[QueueRows],
    already_sent: Mapping[QueueKey, OffsetSet],
    row_filter: RowFilter,
) -> ReplayTasks:
    queues = [queue for queue in writable_queues(cluster, params.topic, latest) if queue in latest]
    queue_map = map_queues((queue_rows.source for queue_rows in sources), queues)
    by_source = {queue_rows.source: queue_rows for queue_rows in sources if queue_rows.rows}
    rows = {source: queue_rows.rows for source, queue_rows in by_source.items()}
    plans = split_among_tasks(rows, queue_map, params.tasks or os.cpu_count() or 1)
    rates = task_rates(params.rate, [sum(rows[source] for source in plan) for plan in plans])
    return ReplayTasks(
        settings=cluster.settings,
        plans=[
            TaskPlan(sources=tuple(by_source[source] for source in plan), rate=rate)
            for plan, rate in zip(plans, rates, strict=True)
        ],
        queue_map={source: queue_map[source] for source in rows},
        since=latest,
        already_sent={source: already_sent[source] for source in rows if source in already_sent},
        row_filter=row_filter,
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
