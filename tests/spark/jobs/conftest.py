"""A topic in a real cluster, and a Spark stub that runs tasks in the test's process."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from roquet.arrow.encode import batch_bodies, encode
from roquet.arrow.records import SCHEMA
from roquet.lake.queue_offsets import ranges
from roquet.model.errors import UsageError
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.jobs.archive import archive_job
from roquet.spark.options import SourceOptions
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.topic import CreateTopic, DeleteTopic
from roquet.wire.calls.send import SendBatch

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class EagerSpark:
    """A Spark session with only what jobs use; tasks run when their results are collected.

    With `repeats` each task runs twice, as in speculative execution, and the second result counts.
    """

    def __init__(self, *, repeats: bool = False) -> None:
        self.jobs = 0
        self._repeats = repeats

    def range(self, start: int, end: int, step: int, parts: int) -> "EagerSpark":
        assert (start, step, parts) == (0, 1, end)
        self._count = end
        return self

    def mapInArrow(self, work: Work, schema: str) -> "EagerSpark":  # noqa: N802
        assert schema == "answer string"
        self._work = work
        return self

    def collect(self) -> list[dict[str, Any]]:
        self.jobs += 1
        results = [self._done(number) for number in range(self._count)]
        return results if not self._repeats else [self._done(n) for n in range(self._count)]

    def _done(self, number: int) -> dict[str, Any]:
        [answer] = self._work(iter([pa.RecordBatch.from_pydict({"id": [number]})]))
        [row] = answer.to_pylist()
        return dict(row)


MakeSpark = Callable[..., Any]
"""Makes an `EagerSpark`; its result is Any because jobs ask for a SparkSession."""


class Topic:
    """A topic of two brokers with two queues each, in a cluster of its own."""

    name = "orders"
    queues = tuple((broker, queue_id) for broker in ("broker-a", "broker-b") for queue_id in (0, 1))

    def __init__(self, running: BlockingCluster) -> None:
        self.running = running
        self.namesrv = running.namesrv_addr
        self._channels = dict(
            zip(("broker-a", "broker-b"), map(BlockingChannel, running.broker_addrs), strict=True)
        )
        self.ends = dict.fromkeys(self.queues, 0)
        self._make()

    def _make(self) -> None:
        """Create the topic, and wait until the name server knows it."""
        self.resize(2)

    def resize(self, count: int) -> None:
        """Give the topic so many queues on each broker at once; the name server knows it then."""
        for channel in self._channels.values():
            channel.call(
                CreateTopic(topic=self.name, read_queue_nums=count, write_queue_nums=count, perm=6)
            )
        cluster = ClusterClient(SourceOptions(namesrv=(self.namesrv,), topics=(self.name,)))
        for _ in range(100):
            with suppress(UsageError):
                if len(cluster.latest()) == count * len(self._channels):
                    return
            cluster.pause(50)
        raise AssertionError("the name server never heard of the topic")

    def send(self, count: int) -> None:
        """Send this many messages to each queue."""
        for broker, queue_id in self.queues:
            first = self.ends[broker, queue_id]
            bodies = [b"%b/%d/%d" % (broker.encode(), queue_id, first + at) for at in range(count)]
            self.send_rows(broker, queue_id, pa.RecordBatch.from_pydict({"body": bodies}))

    def send_rows(self, broker: str, queue_id: int, rows: pa.RecordBatch) -> None:
        """Send rows, with the columns of `arrow.encode`, to one queue."""
        for body in batch_bodies(encode(rows), 1_000_000):
            call = SendBatch(
                batch=True,
                producer_group="tests",
                topic=self.name,
                queue_id=queue_id,
                born_timestamp=1_700_000_000_000,
                body=body,
            )
            self._channels[broker].call(call)
        self.ends[broker, queue_id] += len(rows)

    def recreate(self) -> None:
        """Delete the topic, and create it again."""
        for channel in self._channels.values():
            channel.call(DeleteTopic(topic=self.name))
        self.ends = dict.fromkeys(self.queues, 0)
        self._make()

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of all sent messages, sorted."""
        return sorted(
            b"%b/%d/%d" % (broker.encode(), queue_id, at)
            for (broker, queue_id), end in self.ends.items()
            for at in range(end)
        )

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


@pytest.fixture
def topic() -> Iterator[Topic]:
    """An empty topic on two brokers."""
    with BlockingCluster(brokers=2) as running, closing(Topic(running)) as orders:
        yield orders


@pytest.fixture
def eager() -> MakeSpark:
    return EagerSpark


class ArchivedTopic:
    """A topic, its archive, and a second topic that the archive is replayed to."""

    again = "again"

    def __init__(self, topic: Topic, root: Path) -> None:
        self.topic, self.root = topic, root / "lake"
        self.make(self.again)

    def make(self, name: str, queues: int = 2) -> None:
        """Create another topic."""
        for address in self.topic.running.broker_addrs:
            with closing(BlockingChannel(address)) as channel:
                call = CreateTopic(
                    topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=6
                )
                channel.call(call)
        cluster = self.cluster(name)
        for _ in range(100):
            with suppress(UsageError):
                if len(cluster.latest()) == 2 * queues:
                    return
            cluster.pause(50)
        raise AssertionError("the name server never heard of the topic")

    def recreate(self) -> None:
        """Delete the second topic, and create it again."""
        for address in self.topic.running.broker_addrs:
            with closing(BlockingChannel(address)) as channel:
                channel.call(DeleteTopic(topic=self.again))
        self.make(self.again)

    def cluster(self, name: str = again, **settings: Any) -> ClusterClient:
        options = {"namesrv": (self.topic.namesrv,), "topics": (name,), "timeout_ms": 5_000}
        return ClusterClient(SourceOptions(**{**options, **settings}), None, lambda ms: None)

    def archive(self, **params: Any) -> None:
        options = {"namesrv": self.topic.namesrv}
        arguments = {"topic": "orders", "target": str(self.root), "options": options, **params}
        eager: Any = EagerSpark
        archive_job.run(archive_job.Params(**arguments), eager)

    def rows(self, name: str = again) -> pa.Table:
        """The messages of a topic, queue by queue."""
        cluster = self.cluster(name)
        pieces = ranges(cluster.earliest(), cluster.latest())
        columns = ("broker", "queue_id", "queue_offset", "body", "properties", "tag", "keys")
        schema = pa.schema([SCHEMA.field(column) for column in columns])
        batches = list(RangeReader(cluster, columns).batches(pieces)) if pieces else []
        return pa.Table.from_batches(batches, schema)

    def bodies(self, name: str = again) -> list[bytes]:
        """The bodies of a topic's messages, sorted."""
        return sorted(self.rows(name)["body"].to_pylist())

    def places(self, name: str = again) -> list[tuple[str, int, int, bytes]]:
        """The broker, queue and offset of each body."""
        rows = self.rows(name).select(["broker", "queue_id", "queue_offset", "body"])
        return sorted(tuple(row.values()) for row in rows.to_pylist())


@pytest.fixture
def archived_topic(topic: Topic, tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(topic, tmp_path)
