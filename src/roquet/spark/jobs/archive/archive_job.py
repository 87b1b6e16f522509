"""archive: a topic becomes a table, each message once, whatever is killed on the way.

    main(Params(topic="orders", target="/lake/orders", options={"namesrv": "127.0.0.1:9876"}))

The truth is in the table: a commit publishes files and the offsets that they end at. The driver
reads the offsets there, plans a batch as the streaming source does, has one Spark job write its
files, and commits what the tasks have returned. A run that was killed has committed or has not; the
next one goes on from there.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark import offset_spec, queue_offsets
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive.compaction import compact
from roquet.spark.jobs.job_runner import JobFailed, run_task_set, spark_for
from roquet.spark.jobs.task_set import ArchiveTasks, TaskResult, TaskSet
from roquet.spark.options import SourceOptions, parse
from roquet.spark.queue_offsets import OffsetRange, QueueKey, QueueOffsets, from_json, queue_text
from roquet.spark.source.stream import StreamReader
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.spark.tables import partitioning
from roquet.spark.tables.open_table import open_table
from roquet.spark.tables.parquet_writer import COMPRESSION
from roquet.spark.tables.table import ArchiveIdentity, ArchiveTable, DataFile, TableState

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logger(__name__)

DEFAULT_LIMITS: Final[Mapping[str, str]] = {
    "maxOffsetsPerTrigger": "4000000",
    "maxBytesPerTrigger": "4GiB",
}
"""Of one commit, where the user says nothing: what a kill costs at most."""

FORBIDDEN_OPTIONS: Final = (
    *("topicPattern", "tags", "sql92", "pushdown", "dropDoubles", "columns"),
    *("bodyFormat", "bodySchema"),
)
"""Options of the source that choose messages, or what of them is shown. Offsets without gaps are
how an archive knows that nothing is missing."""

END_OPTIONS: Final = frozenset({"endingoffsets", "endingtime"})

STOP_CHECK_MS: Final = 200
"""How often an archive that waits looks whether it shall end."""

COMPACT_MIN: Final = 2
COMPACT_MIN_RUNNING: Final = 16
"""Small files of a day that are merged: at the end of a run, and while it goes on."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants of an archive."""

    topic: str
    target: str
    kind: str = "parquet"
    options: Mapping[str, str] = {}
    """Of the source: namesrv, startingOffsets, endingOffsets, failOnDataLoss and so on."""
    columns: tuple[str, ...] = ()
    """None: the table's, or those of a message."""
    every_ms: int | None = None
    """How often to look for more; None: what is there now, and then the end."""
    compression: str = COMPRESSION
    compact: bool = False
    name: str = ""
    catalog: Mapping[str, str] = {}
    """For Iceberg: the table's name in its catalog, and the catalog when it is not our own."""
    master: str | None = None


class ArchiveProgress(msgspec.Struct, kw_only=True):
    """How far a run has come."""

    rows: int = 0
    skipped: int = 0
    """Messages that were gone; none unless failOnDataLoss=false."""
    commits: int = 0
    merged: int = 0
    """Small files that became part of larger ones."""
    lag: int = 0
    """Messages that are there and not in the table."""
    number: int = 0
    """Of the table's last commit."""


OnArchiveProgress = Callable[[ArchiveProgress], object]

StreamOffsets = dict[str, Any]
"""Offsets and ids, as `queue_offsets.checkpoint` makes them."""


def transform(batch: "pa.RecordBatch") -> "Iterator[tuple[str, pa.RecordBatch]]":
    """What of a batch goes into which day."""
    return partitioning.split_by_day(batch)


def main(params: Params) -> ArchiveProgress:
    """Archive with the Spark that is there, or one on this machine."""
    return run(params, lambda: spark_for("roquet archive", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession]",
    tell: OnArchiveProgress = lambda _: None,
    ended: Callable[[], bool] = lambda: False,
) -> ArchiveProgress:
    """Archive until all is there, or until `ended` says so; Spark is asked for when all is well."""
    settings = source_options(params)
    ClusterClient(settings).latest()  # a topic that there is not is said before anything is made
    with open_archive(params) as table:
        archive = ArchiveRun(params, settings, table, spark)
        archive.begin()
        while not ended() and (archive.step() or _wait_for_more(params, archive, ended)):
            tell(archive.progress)
        if params.compact:
            archive.compact()
        tell(archive.progress)
        return archive.progress


def open_archive(params: Params) -> ArchiveTable:
    """The table, held for one archive; what killed runs have left is gone."""
    columns = partitioning.archive_columns(params.columns) if params.columns else ()
    wanted = ArchiveIdentity(topic=params.topic, columns=columns)
    return open_table(params.kind, params.target, wanted, name=params.name, catalog=params.catalog)


def source_options(params: Params) -> SourceOptions:
    """The source's settings, checked."""
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"an archive is of one topic, not of {params.topic!r}")
    given = {name.lower(): name for name in params.options}
    for name in FORBIDDEN_OPTIONS:
        if name.lower() in given:
            raise ConfigError(f"option {name!r} is not for archives: they are of all messages")
    if params.every_ms is not None and given.keys() & END_OPTIONS:
        raise ConfigError("an archive either ends somewhere or looks for more every so often")
    return parse({**DEFAULT_LIMITS, **params.options, "topic": params.topic}, os.environ)


def _wait_for_more(params: Params, archive: "ArchiveRun", ended: Callable[[], bool]) -> bool:
    """Whether to look again, after a pause; not where what was there is all that is wanted."""
    if params.every_ms is None:
        return False
    if params.compact and archive.commits_unmerged >= COMPACT_MIN_RUNNING:
        archive.compact(COMPACT_MIN_RUNNING)
    due_ms = SYSTEM_CLOCK.monotonic_ms() + params.every_ms
    while not ended() and (left_ms := due_ms - SYSTEM_CLOCK.monotonic_ms()) > 0:
        time.sleep(min(left_ms, STOP_CHECK_MS) / 1000)
    return not ended()


class ArchivePlanner(StreamReader):
    """Plans batches as a stream does; one that ends does so where the user wants it."""

    _advice = (
        "give the new one another directory; failOnDataLoss=false goes on in this one, and offsets"
        " of both are in it then"
    )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing behind the end is read."""
        super().prepareForTriggerAvailableNow()
        edge, cluster = self._settings.ending_offsets, self._cluster
        if edge != "latest":
            bounds = cluster.bounds()
            self._target = offset_spec.ending_offsets(edge, bounds.earliest, bounds.latest, cluster)


class ArchiveRun:
    """A topic on its way into a table."""

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
        """Commits since somebody looked for small files."""
        self.progress = ArchiveProgress()

    def begin(self) -> None:
        """Find where the table is; the first run of all notes where it begins."""
        self._state = self._table.state(ClusterClient(self._settings).latest())
        self.progress.number = self._state.number
        if self._params.every_ms is None:
            self._planner.prepareForTriggerAvailableNow()
        if not self._state.number:
            self._commit(self._planner.initialOffset(), self._table.begin().name, ())

    def step(self) -> bool:
        """One batch, if there is anything new."""
        state, topic = self._state, self._table.identity.topic
        ids = {(topic, broker): one for broker, one in state.topic_ids.items()}
        before = queue_offsets.checkpoint(state.offsets, ids)
        after = self._planner.latestOffset(before, self._planner.getDefaultReadLimit())
        self._weigh(self._state.offsets)
        if after == before:
            return False
        try:
            self._write(before, after)
        except BrokerUnavailable as error:
            if self._params.every_ms is None:
                raise
            log.warning("%s", error)  # the next batch leaves its queues out until it is back
        return True

    def compact(self, files_min: int = COMPACT_MIN) -> None:
        """Merge small files."""
        self.commits_unmerged = 0
        merged = compact(self._table, self._work, self._params.compression, files_min)
        self.progress.merged += merged
        self._state = self._table.state(self._state.offsets)
        self.progress.number = self._state.number

    def _write(self, before: StreamOffsets, after: StreamOffsets) -> None:
        """Files of a range, and their commit."""
        directory = self._table.begin()
        reading = ArchiveTasks(
            settings=self._settings,
            tasks=self._planner.partitions(before, after),
            columns=self._table.identity.columns,
            directory=str(directory),
            compression=self._params.compression,
        )
        found = self._work(reading)
        skipped = count_missing(reading.pieces, found, self._settings)
        files = [file for answer in found for file in answer.files]
        self._commit(after, directory.name, files)
        self.progress.rows += sum(file.rows for file in files)
        self.progress.skipped += skipped
        self._planner.commit(after)

    def _commit(self, end: StreamOffsets, attempt: str, files: Sequence[DataFile]) -> None:
        after = from_json(end)
        ids = {
            broker: one for (_, broker), one in queue_offsets.topic_ids_of_checkpoint(end).items()
        }
        commit = self._state.then(after, attempt, files, (), ids)
        self._table.commit(commit)
        self._state = TableState(commit.number, after, ids)
        self.progress.number = commit.number
        self.progress.commits += 1
        self.commits_unmerged += 1
        self._weigh(after)

    def _weigh(self, offsets: QueueOffsets) -> None:
        """How much there is still to do."""
        told = self._planner.reportLatestOffset()
        latest, _ = queue_offsets.latest_from_json(told) if told else ({}, {})
        self.progress.lag = sum(map(len, queue_offsets.ranges(offsets, latest)))

    def _work(self, errand: TaskSet) -> list[TaskResult]:
        return run_task_set(self._spark(), errand) if len(errand) else []


def count_missing(
    pieces: Sequence[OffsetRange], found: Sequence[TaskResult], settings: SourceOptions
) -> int:
    """How many messages of the ranges are missing; an error where that may not be."""
    wanted: Counter[QueueKey] = Counter()
    for piece in pieces:
        wanted[piece.queue] += len(piece)
    rows = sum((Counter(from_json(answer.rows)) for answer in found), Counter[QueueKey]())
    for queue in sorted(wanted | rows):
        have, want = rows[queue], wanted[queue]
        if have > want or (have < want and settings.fail_on_data_loss):
            raise JobFailed(
                f"{queue_text(queue)}: {have} rows of {want} messages were written; "
                "the batch is dropped"
            )
    return wanted.total() - rows.total()
