"""Errand: what one task of a job does; an archive's pulls ranges and writes files.

It runs in Spark's workers, and rows go no further: what Spark gets is a line of JSON from each
task. In an archive's one thread pulls and decodes while another encodes; both leave Python for most
of the time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from roquet.model.errors import CallError, RoquetError
from roquet.spark.jobs.prefetch import prefetched
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import OffsetRange, OffsetsJson, to_json
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.spark.source.tasks import read_task as pulled
from roquet.spark.tables.parquet_writer import COMPRESSION, PartitionedWriter, read_sorted
from roquet.spark.tables.partitioning import schema_of
from roquet.spark.tables.table import DataFile


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a task has done, or why it can never be done."""

    files: tuple[DataFile, ...] = ()
    rows: OffsetsJson = {}
    """Of each queue how many."""
    error: str | None = None
    is_away: bool = False
    """Whether it may go well another time: a broker was away."""
    doubled: int = 0
    """Of what was sent how many are known to be there twice."""
    found: str = ""
    """What else it has found, as JSON."""


class TaskSet(Protocol):
    """Work in numbered parts, which Spark's workers get as it is."""

    def __len__(self) -> int:
        """How many parts."""

    def do(self, number: int) -> TaskResult:
        """One of them."""


class ArchiveTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges of queues to be written to files in a directory."""

    settings: SourceOptions
    tasks: Sequence[InputPartition]
    columns: tuple[str, ...]
    directory: str
    compression: str = COMPRESSION

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def pieces(self) -> Sequence[OffsetRange]:
        """The ranges, however they are dealt."""
        return [piece for task in self.tasks for piece in task.value]

    def do(self, number: int) -> TaskResult:
        """One task of it."""
        rows: Counter[tuple[str, str, int]] = Counter()
        topic = self.settings.topics[0]
        with prefetched(pulled(self.settings, self.columns, self.tasks[number])) as batches:
            files = self._written(count_rows(batches, topic, rows))
        return TaskResult(files=tuple(files), rows=to_json(dict(rows)))

    def _written(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        writer = PartitionedWriter(Path(self.directory), schema_of(self.columns), self.compression)
        try:
            for batch in batches:
                writer.write(batch)
            return writer.close()
        except BaseException:
            writer.abort()
            raise


class CompactionTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of small files to be written as one each."""

    groups: Sequence[Sequence[str]]
    columns: tuple[str, ...]
    directory: str
    compression: str = COMPRESSION

    def __len__(self) -> int:
        return len(self.groups)

    def do(self, number: int) -> TaskResult:
        """One task of it."""
        schema = schema_of(self.columns)
        writer = PartitionedWriter(Path(self.directory), schema, self.compression)
        try:
            for batch in read_sorted(
                [Path(path) for path in self.groups[number]], schema
            ).to_batches():
                writer.write(batch)
            return TaskResult(files=tuple(writer.close()))
        except BaseException:
            writer.abort()
            raise


def run_in_arrow(errand: TaskSet, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: a number of a task comes in, its answer goes out.

    What will be the same each time is an answer; what may pass is raised, so that Spark tries
    again.
    """
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                answer = errand.do(number)
            except CallError:
                raise
            except RoquetError as error:
                answer = TaskResult(error=str(error), is_away=isinstance(error, BrokerUnavailable))
            text = msgspec.json.encode(answer).decode()
            yield pa.RecordBatch.from_pydict({"answer": [text]})


def count_rows(
    batches: Iterable[pa.RecordBatch], topic: str, rows: Counter[tuple[str, str, int]]
) -> Iterator[pa.RecordBatch]:
    """The batches; on the way the rows of each queue are counted."""
    for batch in batches:
        if len(batch):
            broker = batch.column("broker")[0].as_py()
            counts = np.bincount(batch.column("queue_id").to_numpy())
            for queue_id in np.flatnonzero(counts):
                rows[topic, broker, int(queue_id)] += int(counts[queue_id])
        yield batch
