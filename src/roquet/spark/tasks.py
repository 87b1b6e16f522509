"""Tasks: what one Spark task reads, and the reading of it in a worker."""

from collections.abc import Iterator, Mapping, Sequence
from os import cpu_count
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from roquet.model.errors import CallError, CallRefused, RoquetError
from roquet.spark import plan
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import Piece

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """Pieces of queues, and where their brokers were when the read was planned."""

    def __init__(self, pieces: Sequence[Piece], addresses: Mapping[str, str]) -> None:
        super().__init__(tuple(pieces))
        self.addresses = dict(addresses)


def tasks_for(
    settings: SourceOptions, pieces: Sequence[Piece], addresses: Mapping[str, str]
) -> list[Task]:
    """The pieces dealt to as many tasks as are worth it, at most one for each core.

    More than that, and more than `max_partitions`, only where a task would get more rows than the
    user allows.
    """
    most = settings.max_partitions or max(settings.min_partitions, cpu_count() or 1)
    rows, rows_max = sum(map(len, pieces)), settings.max_records_per_partition
    count = plan.partition_count(rows, settings.min_partitions, most, rows_max)
    return [Task(part, addresses) for part in plan.pack(pieces, count)]


def read(
    settings: SourceOptions, columns: Sequence[str], partition: InputPartition
) -> Iterator["pa.RecordBatch"]:
    """The messages of one task."""
    # Imported here, in the worker that reads: planning needs no columns.
    from roquet.spark.cluster import Cluster
    from roquet.spark.fetch import RangeReader

    if isinstance(partition, Task):  # Spark makes an empty partition of its own for no tasks
        cluster = Cluster(settings, partition.addresses)
        try:
            yield from RangeReader(cluster, columns).batches(partition.value)
        except CallRefused:
            raise
        except CallError as error:
            raise BrokerAway(_unread(settings, partition.value, error)) from error


class BrokerAway(RoquetError):
    """A broker did not answer a task until the time was up; nothing of the batch is lost."""


def _unread(settings: SourceOptions, pieces: Sequence[Piece], error: CallError) -> str:
    places = ", ".join(sorted({f"{piece.topic!r} on {piece.broker!r}" for piece in pieces}))
    return (
        f"a task that reads {places} waited {settings.timeout_ms / 1000:g} s in vain: {error};"
        " the same messages are read again when the query starts again from its checkpoint,"
        " and option timeout says how long a task waits"
    )
