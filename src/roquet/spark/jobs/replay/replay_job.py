"""replay: rows of a table become messages of a topic, in order and at a rate, each once.

    main(Params(source="/lake/orders", topic="OrdersAgain", options={"namesrv": "127.0.0.1:9876"}))

The truth is in the destination: each message says whose copy it is (ROQUET_FROM). A run reads which
rows are there, and sends the others; so whatever is killed, the same run again does the rest. There
is no state to keep. A run that reads only what is there `since` a time knows only of runs after it.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError, StoreError, StoreLocked
from roquet.model.names import can_clients_send_to, is_dlq, is_retry
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.jobs.exactly_once_sender import read_originals
from roquet.spark.jobs.intervals import OffsetSet
from roquet.spark.jobs.job_runner import JobFailed, run_task_set, spark_for
from roquet.spark.jobs.queue_mapping import map_queues, split_among_tasks, task_rates
from roquet.spark.jobs.replay import origin_check
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, filter_rows, scan_files
from roquet.spark.jobs.replay.replay_tasks import ReplayTasks, TaskPlan
from roquet.spark.jobs.resend_rows import REQUIRED_COLUMNS
from roquet.spark.jobs.resend_rows import USED_COLUMNS as TAKEN_COLUMNS
from roquet.spark.jobs.task_set import TaskResult
from roquet.spark.offset_spec import TimeAgo, parse_time
from roquet.spark.options import SourceOptions, parse
from roquet.spark.queue_offsets import QueueKey, QueueOffsets, from_json, queue_text, ranges
from roquet.spark.tables.open_table import directory
from roquet.spark.tables.snapshot import TableSnapshot, read_snapshot
from roquet.spark.tables.staging import HIDDEN
from roquet.store.filesystem.directory_lock import FileLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logger(__name__)

OPTIONS: Final = ("namesrv", "timeout", "group")
"""Options of the source that say something of a destination, too."""

PROGRESS_PERIOD_S: Final = 1.0
"""How often the destination is asked how far it is."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants of a replay."""

    source: str
    """A directory: an archive of any kind, or Parquet files with the columns."""
    topic: str
    """Where to."""
    kind: str | None = None
    """None: as the directory looks."""
    options: Mapping[str, str] = {}
    """Of the destination: namesrv, timeout."""
    only_topic: str | None = None
    """Of a table with several topics this one."""
    begin: str | None = None
    until: str | None = None
    """Stored from a time on, and before another."""
    keys: tuple[str, ...] = ()
    """Only messages with one of these keys."""
    rate: float | None = None
    """Messages a second, of all tasks together; None is as fast as it goes."""
    since: str | None = None
    """From when on the destination may hold what earlier runs have sent; None is always."""
    same_topic: bool = False
    """Send also what the topic has as the very messages that were archived."""
    tasks: int | None = None
    name: str = ""
    catalog: Mapping[str, str] = {}
    master: str | None = None


class ReplayProgress(msgspec.Struct, kw_only=True):
    """How far a run has come."""

    rows: int = 0
    """Sent, by this run."""
    there: int = 0
    """Chosen rows that were there before."""
    left: int = 0
    doubled: int = 0
    """Messages that are known to be there twice: dropDoubles drops them."""


OnReplayProgress = Callable[[ReplayProgress], object]


def transform(rows: pa.RecordBatch, choice: RowFilter) -> pa.RecordBatch:
    """Which rows are replayed."""
    return filter_rows(rows, choice)


def main(params: Params) -> ReplayProgress:
    """Replay with the Spark that is there, or one on this machine."""
    return run(params, lambda: spark_for("roquet replay", params.master))


def run(
    params: Params, spark: "Callable[[], SparkSession]", tell: OnReplayProgress = lambda _: None
) -> ReplayProgress:
    """Send what is not there yet; Spark is asked for when there is something to be sent."""
    settings = destination_options(params)
    choice = row_filter_of(params)
    found = read_snapshot(
        params.source,
        params.only_topic or "",
        kind=params.kind,
        name=params.name,
        catalog=params.catalog,
    )
    with _exclusive_run(params):
        return _run(params, settings, choice, found, spark, tell)


def _run(
    params: Params,
    settings: SourceOptions,
    choice: RowFilter,
    found: TableSnapshot,
    spark: "Callable[[], SparkSession]",
    tell: OnReplayProgress,
) -> ReplayProgress:
    cluster = ClusterClient(settings)
    bounds = cluster.bounds()
    there = read_originals(cluster, ranges(_scan_start(params, cluster, bounds), bounds.latest))
    wanted = scan_files(found.paths, found.topic, choice, there)
    progress = ReplayProgress(
        left=sum(stretch.rows for stretch in wanted), there=sum(one.there for one in wanted)
    )
    tell(progress)
    if not progress.left:
        return progress
    if not params.same_topic:
        same = [
            stretch for stretch in wanted if origin_check.may_hold_originals(bounds, stretch, found)
        ]
        _refuse_originals(
            origin_check.queue_with_originals(cluster, bounds, same, choice, there), params
        )
    errand = _task_set(params, cluster, bounds.latest, wanted, there, choice)
    with _progress_reported(settings, bounds.latest, progress, tell):
        done = run_task_set(spark(), errand)
    _check_complete(wanted, done)
    last = ReplayProgress(rows=progress.left, there=progress.there)
    last.doubled = sum(answer.doubled for answer in done)
    tell(last)
    return last


def replay_frame(frame: "DataFrame", params: Params, spark: "SparkSession") -> ReplayProgress:
    """Replay any frame with the columns; it is written to `params.source` first, where it stays.

    So rows keep what they are, however often the run is repeated: with the directory there, it is
    what is sent.
    """
    if not (directory(params.source) / "_SUCCESS").exists():
        missing = [name for name in REQUIRED_COLUMNS if name not in frame.columns]
        if missing:
            raise ConfigError(f"the frame has no column {missing[0]!r}")
        columns = [name for name in TAKEN_COLUMNS if name in frame.columns]
        queue = [name for name in ("topic", "broker", "queue_id") if name in columns]
        rows = frame.select(*columns).repartition(*queue)
        ordered = rows.sortWithinPartitions(*queue, "queue_offset")
        ordered.write.mode("overwrite").parquet(params.source)
    return run(params, lambda: spark)


def destination_options(params: Params) -> SourceOptions:
    """The destination's settings, checked."""
    known = {name.lower() for name in OPTIONS}
    for name in params.options:
        if name.lower() not in known:
            raise ConfigError(f"option {name!r} is not for replays: there are {', '.join(OPTIONS)}")
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"a replay goes to one topic, not to {params.topic!r}")
    if is_retry(params.topic) or is_dlq(params.topic) or not can_clients_send_to(params.topic):
        raise ConfigError(f"topic {params.topic} is the broker's own: give another one")
    if params.rate is not None and not params.rate > 0:
        raise ConfigError(f"a rate of {params.rate:g} messages a second sends nothing")
    return parse({**params.options, "topic": params.topic}, os.environ)


def row_filter_of(params: Params) -> RowFilter:
    """Which rows are meant."""
    first = _ms(params.begin, "--from")
    end = _ms(params.until, "--until")
    if first is not None and end is not None and first >= end:
        raise ConfigError("--from is not before --until: nothing is meant")
    return RowFilter(topic=params.only_topic, from_ms=first, until_ms=end, keys=params.keys)


