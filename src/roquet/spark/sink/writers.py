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
from roquet.spark.sink.options import JOB_PREFIX, SinkOptions, check_frame, parse
from roquet.spark.worker_process import entry_point

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


class _TopicWriter:
    """Writes, commits and aborts the batches of a query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_frame(
            ((field.name, field.dataType.simpleString()) for field in schema.fields), options
        )
        self._recorded = _decided_batches(options)

    def _batch(self) -> tuple[str, int]:
        """The query and the number of the batch that a task writes."""
        raise NotImplementedError

    @entry_point()
    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskCommitMessage:
        """Send the rows of one partition, unless their batch was committed before."""
        query, batch = self._batch()
        if batch in self._recorded.get(query, ()):
            for _ in iterator:  # consumed without being sent
                pass
            return TaskCommitMessage(query, 0)
        # Imported here, in the worker that writes: planning needs no columns.
        from roquet.spark.sink.row_encoder import PartitionOrigin
        from roquet.spark.sink.task import send_partition

        context = TaskContext.get()
        origin = PartitionOrigin(query, batch, context.partitionId() if context else 0)
        rows, halves = send_partition(iterator, self._options, self._columns, origin)
        return TaskCommitMessage(query, rows, halves)

    @entry_point()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803
        """Make all rows of a transaction visible."""
        self._end("commit", batchId, messages)

    @entry_point()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803
        """Roll back the half messages of the tasks that ended, in a transaction."""
        self._end("abort", batchId, messages)

    def _end(self, how: str, batch: int, messages: Sequence[WriterCommitMessage | None]) -> None:
        tasks = [message for message in messages if isinstance(message, TaskCommitMessage)]
        if tasks and self._options.transactional:
            from roquet.spark.sink import commit

            halves = [task.halves for task in tasks if task.halves]
            getattr(commit, how)(self._options, tasks[0].query, batch, halves)


class BatchWriter(_TopicWriter, DataSourceArrowWriter):
    """Writes one DataFrame."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic only grows: use mode('append') or INSERT INTO")
        super().__init__(parse(options, os.environ), schema)
        self.job = self._options.job or f"{JOB_PREFIX}{SystemRandom().getrandbits(64):016x}"
        """The name in the rows' keys: option `job`, or a random one."""

    def _batch(self) -> tuple[str, int]:
        return self.job, 0


class StreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Writes micro-batches of a stream. Spark makes a writer for each, and one to commit it."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic only grows: use outputMode 'append' or 'update'")
        settings = parse(options, os.environ)
        if settings.job is not None:
            raise ConfigError("option 'job' names a batch write: a stream has its query's id")
        super().__init__(settings, schema)

    def _batch(self) -> tuple[str, int]:
        return micro_batch()


def micro_batch() -> tuple[str, int]:
    """The query id and batch number of the running task."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if query is None or batch is None:
        raise UsageError("Spark does not say to which query and batch this task belongs")
    return query, int(batch)


def _decided_batches(options: SinkOptions) -> dict[str, frozenset[int]]:
    """Decided batches by query, after finishing those that a killed driver left."""
    if not options.transactional:
        return {}
    from roquet.spark.sink.commit import decided_batches, finish_decided

    finish_decided(options)
    return decided_batches(options)
