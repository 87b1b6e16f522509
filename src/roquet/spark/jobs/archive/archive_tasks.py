"""Tasks of an archive: each writes ranges of queues, or groups of small files, to new files.

One thread pulls and decodes messages while another encodes Parquet; both spend most of their time
outside Python.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from roquet.spark.jobs.archive.prefetch import prefetched
from roquet.spark.jobs.task_set import TaskResult
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import OffsetRange, QueueKey, to_json
from roquet.spark.source.tasks import read_task
from roquet.spark.tables.object_location import StagingDirectory
from roquet.spark.tables.parquet_writer import COMPRESSION, PartitionedWriter, read_sorted
from roquet.spark.tables.partitioning import schema_of
from roquet.spark.tables.table import DataFile


class ArchiveTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that write ranges of queues to files in a directory."""

    settings: SourceOptions
    tasks: Sequence[InputPartition]
    columns: tuple[str, ...]
    directory: StagingDirectory
    compression: str = COMPRESSION

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def ranges(self) -> Sequence[OffsetRange]:
        """The ranges of all tasks."""
        return [each for task in self.tasks for each in task.value]

    def run(self, number: int) -> TaskResult:
        """Write the ranges of one task."""
        rows: Counter[QueueKey] = Counter()
        topic = self.settings.topics[0]
        with prefetched(read_task(self.settings, self.columns, self.tasks[number])) as batches:
            counted = count_rows(batches, topic, rows)
            files = _write(counted, self.directory, self.columns, self.compression)
        return TaskResult(files=tuple(files), rows=to_json(dict(rows)))


class CompactionTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that write a group of small files as one each."""

    groups: Sequence[Sequence[str]]
    columns: tuple[str, ...]
    directory: StagingDirectory
    compression: str = COMPRESSION
    storage: Mapping[str, str] = {}
    """The options of the object store that the groups lie in."""

    def __len__(self) -> int:
        return len(self.groups)

    def run(self, number: int) -> TaskResult:
        """Merge the files of one group."""
        rows = read_sorted(self.groups[number], schema_of(self.columns), self.storage)
        batches = rows.to_batches()
        files = _write(batches, self.directory, self.columns, self.compression)
        return TaskResult(files=tuple(files))


def count_rows(
    batches: Iterable[pa.RecordBatch], topic: str, rows: Counter[QueueKey]
) -> Iterator[pa.RecordBatch]:
    """Pass batches on, and add their rows to `rows` by queue; a batch is of one broker."""
    for batch in batches:
        if len(batch):
            broker = batch.column("broker")[0].as_py()
            counts = np.bincount(batch.column("queue_id").to_numpy())
            for queue_id in np.flatnonzero(counts):
                rows[topic, broker, int(queue_id)] += int(counts[queue_id])
        yield batch


def _write(
    batches: Iterable[pa.RecordBatch],
    directory: StagingDirectory,
    columns: tuple[str, ...],
    compression: str,
) -> list[DataFile]:
    """Write batches to new files; none stays when an error is raised."""
    writer = PartitionedWriter(directory, schema_of(columns), compression)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise
