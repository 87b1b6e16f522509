"""Batch reader: one range of each queue, fixed when the read is planned."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from roquet.spark import plan
from roquet.spark.cluster import Cluster
from roquet.spark.options import SourceOptions
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
        settings, cluster = self._settings, Cluster(self._settings)
        earliest, latest = cluster.earliest(), cluster.latest()
        start = plan.resolved(settings.starting_offsets, earliest, latest, rest=earliest)
        end = plan.resolved(settings.ending_offsets, earliest, latest, rest=latest)
        pieces = plan.checked_range(start, end, latest)
        return tasks_for(settings, pieces, cluster.addresses)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of one task."""
        return read(self._settings, self._columns, partition)
