"""Batch reader: one range of each queue, fixed when the read is planned."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from roquet.lake.queue_offsets import OffsetRange
from roquet.model.errors import UsageError
from roquet.spark import offset_spec
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import SourceOptions
from roquet.spark.source import plan, preflight, pushdown
from roquet.spark.source.tasks import plan_tasks, read_task

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads from the starting offsets to the ending ones."""

    def __init__(self, settings: SourceOptions, columns: Sequence[str]) -> None:
        self._settings = settings
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of the read, distributed over tasks."""
        cluster = ClusterClient(self._settings)
        ranges = plan.with_topic_ids(self._ranges(cluster), cluster.topic_ids)
        return plan_tasks(self._settings, ranges, cluster.addresses, cluster.replicas)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of one task."""
        return read_task(self._settings, self._columns, partition)

    def _ranges(self, cluster: ClusterClient) -> list[OffsetRange]:
        settings, bounds = self._settings, cluster.bounds()
        if not bounds.latest and settings.topic_pattern is not None:
            raise UsageError(f"no topic matches topicPattern {settings.topic_pattern!r}")
        preflight.check_read(cluster)
        earliest, latest = bounds.earliest, bounds.latest
        start = offset_spec.starting_offsets(settings.starting_offsets, earliest, latest, cluster)
        end = offset_spec.ending_offsets(settings.ending_offsets, earliest, latest, cluster)
        return plan.checked_range(start, end, latest)


class PushdownReader(BatchReader):
    """A batch reader that a query's own conditions narrow.

    A class of its own, since Spark refuses readers with `pushFilters` unless
    `spark.sql.python.filterPushdown.enabled` is set.
    """

    def __init__(self, settings: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(settings, columns)
        self._filters = pushdown.NO_FILTERS

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Note the conditions and return all of them, so that Spark evaluates them again."""
        self._filters = pushdown.pushed_filters(filters)
        self._settings = pushdown.with_tags(self._settings, self._filters)
        return filters

    def _ranges(self, cluster: ClusterClient) -> list[OffsetRange]:
        return pushdown.narrow_ranges(super()._ranges(cluster), self._filters, cluster)
