"""Tasks of an archive: each writes ranges of queues to new files.

One thread pulls and decodes messages while another encodes Parquet; both spend most of their time
outside Python.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from roquet.lake.columns.body_columns import BodyField, file_schema
from roquet.lake.columns.body_parser import BodyParser, FieldCounter
from roquet.lake.columns.partition_scheme import DAILY, PartitionScheme
from roquet.lake.files.parquet_writer import COMPRESSION, PartitionedWriter, write_files
from roquet.lake.objects.object_location import StagingDirectory
from roquet.lake.queue_offsets import OffsetRange, QueueKey, to_json
from roquet.lake.task_set import TaskResult
from roquet.spark.jobs.archive.prefetch import prefetched
from roquet.spark.options import SourceOptions
from roquet.spark.source.tasks import read_task


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