def _ms(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    time = parse_time(text, name)
    return SYSTEM_CLOCK.now_ms() - time.ms if isinstance(time, TimeAgo) else time.ms


def _scan_start(params: Params, cluster: ClusterClient, bounds: OffsetBounds) -> QueueOffsets:
    """From where on the destination is read; ConfigError where retention may hide earlier runs."""
    since_ms = _ms(params.since, "--since")
    found = dict(bounds.earliest)
    for queue, first in sorted(bounds.earliest.items()):
        last = bounds.latest[queue]
        if since_ms is not None:
            found[queue] = cluster.first_since(queue, (first, last), since_ms)
        if first > 0 and found[queue] == first < last:
            raise ConfigError(
                f"{queue_text(queue)} has lost its messages before offset {first}, "
                "and with them what "
                "earlier runs may have sent: say --since with a time before the first run of this "
                "replay, and behind the oldest message that is there"
            )
    return found


def _refuse_originals(queue: QueueKey | None, params: Params) -> None:
    """ConfigError where the destination has these messages as those that they were."""
    if queue is not None:
        raise ConfigError(
            f"{queue_text(queue)} still holds the messages that {params.source} was made of: they "
            "would be there twice. Give another topic, or say --same-topic if that is what you want"
        )


def _task_set(
    params: Params,
    cluster: ClusterClient,
    latest: QueueOffsets,
    wanted: Sequence[QueueRows],
    there: Mapping[QueueKey, OffsetSet],
    choice: RowFilter,
) -> ReplayTasks:
    """What the tasks have to do."""
    route = cluster.with_retries(lambda: cluster.route(params.topic), "name server")
    queues = [
        queue
        for one in route.write_queues(params.topic)
        if (queue := (one.topic, one.broker_name, one.queue_id)) in latest
    ]
    ways = map_queues((stretch.source for stretch in wanted), queues)
    by_source = {stretch.source: stretch for stretch in wanted if stretch.rows}
    rows = {source: stretch.rows for source, stretch in by_source.items()}
    hands = split_among_tasks(rows, ways, params.tasks or os.cpu_count() or 1)
    rates = task_rates(params.rate, [sum(rows[source] for source in hand) for hand in hands])
    return ReplayTasks(
        settings=cluster.settings,
        hands=[
            TaskPlan(stretches=tuple(by_source[source] for source in hand), rate=rate)
            for hand, rate in zip(hands, rates, strict=True)
        ],
        ways={source: ways[source] for source in rows},
        since=latest,
        there={source: there[source] for source in rows if source in there},
        choice=choice,
    )


@contextmanager
def _exclusive_run(params: Params) -> Iterator[None]:
    """Meanwhile no other run brings rows of this directory to this topic.

    Where nothing can be written the tasks still see from the broker's answers that another one is
    under way, but only after it has sent some rows as well.
    """
    lock, root = None, directory(params.source)
    try:
        if root.is_dir():
            lock = FileLock(root / HIDDEN / f"replay-{params.topic}", "another replay")
    except StoreLocked:
        raise RoquetError(
            f"another replay of {root} to topic {params.topic} is under way: when it has ended, "
            "start again for what it has not sent"
        ) from None
    except StoreError:
        log.debug("%s cannot be written: no other replay is kept out", root)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def _progress_reported(
    settings: SourceOptions, before: QueueOffsets, progress: ReplayProgress, tell: OnReplayProgress
) -> Iterator[None]:
    """Meanwhile the destination is asked how much has come."""
    ended, channels = threading.Event(), dict[str, BlockingChannel]()
    cluster = ClusterClient(settings, channels=channels)

    def watch() -> None:
        while not ended.wait(PROGRESS_PERIOD_S):
            with suppress(RoquetError):
                come = sum(map(len, ranges(before, cluster.latest())))
                rows = min(come, progress.left)
                tell(ReplayProgress(rows=rows, there=progress.there, left=progress.left - rows))

    watching = threading.Thread(target=watch, name="roquet-replay-watch", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        for channel in channels.values():
            channel.close()


def _check_complete(wanted: Sequence[QueueRows], done: Sequence[TaskResult]) -> None:
    """JobFailed unless each row was sent that was to be."""
    rows = sum((Counter(from_json(answer.rows)) for answer in done), Counter[QueueKey]())
    for stretch in wanted:
        if rows[stretch.source] != stretch.rows:
            raise JobFailed(
                f"{queue_text(stretch.source)}: {rows[stretch.source]} rows of {stretch.rows} were "
                "sent: was the table changed meanwhile? Start again, the others follow"
            )
