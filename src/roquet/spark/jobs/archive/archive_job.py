"""Archive job: writes a topic to a table, each message exactly once, also across kills.

    main(Params(topic="orders", target="/lake/orders", options={"namesrv": "127.0.0.1:9876"}))

The table holds the state: each commit publishes files together with the offsets at which they end.
The driver reads these offsets, plans a batch as the streaming source does, runs one Spark job that
writes the files, and commits what its tasks returned. A killed run has either committed a batch or
not, and the next run continues from the last commit.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.lake import queue_offsets
from roquet.lake.columns import partitioning
from roquet.lake.columns.body_columns import BodyField
from roquet.lake.columns.body_parser import add_counts
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.files.parquet_writer import COMPRESSION
from roquet.lake.maintain.compaction import compact
from roquet.lake.open_table import open_table, table_location
from roquet.lake.queue_offsets import OffsetRange, QueueKey, QueueOffsets, from_json, queue_text
from roquet.lake.table import ArchiveIdentity, ArchiveTable, DataFile, TableState
from roquet.lake.task_set import TaskResult, TaskSet, rows_by_queue
from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark import offset_spec
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive.archive_columns import batch_fields, set_body_columns
from roquet.spark.jobs.archive.archive_tasks import ArchiveTasks
from roquet.spark.jobs.archive.status_writer import StatusWriter
from roquet.spark.jobs.job_runner import JobFailed, ready_cores, run_task_set, spark_for
from roquet.spark.options import SourceOptions, parse
from roquet.spark.source.stream import StreamReader
from roquet.spark.source.tasks import BrokerUnavailable, ReadTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
log = logger(__name__)

DEFAULT_LIMITS: Final[Mapping[str, str]] = {
    "maxOffsetsPerTrigger": "4000000",
    "maxBytesPerTrigger": "4GiB",
}
"""Default size limits of one commit, which is the most that a kill makes a run repeat."""

FORBIDDEN_OPTIONS: Final = (
    *("topicPattern", "tags", "sql92", "pushdown", "dropDoubles", "columns"),
    *("bodyFormat", "bodySchema"),
)
"""Options of the source that filter or reshape messages. An archive holds every message, because
gaps in its offsets are how it knows that one is missing."""

END_OPTIONS: Final = frozenset({"endingoffsets", "endingtime"})

STOP_CHECK_MS: Final = 200
"""How often a waiting archive checks whether it shall stop."""

COMPACT_MIN: Final = 2
COMPACT_MIN_RUNNING: Final = 16
"""Small files of one day that are worth merging: at the end of a run, and while it continues."""


class TableParams(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a job that writes a topic to a table."""

    topic: str
    target: str
    kind: str = ""
    """`delta` or `iceberg`; empty is that of the table, and delta where the table is new."""
    options: Mapping[str, str] = {}
    """Options of the source: namesrv, startingOffsets, endingOffsets, failOnDataLoss and so on."""
    columns: tuple[str, ...] = ()
    """Empty: the columns of the table, or of a message where the table is new."""
    every_ms: int | None = None
    """Pause between looks for more messages; None ends once all present messages are taken."""
    compression: str = COMPRESSION
    body_format: str = ""
    """`json`, `avro` or `protobuf` gives the fields of the bodies columns of their own, said when
    the table is made."""
    body_source: BodySchema | None = None
    """The schema of bodies in Avro or Protobuf; None is that with which the table was made."""
    body_schema: str = ""
    """The fields and their types, `id bigint, name string`; new ones become columns."""
    body_prefix: str = ""
    """The begin of the names of new body columns that are not said."""
    infer_body: bool = False
    """Whether fields that a sample of a batch shows become columns; a table that was made with it
    has it in every run."""
    name: str = ""
    catalog: Mapping[str, str] = {}
    """For Iceberg: `name` in its catalog, and the properties of a catalog that is not our own."""
    storage: Mapping[str, str] = {}
    """Options of the object store of `target`; the environment gives those that are not here."""
    master: str | None = None


class Params(TableParams, frozen=True, kw_only=True):
    """The parameters of an archive."""

    compact: bool = False
    partition_by: str = ""
    """`hour`, `day,bucket(key,16)`; empty is the table's own, and `day` where the table is new."""
    sort_by: tuple[str, ...] = ()
    """Columns by which merged files are sorted; empty is the table's own order."""


class ArchiveProgress(msgspec.Struct, kw_only=True):
    """The progress of a run."""

    rows: int = 0
    skipped: int = 0
    """Messages that the broker had deleted; 0 unless failOnDataLoss=false."""
    commits: int = 0
    merged: int = 0
    """Small files that were merged into larger ones."""
    lag: int = 0
    """Messages in the topic that are not in the table yet."""
    number: int = 0
    """Number of the table's last commit."""
    unknown_fields: Counter[str] = msgspec.field(default_factory=Counter)
    """Bodies with a value in a field that has no column, by field; they are in `body` alone."""
    bad_bodies: int = 0
    """Bodies that could not be parsed; `body_error` says why."""
    new_columns: list[str] = []
    """Columns for fields of bodies that the run has added to the table, with their types."""
    bytes: int = 0
    """Bytes of the files that the run has added."""
    kind: str = ""
    """The kind of the table."""


OnArchiveProgress = Callable[[ArchiveProgress], object]

StreamOffsets = dict[str, Any]
"""Offsets and topic ids, as `queue_offsets.checkpoint` makes them."""


transform = partitioning.split_by_day
"""Splits a batch by day: pairs of a day and its rows. Pure."""


def main(params: Params) -> ArchiveProgress:
    """Run the archive with the provided Spark session, or with a local one."""
    return run(params, lambda: spark_for("roquet archive", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession]",
    on_progress: OnArchiveProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ArchiveProgress:
    """Run the archive to its end, or until `should_stop` returns True.

    `spark` is called for each Spark job, so a run with nothing to do starts no session.
    """
    settings = source_options(params)
    ClusterClient(settings).latest()  # an unknown topic is an error before a table is created
    with open_archive(params) as table:
        archive = ArchiveRun(params, settings, table, spark)
        archive.set_columns()
        archive.status = status_writer("archive", params, settings)
        run_batches(params, archive, on_progress, should_stop)
        return archive.progress


def run_batches(
    params: Params,
    archive: "ArchiveRun",
    on_progress: OnArchiveProgress,
    should_stop: Callable[[], bool],
) -> None:
    """Run batch after batch until the run is over."""
    archive.begin()
    while not should_stop() and (archive.step() or _wait_for_more(params, archive, should_stop)):
        on_progress(archive.progress)
    if params.compact:
        archive.compact()
    archive.note(is_end=True)
    on_progress(archive.progress)


def status_writer(job: str, params: Params, settings: SourceOptions) -> StatusWriter:
    """Writes the status of the table."""
    root = table_location(params.target, params.storage)
    return StatusWriter(job, params.topic, root, ClusterClient(settings))


def open_archive(params: Params) -> ArchiveTable:
    """Open the table; leftovers of killed runs are removed."""
    columns = partitioning.archive_columns(params.columns) if params.columns else ()
    identity = ArchiveIdentity(
        topic=params.topic,
        columns=columns,
        partition_by=params.partition_by,
        sort_by=params.sort_by,
        body_format=params.body_format,
        body_source=params.body_source,
        infer_body=params.infer_body,
        body_prefix=params.body_prefix,
    )
    return open_table(
        params.kind,
        params.target,
        identity,
        name=params.name,
        catalog=params.catalog,
        storage=params.storage,
    )


def source_options(params: Params) -> SourceOptions:
    """The options of the source; ConfigError for those that an archive cannot have."""
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"an archive holds exactly one topic, not {params.topic!r}")
    option_names = {name.lower() for name in params.options}
    for name in FORBIDDEN_OPTIONS:
        if name.lower() in option_names:
            raise ConfigError(
                f"option {name!r} is not allowed: an archive holds all messages of its topic"
            )
    if params.every_ms is not None and option_names & END_OPTIONS:
        raise ConfigError(
            "an archive either ends at given offsets or repeats at an interval: not both"
        )
    return parse({**DEFAULT_LIMITS, **params.options, "topic": params.topic}, os.environ)


