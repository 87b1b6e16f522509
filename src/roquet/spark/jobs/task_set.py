"""Task set: a job's work in numbered tasks, each of which answers with a small result.

Tasks run in Spark's workers and write their rows themselves, so Spark gets no rows: one line of
JSON from each task.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from roquet.model.errors import CallError, RoquetError
from roquet.spark.queue_offsets import OffsetsJson, QueueKey, from_json
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.spark.tables.object_store import StorageFailed
from roquet.spark.tables.table import DataFile


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one task, or the error that ended it, which Spark does not retry."""

    files: tuple[DataFile, ...] = ()
    """Files that it has written."""
    rows: OffsetsJson = {}
    """Rows that it has read or sent, by queue."""
    error: str | None = None
    is_retryable: bool = False
    """Whether a later run may succeed, because a broker was unavailable."""
    doubled: int = 0
    """Messages that are known to be in the destination twice."""
    unknown_fields: Mapping[str, int] = {}
    """Bodies with a field that has no column, by field."""
    payload: str = ""
    """Any further result, as JSON."""


class TaskSet(Protocol):
    """Numbered tasks; Spark's workers get the whole set pickled."""

    def __len__(self) -> int:
        """The number of tasks."""

    def run(self, number: int) -> TaskResult:
        """Run the task with this number, counted from 0."""


def run_in_arrow(task_set: TaskSet, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: run the task of each number that comes in, and yield its result.

    A CallError or StorageFailed is raised, so that Spark tries again. Every other RoquetError is
    returned as a result: another attempt of Spark's would meet it again at once.
    """
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                result = task_set.run(number)
            except (CallError, StorageFailed):
                raise
            except RoquetError as error:
                is_retryable = isinstance(error, BrokerUnavailable)
                result = TaskResult(error=str(error), is_retryable=is_retryable)
            text = msgspec.json.encode(result).decode()
            yield pa.RecordBatch.from_pydict({"answer": [text]})


def rows_by_queue(results: Sequence[TaskResult]) -> Counter[QueueKey]:
    """The rows of all tasks, added up by queue."""
    return sum((Counter(from_json(result.rows)) for result in results), Counter[QueueKey]())
