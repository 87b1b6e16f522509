"""Task set: a job's work in numbered tasks, each of which answers with a small result.

Tasks run in Spark's workers and write their rows themselves, so Spark gets no rows: one line of
JSON from each task.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from roquet.lake.queue_offsets import OffsetsJson, QueueKey, from_json
from roquet.lake.table import DataFile


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
    bad_bodies: int = 0
    """Bodies that could not be parsed, so that `body_error` says why."""
    payload: str = ""
    """Any further result, as JSON."""


class TaskSet(Protocol):
    """Numbered tasks; Spark's workers get the whole set pickled."""

    def __len__(self) -> int:
        """The number of tasks."""

    def run(self, number: int) -> TaskResult:
        """Run the task with this number, counted from 0."""


def rows_by_queue(results: Sequence[TaskResult]) -> Counter[QueueKey]:
    """The rows of all tasks, added up by queue."""
    return sum((Counter(from_json(result.rows)) for result in results), Counter[QueueKey]())
