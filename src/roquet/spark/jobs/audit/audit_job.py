"""Audit job: compares a table with its topic, and with a producer's own counts.

    report = main(Params(topic="orders", target="lake/orders"))
    report.findings     # missing, lost, doubled, unknown: each a queue and its offsets

No bodies are read: the table is asked for its offsets, and the topic for the ends of its queues and
the first offset of each hour. Nothing is written, and an archive may run at the same time.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.lake.audit import file_summary, hourly_counts
from roquet.lake.audit.audit_report import AuditReport, RowGap, build_report, with_locations
from roquet.lake.audit.duplicate_rows import RowSearchTasks, SinkRowLocation
from roquet.lake.audit.file_summary import FileSummary, SummaryTasks
from roquet.lake.audit.findings import HOUR_MS, AuditedQueue
from roquet.lake.intervals import NumberRange, OffsetCounts
from roquet.lake.objects.object_store import file_sizes
from roquet.lake.queue_offsets import QueueKey, TopicIds
from roquet.lake.snapshot import TableSnapshot, read_snapshot
from roquet.lake.task_set import TaskResult, TaskSet
from roquet.model.errors import ConfigError
from roquet.rules.topic_id import is_other_topic
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.job_runner import JobFailed, run_task_set, spark_for
from roquet.spark.options import SourceOptions, parse
from roquet.spark.source.plan import recreation_texts
from roquet.wire.calls.offset import EarliestTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALLOWED_OPTIONS: Final = frozenset({"namesrv", "timeout"})

GROUP_BYTES: Final = 256 * 1024 * 1024
"""Size of the files of one task. Most of it are bodies, which are skipped."""

THREADS_MAX: Final = 4
"""Files that this process reads at the same time; a few columns of each are in memory."""

ROWS: Final = "rows"
"""Value of `producer` that counts the keys of rows instead of reading a file of counts."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of an audit."""

    topic: str
    target: str
    producer: str = ""
    """A file of counts by hour; or `rows` to check the keys that our sink gives its rows."""
    options: Mapping[str, str] = {}
    name: str = ""
    catalog: Mapping[str, str] = {}
    storage: Mapping[str, str] = {}
    """Options of the object store of `target`; the environment gives those that are not here."""
    master: str | None = None


class AuditProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an audit: `done` of `total` files or queues."""

    done: int
    total: int
    what: str


OnAuditProgress = Callable[[AuditProgress], object]

transform = file_summary.transform
"""Summarizes rows of a table. Pure; each task applies it to its files."""


def main(params: Params) -> AuditReport:
    """Run the audit with the provided Spark session, or with a local one."""
    return run(params, lambda: spark_for("roquet audit", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession] | None" = None,
    on_progress: OnAuditProgress = lambda _: None,
) -> AuditReport:
    """Compare table, topic and producer; without `spark` this process reads the files itself."""
    settings = topic_options(params)
    producer_counts = (
        hourly_counts.read_producer_counts(Path(params.producer), params.topic)
        if params.producer and params.producer != ROWS
        else None
    )
    snapshot = read_snapshot(
        params.target,
        params.topic,
        name=params.name,
        catalog=params.catalog,
        storage=params.storage,
    )
    cluster = ClusterClient(settings)
    bounds = cluster.bounds()  # an unknown topic is an error before all files are read
    _check_same_topic(params, snapshot, bounds.topic_ids)
    scanner = _FileScanner(snapshot, spark, on_progress)
    summary = scanner.summarize(params)
    queues = _audited_queues(cluster, snapshot, summary, on_progress)
    report = build_report(params.target, snapshot, summary, queues, producer_counts)
    return with_locations(report, scanner.locate(params.topic, report.row_gaps))


def topic_options(params: Params) -> SourceOptions:
    """The settings of the topic; ConfigError for options that an audit cannot have."""
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"an audit is of exactly one topic, not of {params.topic!r}")
    for name in params.options:
        if name.lower() not in ALLOWED_OPTIONS:
            raise ConfigError(f"option {name!r} is not allowed: an audit is of all messages")
    return parse({**params.options, "topic": params.topic}, os.environ)


def _check_same_topic(params: Params, snapshot: TableSnapshot, topic_ids: TopicIds) -> None:
    """JobFailed when the table's topic was deleted, and another one has its name now."""
    known = {(snapshot.topic, broker): topic_id for broker, topic_id in snapshot.topic_ids.items()}
    archived = dict(snapshot.end or {})
    recreated = {
        queue
        for queue in archived
        if is_other_topic(known.get(queue[:2]), topic_ids.get(queue[:2]))
    }
    for text in recreation_texts(recreated, archived, topic_ids):
        raise JobFailed(
            f"{params.target} and topic {params.topic!r} are not of the same messages: {text}."
            " Audit an archive of the new one"
        )


def group_files(paths: Sequence[str], size: Callable[[str], int]) -> list[list[str]]:
    """Group files into tasks of at least GROUP_BYTES each, but for the last one."""
    groups: list[list[str]] = []
    left = 0
    for path in paths:
        if left <= 0:
            groups.append([])
            left = GROUP_BYTES
        groups[-1].append(path)
        left -= size(path)
    return groups