def _wait_for_more(params: Params, archive: "ArchiveRun", should_stop: Callable[[], bool]) -> bool:
    """Pause before the next look for messages; False when the run is over."""
    if params.every_ms is None:
        return False
    if params.compact and archive.commits_unmerged >= COMPACT_MIN_RUNNING:
        archive.compact(COMPACT_MIN_RUNNING)
    due_ms = SYSTEM_CLOCK.monotonic_ms() + params.every_ms
    while not should_stop() and (left_ms := due_ms - SYSTEM_CLOCK.monotonic_ms()) > 0:
        time.sleep(min(left_ms, STOP_CHECK_MS) / 1000)
    return not should_stop()


class ArchivePlanner(StreamReader):
    """A stream reader that plans batches, up to the user's ending offsets where there are any."""

    _advice = (
        "archive the new topic to another directory; with failOnDataLoss=false this archive"
        " continues, and then holds offsets of both topics"
    )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the ending offsets: later batches read nothing beyond them."""
        super().prepareForTriggerAvailableNow()
        spec, cluster = self._settings.ending_offsets, self._cluster
        if spec != "latest":
            bounds = cluster.bounds()
            self._target = offset_spec.ending_offsets(spec, bounds.earliest, bounds.latest, cluster)


class ArchiveRun:
    """One run of an archive: batches that are written and committed one after the other."""

    def __init__(
        self,
        params: Params,
        settings: SourceOptions,
        table: ArchiveTable,
        spark: "Callable[[], SparkSession]",
    ) -> None:
        self._params, self._settings, self._table = params, settings, table
        self._spark = spark
        self._planner = ArchivePlanner(settings, table.identity.columns)
        self._state = TableState(0, {})
        self.commits_unmerged = 0
        """Commits since the last compaction."""
        self.status: StatusWriter | None = None
        self.progress = ArchiveProgress()

    @property
    def _body_source(self) -> BodySchema | None:
        return self._params.body_source or self._table.identity.body_source

    def set_columns(self) -> None:
        """Add the columns that the user's schema of the bodies names."""
        self.progress.kind = self._table.kind
        params, before = self._params, self._table.body_fields()
        set_body_columns(
            self._table,
            params.body_schema,
            params.body_prefix,
            infer=params.infer_body,
            source=params.body_source,
        )
        self._note_columns(before, self._table.body_fields())

    def begin(self) -> None:
        """Read the table's offsets; the very first run commits the starting offsets."""
        self._state = self._table.state(ClusterClient(self._settings).latest())
        self.progress.number = self._state.number
        if self._params.every_ms is None:
            self._planner.prepareForTriggerAvailableNow()
        if not self._state.number:
            self._commit(self._planner.initialOffset(), self._table.begin().name, ())
        # A run that was killed after its commit did not publish its progress (publishProgress).
        self._planner.commit(self._checkpoint())

    def step(self) -> bool:
        """Archive one batch; False when there are no new messages."""
        before = self._checkpoint()
        after = self._planner.latestOffset(before, self._planner.getDefaultReadLimit())
        self._update_lag(self._state.offsets)
        if after == before:
            self.note()
            return False
        try:
            self._write(before, after)
        except BrokerUnavailable as error:
            if self._params.every_ms is None:
                raise
            log.warning("%s", error)  # batches leave its queues out until the broker is back
        return True

    def compact(self, files_min: int = COMPACT_MIN) -> None:
        """Merge small files of days that have at least `files_min` of them."""
        self.commits_unmerged = 0
        merged = compact(self._table, self._run_tasks, self._params.compression, files_min)
        self.progress.merged += merged
        self._state = self._table.state(self._state.offsets)
        self.progress.number = self._state.number

    def note(self, *, is_end: bool = False) -> None:
        """Write the table's status if it is due, or if this is the end."""
        if self.status is not None:
            self.status.update(self._state, is_end=is_end)

    def _checkpoint(self) -> StreamOffsets:
        state, topic = self._state, self._table.identity.topic
        ids = {(topic, broker): topic_id for broker, topic_id in state.topic_ids.items()}
        return queue_offsets.checkpoint(state.offsets, ids)

    def _write(self, before: StreamOffsets, after: StreamOffsets) -> None:
        tasks = self._planner.tasks(before, after, ready_cores(self._spark()))
        body_fields = self._batch_fields(tasks)
        directory = self._table.begin()
        task_set = ArchiveTasks(
            settings=self._settings,
            tasks=tasks,
            columns=self._table.identity.columns,
            directory=directory,
            compression=self._params.compression,
            scheme=self._table.identity.scheme,
            body_fields=body_fields,
            body_source=self._body_source,
        )
        results = self._run_tasks(task_set)
        skipped = count_missing(task_set.ranges, results, self._settings)
        files = [file for result in results for file in result.files]
        self._commit(after, directory.name, files)
        self.progress.rows += sum(file.rows for file in files)
        self.progress.skipped += skipped
        self._count_bodies(results)
        self._planner.commit(after)

    def _batch_fields(self, tasks: Sequence[ReadTask]) -> tuple[BodyField, ...] | None:
        """The body columns of a batch; None when bodies are not parsed."""
        prefix, infer = self._params.body_prefix, self._params.infer_body
        before = self._table.body_fields()
        fields = batch_fields(self._table, self._settings, tasks, prefix, infer=infer)
        self._note_columns(before, fields or ())
        return fields

    def _note_columns(self, before: Sequence[BodyField], after: Sequence[BodyField]) -> None:
        added = [f"{field.name} {field.type}" for field in after if field not in before]
        self.progress.new_columns += added

    def _count_bodies(self, results: Sequence[TaskResult]) -> None:
        for result in results:
            add_counts(self.progress.unknown_fields, result.unknown_fields)
            self.progress.bad_bodies += result.bad_bodies

    def _commit(
        self,
        end: StreamOffsets,
        attempt: str,
        files: Sequence[DataFile],
        removed: Sequence[DataFile] = (),
    ) -> None:
        after = from_json(end)
        topic_ids = queue_offsets.topic_ids_of_checkpoint(end)
        ids = {broker: topic_id for (_, broker), topic_id in topic_ids.items()}
        commit = self._state.then(after, attempt, files, removed, ids)
        self._table.commit(commit)
        self._state = TableState(commit.number, after, ids)
        self.progress.number = commit.number
        self.progress.commits += 1
        self.progress.bytes += sum(file.size for file in files)
        self.commits_unmerged += 1
        self._update_lag(after)
        self.note()

    def _update_lag(self, offsets: QueueOffsets) -> None:
        latest_json = self._planner.reportLatestOffset()
        latest, _ = queue_offsets.latest_from_json(latest_json) if latest_json else ({}, {})
        self.progress.lag = sum(map(len, queue_offsets.ranges(offsets, latest)))

    def _run_tasks(self, task_set: TaskSet) -> list[TaskResult]:
        return run_task_set(self._spark(), task_set) if len(task_set) else []


def count_missing(
    ranges: Sequence[OffsetRange], results: Sequence[TaskResult], settings: SourceOptions
) -> int:
    """Count the messages of the ranges that were not written.

    Raises JobFailed when a queue has more rows than messages, or fewer although failOnDataLoss is
    true.
    """
    expected: Counter[QueueKey] = Counter()
    for each in ranges:
        expected[each.queue] += len(each)
    written = rows_by_queue(results)
    for queue in sorted(expected | written):
        have, want = written[queue], expected[queue]
        if have > want or (have < want and settings.fail_on_data_loss):
            raise JobFailed(
                f"{queue_text(queue)}: {have} rows of {want} messages were written; "
                "the batch is dropped"
            )
    return expected.total() - written.total()
