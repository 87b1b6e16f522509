"""Batch reader: one range of each queue, fixed when the read is planned."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from roquet.model.errors import UsageError
from roquet.spark import edges, entry, plan, pushdown
from roquet.spark.cluster import Cluster
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import Piece
from roquet.spark.tasks import read, tasks_for

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads from the starting offsets to the ending ones."""

    def __init__(self, settings: SourceOptions, columns: Sequence[str]) -> None:
        self._settings = settings
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """The whole range, dealt to tasks."""
        cluster = Cluster(self._settings)
        pieces = plan.identified(self._pieces(cluster), cluster.topic_ids)
        return tasks_for(self._settings, pieces, cluster.addresses)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of one task."""
        return read(self._settings, self._columns, partition)

    def _pieces(self, cluster: Cluster) -> list[Piece]:
        settings, bounds = self._settings, cluster.bounds()
        if not bounds.latest and settings.topic_pattern is not None:
            raise UsageError(f"no topic matches topicPattern {settings.topic_pattern!r}")
        entry.check(cluster)
        earliest, latest = bounds.earliest, bounds.latest
        start = edges.starting(settings.starting_offsets, earliest, latest, cluster)
        end = edges.ending(settings.ending_offsets, earliest, latest, cluster)
        return plan.checked_range(start, end, latest)


class PushdownReader(BatchReader):
    """The same, but a query's own conditions lessen what is read.

    A class of its own: Spark refuses every read of one that takes filters, unless
    `spark.sql.python.filterPushdown.enabled` is set.
    """

    def __init__(self, settings: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(settings, columns)
        self._wishes = pushdown.NONE

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes note of the conditions, and gives them all back: Spark looks again."""
        self._wishes = pushdown.wishes(filters)
        self._settings = pushdown.with_tags(self._settings, self._wishes)
        return filters

    def _pieces(self, cluster: Cluster) -> list[Piece]:
        return pushdown.narrowed(super()._pieces(cluster), self._wishes, cluster)
