"""Read tasks: checks before a read begins, the ranges of one Spark task, and reading them there."""

import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from os import cpu_count
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from roquet import __version__
from roquet.lake.queue_offsets import OffsetRange
from roquet.model.errors import CallError, CallRefused, ConfigError, RoquetError
from roquet.model.subscription import SQL92, Subscription
from roquet.rules.send_retry import NOT_DONE, is_transient
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import GROUP, SourceOptions
from roquet.spark.session import cores_of_environment
from roquet.spark.source import plan
from roquet.spark.worker_process import entry_point
from roquet.wire.calls.bodies import CheckClientBody
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps

if TYPE_CHECKING:
    import pyarrow as pa


class ReadTask(InputPartition):
    """Ranges of queues, and their brokers' addresses at planning time."""

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        addresses: Mapping[str, str],
        replicas: Mapping[str, Mapping[int, str]] = MappingProxyType({}),
    ) -> None:
        super().__init__(tuple(ranges))
        self.addresses = dict(addresses)
        self.replicas = {broker: dict(members) for broker, members in replicas.items()}
        self.roquet = __version__
        """The version that planned the task."""


def plan_tasks(
    settings: SourceOptions,
    ranges: Sequence[OffsetRange],
    addresses: Mapping[str, str],
    replicas: Mapping[str, Mapping[int, str]] = MappingProxyType({}),
    cores: int | None = None,
) -> list[ReadTask]:
    """The ranges distributed over tasks, at most one for each core or `max_partitions`.

    There are more only where a task would exceed `max_records_per_partition`. `cores` are those of
    the session's executors; None where the caller cannot ask, as in the process in which Spark
    plans a source.
    """
    rows, rows_max = sum(map(len, ranges)), settings.max_records_per_partition
    most = cores or cores_of_environment() or plan.tasks_max(rows, cpu_count() or 1)
    most = settings.max_partitions or max(settings.min_partitions, most)
    count = plan.partition_count(rows, settings.min_partitions, most, rows_max)
    return [ReadTask(part, addresses, replicas) for part in plan.pack(ranges, count)]


def read_task(
    settings: SourceOptions, columns: Sequence[str], partition: InputPartition
) -> Iterator["pa.RecordBatch"]:
    """The messages of one task."""
    freeze_loaded()
    with entry_point():
        yield from _read_task(settings, columns, partition)


def _read_task(
    settings: SourceOptions, columns: Sequence[str], partition: InputPartition
) -> Iterator["pa.RecordBatch"]:
    # Imported here, in the worker that reads: planning needs no columns.
    from roquet.spark.cluster.range_reader import RangeReader

    if isinstance(partition, ReadTask):  # Spark makes an empty partition of its own for no tasks
        if partition.roquet != __version__:
            raise ConfigError(
                f"this worker has Roquet {__version__}, and the driver that planned its task has "
                f"{partition.roquet}: install the same on both"
            )
        cluster = ClusterClient(settings, partition.addresses, replicas=partition.replicas)
        try:
            yield from RangeReader(cluster, columns).batches(partition.value)
        except CallError as error:
            if not is_transient(error, NOT_DONE):
                raise
            places = sorted({f"{each.topic!r} on {each.broker!r}" for each in partition.value})
            raise BrokerUnavailable(
                f"a task that reads {', '.join(places)} got no answer within "
                f"{settings.timeout_ms / 1000:g} s: {error}; the same messages are read again when "
                "the query starts again from its checkpoint, and option timeout says how long a "
                "task waits"
            ) from error


def filter_text(settings: SourceOptions, rows: int | None, pushed: Collection[str] = ()) -> str:
    """One line that says what brokers filter and what Spark does; no `explain` shows it.

    `rows` are the messages between the offsets of a batch read, None for a stream; `pushed` the
    columns whose conditions narrowed them.
    """
    sent = "all of them"
    if settings.tags is not None:
        sent = f"those with tag {' or '.join(settings.tags)}"
    elif settings.sql92 is not None:
        sent = f"those for which {settings.sql92}"
    topics = settings.topic_pattern or ", ".join(settings.topics)
    count = "messages from the starting offsets on" if rows is None else f"{rows:,} messages"
    narrowed = f" (within the query's {' and '.join(sorted(pushed))})" if pushed else ""
    return (
        f"{topics}: reads {count}{narrowed}, of which brokers send {sent}; "
        "Spark applies the query's conditions to these"
    )


@cache
def freeze_loaded() -> None:
    """Keep what this process has loaded out of its garbage collections, once.

    A worker of PySpark makes a full collection after each task. That takes tens of milliseconds for
    the modules alone, which is more than the read of a small batch.
    """
    gc.collect()
    gc.freeze()


class BrokerUnavailable(RoquetError):
    """A broker did not answer a task within the timeout; no message is lost."""


def check_read(cluster: ClusterClient) -> None:
    """Raise ConfigError unless the known brokers accept the filter and the group has no members."""
    settings = cluster.settings
    for broker in sorted(cluster.addresses):
        if settings.sql92 is not None:
            _check_filter(cluster, broker, settings.sql92)
        if settings.group != GROUP and not settings.share_group:
            _check_group(cluster, broker, settings.group)


def _check_filter(cluster: ClusterClient, broker: str, expression: str) -> None:
    settings = cluster.settings
    subscription = Subscription(
        topic=next(iter(settings.topics), ""), sub_string=expression, expression_type=SQL92
    )
    body = CheckClientBody(
        client_id=settings.group, group=settings.group, subscription_data=subscription
    )
    try:
        cluster.ask(broker, CheckSubscription(body=dumps(body)))
    except CallRefused as error:
        raise ConfigError(
            f"sql92: broker {broker!r} does not filter by this expression: {error.remark}; "
            "an Apache broker needs enablePropertyFilter=true"
        ) from error


def _check_group(cluster: ClusterClient, broker: str, group: str) -> None:
    try:
        members = cluster.group_members(broker, group)
    except CallRefused as error:
        if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
            return  # SYSTEM_ERROR comes from brokers that do not know the group
        raise
    if members:
        raise ConfigError(
            f"group {group!r} is used by consumers ({', '.join(members)}): choose another group, "
            "or set shareGroup=true if they may see these reads in its statistics"
        )
