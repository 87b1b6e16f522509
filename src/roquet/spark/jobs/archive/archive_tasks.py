"""Tasks of an archive: each writes ranges of queues to new files.

One thread pulls and decodes messages while another encodes Parquet; both spend most of their time
outside Python.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from roquet.lake.columns.body_columns import BodyField, file_schema
from roquet.lake.columns.body_parser import BodyParser, FieldCounter
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.columns.partition_scheme import DAILY, PartitionScheme
from roquet.lake.files.parquet_writer import COMPRESSION, PartitionedWriter, write_files
from roquet.lake.objects.object_location import StagingDirectory
from roquet.lake.queue_offsets import OffsetRange, QueueKey, to_json
from roquet.lake.task_set import TaskResult
from roquet.spark.options import SourceOptions
from roquet.spark.source.tasks import read_task

T = TypeVar("T")

BUFFERED_ITEMS: Final = 2
"""Default buffer size: enough that neither thread waits for the other for long."""

STOP_CHECK_S: Final = 0.2
"""How often the thread checks, while the buffer is full, whether it shall stop."""


class _EndOfItems:
    """Ends the buffer: there are no more items, or an error was raised instead of one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@contextmanager
def prefetched(items: Iterable[T], depth: int = BUFFERED_ITEMS) -> Iterator[Iterator[T]]:
    """Iterate over items that a thread makes up to `depth` ahead; it ends with the block.

    An error of the source is raised in the place of its item.
    """
    buffer: Queue[T | _EndOfItems] = Queue(depth)
    is_stopped = Event()

    def put(item: T | _EndOfItems) -> bool:
        while not is_stopped.is_set():
            with suppress(Full):
                buffer.put(item, timeout=STOP_CHECK_S)
                break
        return not is_stopped.is_set()

    thread = Thread(target=_fill, args=(items, put), name="roquet-prefetch", daemon=True)
    thread.start()
    try:
        yield _taken(buffer)
    finally:
        is_stopped.set()
        thread.join()


def _fill(items: Iterable[T], put: Callable[[T | _EndOfItems], bool]) -> None:
    try:
        for item in items:
            if not put(item):
                return
        put(_EndOfItems())
    except BaseException as error:
        put(_EndOfItems(error))


def _taken(buffer: "Queue[T | _EndOfItems]") -> Iterator[T]:
    while not isinstance(item := buffer.get(), _EndOfItems):
        yield item
    if item.error is not None:
        raise item.error


class RangeTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that read ranges of queues, and write files to a directory."""

    settings: SourceOptions
    tasks: Sequence[InputPartition]
    directory: StagingDirectory

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def ranges(self) -> Sequence[OffsetRange]:
        """The ranges of all tasks."""
        return [each for task in self.tasks for each in task.value]

    @contextmanager
    def read(
        self, number: int, columns: Sequence[str], rows: Counter[QueueKey]
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """The messages of one task, read ahead; `rows` gets their number by queue."""
        with prefetched(read_task(self.settings, columns, self.tasks[number])) as batches:
            yield count_rows(batches, self.settings.topics[0], rows)


class ArchiveTasks(RangeTasks, frozen=True, kw_only=True):
    """Tasks that write all messages of their ranges."""

    columns: tuple[str, ...]
    compression: str = COMPRESSION
    scheme: PartitionScheme = DAILY
    body_fields: tuple[BodyField, ...] | None = None
    """The fields of the bodies that become columns; None when bodies are not parsed."""
    body_source: BodySchema | None = None
    """The schema of bodies that are no JSON."""

    def run(self, number: int) -> TaskResult:
        """Write the ranges of one task."""
        rows: Counter[QueueKey] = Counter()
        with self.read(number, self.columns, rows) as batches:
            schema = file_schema(self.columns, self.body_fields)
            writer = PartitionedWriter(self.directory, schema, self.compression, self.scheme)
            counter = FieldCounter(field.source for field in self.body_fields or ())
            parser = BodyParser(self.body_fields or (), counter, self.body_source)
            if self.body_fields is not None:
                batches = parser.add_columns(batches)
            files = write_files(batches, writer)
        return TaskResult(
            files=tuple(files),
            rows=to_json(dict(rows)),
            unknown_fields=counter.counts,
            bad_bodies=parser.bad_bodies,
        )


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