class _FileScanner:
    """Reads the files of a table, on Spark or in threads of this process."""

    def __init__(
        self,
        snapshot: TableSnapshot,
        spark: "Callable[[], SparkSession] | None",
        on_progress: OnAuditProgress,
    ) -> None:
        self._spark, self._on_progress = spark, on_progress
        self._storage = snapshot.storage
        try:
            sizes = dict(
                zip(snapshot.paths, file_sizes(snapshot.paths, snapshot.storage), strict=True)
            )
            self._groups = group_files(snapshot.paths, sizes.__getitem__)
        except FileNotFoundError as error:
            text = f"{error.filename} is gone: files were merged meanwhile; start again"
            raise JobFailed(text) from None

    def summarize(self, params: Params) -> FileSummary:
        """Summarize all files."""
        keys = params.producer == ROWS
        results = self._run(
            SummaryTasks(groups=self._groups, topic=params.topic, keys=keys, storage=self._storage)
        )
        return file_summary.merge_summaries(
            [msgspec.json.decode(result.payload, type=FileSummary) for result in results]
        )

    def locate(self, topic: str, row_gaps: Sequence[RowGap]) -> list[SinkRowLocation]:
        """The messages of rows that occur more than once."""
        wanted: dict[str, list[NumberRange]] = {}
        for gap in row_gaps:
            if gap.what == "doubled":
                wanted.setdefault(gap.writer, []).append(NumberRange(gap.start, gap.end))
        if not wanted:
            return []
        results = self._run(
            RowSearchTasks(groups=self._groups, topic=topic, wanted=wanted, storage=self._storage)
        )
        return [
            location
            for result in results
            for location in msgspec.json.decode(result.payload, type=list[SinkRowLocation])
        ]

    def _run(self, task_set: TaskSet) -> list[TaskResult]:
        """Run the tasks on Spark; else in threads: reading and sorting mostly release the GIL."""
        total, results = len(task_set), list[TaskResult]()
        self._on_progress(AuditProgress(done=0, total=total, what="files"))
        if self._spark is not None and total:
            results = run_task_set(self._spark(), task_set)
            self._on_progress(AuditProgress(done=total, total=total, what="files"))
            return results
        with ThreadPoolExecutor(THREADS_MAX, "roquet-audit") as pool:
            for result in pool.map(task_set.run, range(total)):
                results.append(result)
                self._on_progress(AuditProgress(done=len(results), total=total, what="files"))
        return results


def _audited_queues(
    cluster: ClusterClient,
    snapshot: TableSnapshot,
    summary: FileSummary,
    on_progress: OnAuditProgress,
) -> list[AuditedQueue]:
    """Collect what the table and the topic say of each queue that one of them knows."""
    topic = cluster.settings.topics[0]
    # Read after the table, so that the table cannot be ahead.
    bounds = cluster.bounds(former=snapshot.end or {})
    counts = {(each.name, each.queue_id): each.counts for each in summary.queues}
    keys = {**bounds.latest, **(snapshot.end or {})}
    places = sorted({(broker, queue_id) for _, broker, queue_id in keys} | counts.keys())
    queues = []
    for done, (broker, queue_id) in enumerate(places):
        on_progress(AuditProgress(done=done, total=len(places), what="queues"))
        key = topic, broker, queue_id
        first, end = bounds.earliest.get(key), bounds.latest.get(key)
        hours: tuple[tuple[int, int], ...] = ()
        if first is not None and end is not None:
            hours = hour_starts(cluster, key, (first, end))
        queues.append(
            AuditedQueue(
                broker=broker,
                queue_id=queue_id,
                counts=counts.get((broker, queue_id), OffsetCounts()),
                # A queue that was added after the archive's first run is archived from offset 0.
                begin=None if snapshot.begin is None else snapshot.begin.get(key, 0),
                end=None if snapshot.end is None else snapshot.end.get(key, 0),
                first=first,
                next=end,
                hour_starts=hours,
            )
        )
    on_progress(AuditProgress(done=len(places), total=len(places), what="queues"))
    return queues


def hour_starts(
    cluster: ClusterClient, queue: QueueKey, span: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    """Pairs of each hour since 1970 that has messages, and the offset of its first message.

    `span` is the half-open range of offsets in the queue.
    """
    if span[0] >= span[1]:
        return ()
    topic, broker, queue_id = queue
    oldest_ms = cluster.ask(broker, EarliestTime(topic=topic, queue_id=queue_id)).timestamp
    first = max(oldest_ms, 0) // HOUR_MS
    last = cluster.now_ms() // HOUR_MS + 1

    def at(hour: int) -> int:
        return cluster.first_since(queue, span, hour * HOUR_MS)

    return tuple(search_hours(at, (first, span[0]), (max(last, first + 1), span[1])))


def search_hours(
    at: Callable[[int], int], low: tuple[int, int], high: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Search the hours in which offsets rise by bisection; yields (hour, first offset) pairs.

    `low` and `high` are such pairs, too, and bound the search to [low, high). `at` returns the
    offset of the first message since the begin of an hour.
    """
    if low[1] >= high[1]:
        return
    if low[0] + 1 >= high[0]:
        yield low
        return
    hour = (low[0] + high[0]) // 2
    middle = hour, min(max(at(hour), low[1]), high[1])
    yield from search_hours(at, low, middle)
    yield from search_hours(at, middle, high)
