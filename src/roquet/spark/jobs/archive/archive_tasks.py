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

from roquet.spark.jobs.archive.body_parser import BodyParser, FieldCounter
from roquet.spark.jobs.archive.prefetch import prefetched
from roquet.spark.jobs.task_set import TaskResult
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import OffsetRange, QueueKey, to_json
from roquet.spark.source.tasks import read_task
from roquet.spark.tables.body_columns import BodyField, file_schema
from roquet.spark.tables.object_location import StagingDirectory
from roquet.spark.tables.parquet_writer import (
    COMPRESSION,
    MERGED_FILE_BYTES,
    PartitionedWriter,
    read_sorted,
)
from roquet.spark.tables.partition_scheme import DAILY, PartitionScheme
from roquet.spark.tables.table import DataFile


class ArchiveTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that write ranges of queues to files in a directory."""

    settings: SourceOptions
    tasks: Sequence[InputPartition]
    columns: tuple[str, ...]
    directory: StagingDirectory
    compression: str = COMPRESSION
    scheme: PartitionScheme = DAILY
    body_fields: tuple[BodyField, ...] | None = None
    """The fields of the bodies that become columns; None when bodies are not parsed."""

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
            schema = file_schema(self.columns, self.body_fields)
            writer = PartitionedWriter(self.directory, schema, self.compression, self.scheme)
            counter = FieldCounter(field.source for field in self.body_fields or ())
            files = write_files(self._parsed(counted, counter), writer)
        return TaskResult(
            files=tuple(files), rows=to_json(dict(rows)), unknown_fields=counter.counts
        )

    def _parsed(
        self, batches: Iterator[pa.RecordBatch], counter: FieldCounter
    ) -> Iterator[pa.RecordBatch]:
        """The batches, with body columns if the table has some."""
        if self.body_fields is None:
            return batches
        return BodyParser(self.body_fields, counter).add_columns(batches)


class CompactionTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that write a group of small files as one each, in runs of sorted rows."""

    groups: Sequence[Sequence[str]]
    columns: tuple[str, ...]
    directory: StagingDirectory
    compression: str = COMPRESSION
    storage: Mapping[str, str] = {}
    """The options of the object store that the groups lie in."""
    scheme: PartitionScheme = DAILY
    sort_by: tuple[str, ...] = ()
    body_fields: tuple[BodyField, ...] | None = None

    def __len__(self) -> int:
        return len(self.groups)

    def run(self, number: int) -> TaskResult:
        """Merge the files of one group."""
        schema = file_schema(self.columns, self.body_fields)
        writer = PartitionedWriter(
            self.directory, schema, self.compression, self.scheme, MERGED_FILE_BYTES
        )
        runs = read_sorted(self.groups[number], schema, self.storage, self.sort_by)
        files = write_files((batch for rows in runs for batch in rows.to_batches()), writer)
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


def write_files(batches: Iterable[pa.RecordBatch], writer: PartitionedWriter) -> list[DataFile]:
    """Write batches to new files; none stays when an error is raised."""
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise
