"""Materialize job: a topic of keyed changes becomes a table of the latest state.

    main(Params(topic="accounts", target="/lake/accounts", options={"namesrv": "127.0.0.1:9876"}))

The table holds the offsets up to which it has taken changes, and one commit publishes rows and
offsets together, as an archive's does. So every change counts exactly once, whatever is killed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.lake.columns.body_columns import BodyField
from roquet.lake.files.output_files import remove_file
from roquet.lake.objects.object_location import StagingDirectory
from roquet.lake.open_table import check_kind_name, present_kind, table_location
from roquet.lake.states.buckets import NO_KEY, files_of_buckets
from roquet.lake.states.state_table import (
    IcebergStateTable,
    StateIdentity,
    StateTable,
    open_state_table,
)
from roquet.lake.table import DataFile
from roquet.lake.task_set import TaskResult, rows_by_queue
from roquet.model.errors import ConfigError
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.archive.archive_job import (
    ArchiveProgress,
    ArchiveRun,
    StreamOffsets,
    TableParams,
    count_missing,
    run_batches,
)
from roquet.spark.jobs.job_runner import ready_cores, spark_for
from roquet.spark.jobs.materialize.materialize_tasks import (
    BucketFiles,
    ChangeCounts,
    ChangeTasks,
    MergeCounts,
    MergeTasks,
    staged_path,
)
from roquet.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_LIMITS: Final[Mapping[str, str]] = {
    "maxOffsetsPerTrigger": "4000000",
    "maxBytesPerTrigger": "1GiB",
}
"""Default size limits of one commit: each task holds its share of the changes in memory."""

NULL_KEYS: Final = ("refuse", "quarantine")


class NullKeys(ConfigError):
    """Messages without a key, which the table has no row for; nothing was committed."""


class Params(TableParams, frozen=True, kw_only=True):
    """The parameters of a table of latest states; `kind` is `delta` or `iceberg`."""

    key: str = ""
    """`key` for the messages' first key, `property:NAME` for one of their properties; empty is the
    table's own, and `key` where the table is new."""
    deletes: str = ""
    """`tombstone` removes the rows of deleted keys, `keep` marks them in `is_deleted`; empty is the
    table's own, and `tombstone` where the table is new."""
    null_keys: str = "refuse"
    """`quarantine` adds messages without a key as rows without a key."""
    buckets: int | None = None
    """Partitions, of which a commit rewrites those that have changes; None is the table's own, and
    16 where the table is new."""


class MaterializeProgress(ArchiveProgress, kw_only=True):
    """The progress of a run; `rows` counts the changes that were read."""

    changed: int = 0
    """Rows that were added or replaced, by commit."""
    deleted: int = 0
    """Tombstones that were the last change of their key in a commit."""
    moved: int = 0
    """Keys whose changes came from several queues in a commit."""
    null_keys: int = 0
    """Messages without a key that were quarantined."""


OnMaterializeProgress = Callable[[ArchiveProgress], object]


def main(params: Params) -> MaterializeProgress:
    """Run the job with the provided Spark session, or with a local one."""
    return run(params, lambda: spark_for("roquet materialize", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession]",
    on_progress: OnMaterializeProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> MaterializeProgress:
    """Run to the end of the topic, or until `should_stop` returns True.

    `spark` is called for each Spark job, so a run with nothing to do starts no session.
    """
    source = source_params(params)
    settings = archive_job.source_options(source)
    ClusterClient(settings).latest()  # an unknown topic is an error before a table is created
    with open_state(params) as table:
        job = MaterializeRun(params, settings, table, spark)
        job.set_columns()
        job.status = archive_job.status_writer("materialize", source, settings)
        run_batches(source, job, on_progress, should_stop)
        return job.progress


def open_state(params: Params) -> StateTable | IcebergStateTable:
    """Open the table, or create it; leftovers of killed runs are removed."""
    if params.buckets is not None and params.buckets < 1:
        raise ConfigError(f"--buckets {params.buckets}: at least 1")
    root = table_location(params.target, params.storage)
    kind = params.kind or present_kind(root, params.name, params.catalog)
    check_kind_name(kind)
    wanted = StateIdentity(
        topic=params.topic,
        key=params.key,
        deletes=params.deletes,
        buckets=params.buckets or 0,
        columns=params.columns,
        body_format=params.body_format,
        body_source=params.body_source,
        infer_body=params.infer_body and bool(params.body_format),
        body_prefix=params.body_prefix if params.body_format else "",
    )
    return open_state_table(kind, root, wanted, name=params.name, catalog=params.catalog)


def source_params(params: Params) -> archive_job.Params:
    """The part of the parameters that archives have, too; ConfigError for wrong ones."""
    if params.null_keys not in NULL_KEYS:
        raise ConfigError(f"--null-keys {params.null_keys}: give {' or '.join(NULL_KEYS)}")
    if any(name.lower() == "failondataloss" for name in params.options):
        raise ConfigError(
            "option 'failOnDataLoss' is not allowed: a table of latest states that missed changes "
            "would be wrong without a sign of it"
        )
    return archive_job.Params(
        topic=params.topic,
        target=params.target,
        options={**DEFAULT_LIMITS, **params.options},
        every_ms=params.every_ms,
        body_format=params.body_format,
        body_source=params.body_source,
        body_schema=params.body_schema,
        body_prefix=params.body_prefix,
        infer_body=params.infer_body,
        storage=params.storage,
        master=params.master,
    )


class MaterializeRun(ArchiveRun):
    """One run: batches of changes that are merged and committed one after the other."""

    def __init__(
        self,
        params: Params,
        settings: SourceOptions,
        table: StateTable | IcebergStateTable,
        spark: "Callable[[], SparkSession]",
    ) -> None:
        super().__init__(source_params(params), settings, table, spark)
        self.progress: MaterializeProgress = MaterializeProgress()
        self._job, self._identity = params, table.settings

    def _write(self, before: StreamOffsets, after: StreamOffsets) -> None:
        tasks = self._planner.tasks(before, after, ready_cores(self._spark()))
        fields = self._batch_fields(tasks)
        directory = self._table.begin()
        change_tasks = ChangeTasks(
            settings=self._settings,
            tasks=tasks,
            identity=self._identity,
            directory=directory,
            body_fields=fields,
            body_source=self._body_source,
        )
        results = self._run_tasks(change_tasks)
        count_missing(change_tasks.ranges, results, self._settings)
        changes = [file for result in results for file in result.files]
        touched = {file.within for file in changes} - {NO_KEY}
        try:
            null_keys = self._check_keys(results)
            removed = files_of_buckets(self._table.files(), touched)
            merges = self._run_tasks(self._merge_tasks(changes, removed, directory, fields))
        finally:
            for file in changes:
                remove_file(directory, file.day, file.name, file.within)
        added = [file for result in merges for file in result.files]
        self._commit(after, directory.name, added, removed)
        self._count(results, merges, null_keys)
        self._count_bodies(results)
        self._planner.commit(after)

    def _check_keys(self, results: Sequence[TaskResult]) -> int:
        """The number of messages without a key; raises NullKeys unless they are quarantined."""
        found = [msgspec.json.decode(result.payload, type=ChangeCounts) for result in results]
        count = sum(each.null_keys for each in found)
        if count and self._job.null_keys == "refuse":
            first = next(each.first_null_key for each in found if each.null_keys)
            name = self._identity.key_property
            what = "key" if name is None else f"property {name!r}"
            raise NullKeys(
                f"{count:,} of the next messages of {self._job.topic!r} have no {what}, the first "
                f"at {first}; nothing was committed. --null-keys quarantine adds them to the table "
                "as rows without a key"
            )
        return count

    def _merge_tasks(
        self,
        changes: Sequence[DataFile],
        present: Sequence[DataFile],
        directory: StagingDirectory,
        body_fields: tuple[BodyField, ...] | None,
    ) -> MergeTasks:
        buckets = [
            BucketFiles(
                bucket=bucket,
                present=tuple(self._table.path(file) for file in present if file.within == bucket),
                changes=tuple(
                    staged_path(directory, file) for file in changes if file.within == bucket
                ),
            )
            for bucket in sorted({file.within for file in changes})
        ]
        return MergeTasks(
            buckets=buckets,
            identity=self._identity,
            directory=directory,
            storage=self._table.storage,
            compression=self._job.compression,
            body_fields=body_fields,
        )

    def _count(
        self, results: Sequence[TaskResult], merges: Sequence[TaskResult], null_keys: int
    ) -> None:
        progress = self.progress
        progress.rows += rows_by_queue(results).total()
        for result in merges:
            counts = msgspec.json.decode(result.payload, type=MergeCounts)
            progress.changed += counts.changed
            progress.deleted += counts.deleted
            progress.moved += counts.moved
        progress.null_keys += null_keys
