"""Spark's writers: `write` runs in tasks, `commit` and `abort` on the driver.

Without transactions there is nothing to commit: a row is visible as soon as a broker has stored it.
A task that runs again writes its rows again, with the same row keys (ROQUET_ROW).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from roquet.model.errors import ConfigError, UsageError
from roquet.spark.sink.columns import check_frame
from roquet.spark.sink.options import JOB_PREFIX, SinkOptions, parse

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
"""Local properties that name the stream's query and batch in a task."""


class TaskCommitMessage(WriterCommitMessage):
    """The number of rows of one task and, in a transaction, its half messages as Arrow bytes."""

    def __init__(self, query: str, rows: int, halves: bytes = b"") -> None:
        self.query = query
        self.rows = rows
        self.halves = halves


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic only grows: use mode('append'), not 'overwrite'")
        self._options = parse(options, os.environ)
        self._columns = check_frame(_fields(schema), self._options)
        self.job = self._options.job or f"{JOB_PREFIX}{SystemRandom().getrandbits(64):016x}"
        """The name in the rows' keys: option `job`, or a random one."""
        self._recorded = 0 in _decided_batches(self._options).get(self.job, ())

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskCommitMessage:
        """Send the rows of one partition."""
        if self._recorded:
            return _skip(iterator, self.job)
        return _write(iterator, self._options, self._columns, self.job, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows of a transaction visible."""
        if self._options.transactional:
            _commit(self._options, 0, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll back the half messages of the tasks that ended, in a transaction."""
        if self._options.transactional:
            _abort(self._options, 0, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches of a stream. Spark makes a writer for each, and one to commit it."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic only grows: use outputMode 'append' or 'update'")
        self._options = parse(options, os.environ)
        if self._options.job is not None:
            raise ConfigError("option 'job' names a batch write: a stream has its query's id")
        self._columns = check_frame(_fields(schema), self._options)
        self._recorded = _decided_batches(self._options)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskCommitMessage:
        """Send the rows of one partition of a micro-batch."""
        query, batch = micro_batch()
        if batch in self._recorded.get(query, ()):
            return _skip(iterator, query)
        return _write(iterator, self._options, self._columns, query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make all rows of a transactional micro-batch visible."""
        if self._options.transactional:
            _commit(self._options, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Roll back the half messages of the tasks that ended, in a transaction."""
        if self._options.transactional:
            _abort(self._options, batchId, messages)


def micro_batch() -> tuple[str, int]:
    """The query id and batch number of the running task."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if query is None or batch is None:
        raise UsageError("Spark does not say to which query and batch this task belongs")
    return query, int(batch)


def _fields(schema: StructType) -> Iterator[tuple[str, str]]:
    return ((field.name, field.dataType.simpleString()) for field in schema.fields)


def _decided_batches(options: SinkOptions) -> dict[str, frozenset[int]]:
    """Decided batches by query, after finishing those that a killed driver left."""
    if not options.transactional:
        return {}
    from roquet.spark.sink.commit import decided_batches, finish_decided

    finish_decided(options)
    return decided_batches(options)


def _write(
    batches: Iterator["pa.RecordBatch"],
    options: SinkOptions,
    columns: Sequence[str],
    query: str,
    batch: int,
) -> TaskCommitMessage:
    # Imported here, in the worker that writes: planning needs no columns.
    from roquet.spark.sink.row_encoder import PartitionOrigin
    from roquet.spark.sink.task import send_partition

    context = TaskContext.get()
    origin = PartitionOrigin(query, batch, context.partitionId() if context else 0)
    rows, halves = send_partition(batches, options, columns, origin)
    return TaskCommitMessage(query, rows, halves)


def _skip(batches: Iterator["pa.RecordBatch"], query: str) -> TaskCommitMessage:
    """Consume the rows without sending them: the batch was committed before."""
    for _ in batches:
        pass
    return TaskCommitMessage(query, 0)


def _commit(
    options: SinkOptions, batch: int, messages: Sequence[WriterCommitMessage | None]
) -> None:
    from roquet.spark.sink.commit import commit

    tasks = _task_messages(messages)
    if tasks:
        commit(options, tasks[0].query, batch, [task.halves for task in tasks if task.halves])


def _abort(
    options: SinkOptions, batch: int, messages: Sequence[WriterCommitMessage | None]
) -> None:
    from roquet.spark.sink.commit import abort

    tasks = _task_messages(messages)
    if tasks:
        abort(options, tasks[0].query, batch, [task.halves for task in tasks if task.halves])


def _task_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommitMessage]:
    return [message for message in messages if isinstance(message, TaskCommitMessage)]
