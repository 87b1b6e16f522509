"""audit: a producer's count, a topic and its table, held against each other.

    report = main(Params(topic="orders", target="lake/orders"))
    report.findings     # missing, lost, doubled, unknown: each a queue and its offsets

Each side is asked for what it knows without reading bodies: the table for its offsets, the topic
for the ends of its queues and for the first offset of each hour. Nothing is written, and an archive
may go on meanwhile.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.rules.topic_id import is_other_topic
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.audit import file_summary, hourly_counts
from roquet.spark.jobs.audit.audit_report import AuditReport, RowGap, build_report, with_locations
from roquet.spark.jobs.audit.duplicate_rows import RowSearchTasks, SinkRowLocation
from roquet.spark.jobs.audit.file_summary import FileSummary, SummaryTasks
from roquet.spark.jobs.audit.findings import AuditedQueue
from roquet.spark.jobs.job_runner import JobFailed, run_task_set, spark_for
from roquet.spark.jobs.offset_counts import NumberRange, OffsetCounts
from roquet.spark.jobs.task_set import TaskResult, TaskSet
from roquet.spark.options import SourceOptions, parse
from roquet.spark.queue_offsets import QueueOffsets, TopicIds
from roquet.spark.source.plan import recreation_texts
from roquet.spark.tables.snapshot import TableSnapshot, read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALLOWED_OPTIONS: Final = frozenset({"namesrv", "timeout"})

GROUP_BYTES: Final = 256 * 1024 * 1024
"""Of files that one task looks at: most of it are bodies, which are passed over."""

THREADS_MAX: Final = 4
"""Files that this process looks at together; each has a few columns in memory."""

ROWS: Final = "rows"
"""Stands for a file of counts where the rows' own keys are to be counted."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to have compared."""

    topic: str
    target: str
    producer: str = ""
    """A file of counts by hour, or `rows`: look at the keys that our sink gives its rows."""
    options: Mapping[str, str] = {}
    name: str = ""
    catalog: Mapping[str, str] = {}
    master: str | None = None


class AuditProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an audit has come."""

    done: int
    total: int
    what: str


OnAuditProgress = Callable[[AuditProgress], object]

transform = file_summary.transform
"""What is in rows of a table: pure; each task does it to its files."""


def main(params: Params) -> AuditReport:
    """Audit with the Spark that is there, or one on this machine."""
    return run(params, lambda: spark_for("roquet audit", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession] | None" = None,
    tell: OnAuditProgress = lambda _: None,
) -> AuditReport:
    """Compare; without a Spark this process looks at the files by itself."""
    settings = topic_options(params)
    counted = (
        hourly_counts.read_producer_counts(Path(params.producer), params.topic)
        if _is_counts_file(params)
        else None
    )
    held = read_snapshot(params.target, params.topic, name=params.name, catalog=params.catalog)
    cluster = ClusterClient(settings)
    now = cluster.bounds()  # a topic that there is not is said before all files are read
    _check_same_topic(params, held, now.topic_ids)
    files = _FileScanner(held, spark, tell)
    found = files.counted(params)
    queues = _audited_queues(cluster, held, found, tell)
    report = build_report(params.target, held, found, queues, counted)
    return with_locations(report, files.located(params.topic, report.row_gaps))


def topic_options(params: Params) -> SourceOptions:
    """Where the topic is."""
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"an audit is of one topic, not of {params.topic!r}")
    for name in params.options:
        if name.lower() not in ALLOWED_OPTIONS:
            raise ConfigError(f"option {name!r} is not for audits: they are of all messages")
    return parse({**params.options, "topic": params.topic}, os.environ)


def _check_same_topic(params: Params, held: TableSnapshot, now: TopicIds) -> None:
    """JobFailed where the table is of a topic that was deleted, and another has its name."""
    known = {(held.topic, broker): one for broker, one in held.topic_ids.items()}
    read = {(topic, broker, queue): at for (topic, broker, queue), at in (held.end or {}).items()}
    anew = {queue for queue in read if is_other_topic(known.get(queue[:2]), now.get(queue[:2]))}
    for what in recreation_texts(anew, read, now):
        raise JobFailed(
            f"{params.target} and topic {params.topic!r} are not of the same messages: {what}."
            " Audit an archive of the new one"
        )


def group_files(paths: Sequence[str], size: Callable[[str], int]) -> list[list[str]]:
    """Files for one task each: a few large ones, or many small ones."""
    groups: list[list[str]] = []
    room = 0
    for path in paths:
        if room <= 0:
            groups.append([])
            room = GROUP_BYTES
        groups[-1].append(path)
        room -= size(path)
    return groups


def _is_counts_file(params: Params) -> bool:
    return bool(params.producer) and params.producer != ROWS


class _FileScanner:
    """The files of a table, and who looks at them."""

    def __init__(
        self, held: TableSnapshot, spark: "Callable[[], SparkSession] | None", tell: OnAuditProgress
    ) -> None:
        self._spark, self._tell = spark, tell
        try:
            self._groups = group_files(held.paths, lambda path: Path(path).stat().st_size)
        except FileNotFoundError as error:
            text = f"{error.filename} is gone: files were merged meanwhile; start again"
            raise JobFailed(text) from None

    def counted(self, params: Params) -> FileSummary:
        """What is in all of them."""
        keys = params.producer == ROWS
        said = self._done(SummaryTasks(groups=self._groups, topic=params.topic, keys=keys))
        return file_summary.merge_summaries(
            [msgspec.json.decode(one.found, type=FileSummary) for one in said]
        )

    def located(self, topic: str, row_gaps: Sequence[RowGap]) -> list[SinkRowLocation]:
        """Where rows are that are there twice."""
        wanted: dict[str, list[NumberRange]] = {}
        for gap in row_gaps:
            if gap.what == "doubled":
                wanted.setdefault(gap.writer, []).append(NumberRange(gap.start, gap.end))
        if not wanted:
            return []
        said = self._done(RowSearchTasks(groups=self._groups, topic=topic, wanted=wanted))
        return [
            one
            for part in said
            for one in msgspec.json.decode(part.found, type=list[SinkRowLocation])
        ]

    def _done(self, errand: TaskSet) -> list[TaskResult]:
        """By Spark, or here: reading and sorting leave Python for most of the time."""
        total, done = len(errand), list[TaskResult]()
        self._tell(AuditProgress(done=0, total=total, what="files"))
        if self._spark is not None and total:
            done = run_task_set(self._spark(), errand)
            self._tell(AuditProgress(done=total, total=total, what="files"))
            return done
        with ThreadPoolExecutor(THREADS_MAX, "roquet-audit") as pool:
            for answer in pool.map(errand.do, range(total)):
                done.append(answer)
                self._tell(AuditProgress(done=len(done), total=total, what="files"))
        return done


def _audited_queues(
    cluster: ClusterClient, held: TableSnapshot, found: FileSummary, tell: OnAuditProgress
) -> list[AuditedQueue]:
    """Each queue that the table or the topic knows, with what both say of it."""
    topic = cluster.settings.topics[0]
    bounds = cluster.bounds()  # after the table: so it cannot be ahead
    inside = {(one.name, one.queue_id): one.runs for one in found.queues}
    places = {(broker, number) for _, broker, number in {**bounds.latest, **(held.end or {})}}
    made = []
    total = len(places | inside.keys())
    for done, (broker, queue_id) in enumerate(sorted(places | inside.keys())):
        tell(AuditProgress(done=done, total=total, what="queues"))
        key = topic, broker, queue_id
        span = bounds.earliest.get(key), bounds.latest.get(key)
        ends = (span[0], span[1]) if span[0] is not None and span[1] is not None else None
        made.append(
            AuditedQueue(
                broker=broker,
                queue_id=queue_id,
                runs=inside.get((broker, queue_id), OffsetCounts()),
                begin=_archive_start(held, key),
                end=None if held.end is None else held.end.get(key, 0),
                first=span[0],
                next=span[1],
                edges=hourly_counts.hour_starts(cluster, key, ends) if ends else (),
            )
        )
    tell(AuditProgress(done=total, total=total, what="queues"))
    return made


def _archive_start(held: TableSnapshot, key: tuple[str, str, int]) -> int | None:
    """Where the archive began in a queue; of one that came later it wants all."""
    known: QueueOffsets | None = held.begin
    return None if known is None else known.get(key, 0)
