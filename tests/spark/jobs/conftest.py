"""A topic in a real cluster, and a Spark stub that runs tasks in the test's process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import create_topic, read_topic, send_items

from roquet.arrow.encode import encode
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive import archive_job
from roquet.spark.options import SourceOptions
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.topic import DeleteTopic

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
        self.addresses = dict(zip(("broker-a", "broker-b"), running.broker_addrs, strict=True))
        self.ends = dict.fromkeys(self.queues, 0)
        self.resize(2)

    def resize(self, count: int) -> None:
        """Give the topic so many queues on each broker; the name server knows it then."""
        create_topic(self.running, self.name, count)

    def send(self, count: int) -> None:
        for broker, queue_id in self.queues:
            first = self.ends[broker, queue_id]
            bodies = [b"%b/%d/%d" % (broker.encode(), queue_id, first + at) for at in range(count)]
            self.send_rows(broker, queue_id, pa.RecordBatch.from_pydict({"body": bodies}))

    def send_rows(self, broker: str, queue_id: int, rows: pa.RecordBatch) -> None:
        """Send rows, with the columns of `arrow.encode`, to one queue."""
        send_items(self.addresses[broker], self.name, queue_id, encode(rows))
        self.ends[broker, queue_id] += len(rows)

    def delete(self, name: str) -> None:
        for address in self.addresses.values():
            with BlockingChannel(address) as channel:
                channel.call(DeleteTopic(topic=name))

    def recreate(self) -> None:
        self.delete(self.name)
        self.ends = dict.fromkeys(self.queues, 0)
        self.resize(2)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(
            b"%b/%d/%d" % (broker.encode(), queue_id, at)
            for (broker, queue_id), end in self.ends.items()
            for at in range(end)
        )


@pytest.fixture
def topic() -> Iterator[Topic]:
    with BlockingCluster(brokers=2) as running:
        yield Topic(running)


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
        create_topic(self.topic.running, name, queues)

    def recreate(self) -> None:
        self.topic.delete(self.again)
        self.make(self.again)

    def send_and_archive(self, count: int) -> None:
        self.topic.send(count)
        self.archive()

    def cluster(self, name: str = again, **settings: Any) -> ClusterClient:
        options = {"namesrv": (self.topic.namesrv,), "topics": (name,), "timeout_ms": 5_000}
        return ClusterClient(SourceOptions(**{**options, **settings}), None, lambda ms: None)

    def archive(self, **params: Any) -> None:
        options = {"namesrv": self.topic.namesrv}
        arguments = {"topic": "orders", "target": str(self.root), "options": options, **params}
        eager: Any = EagerSpark
        archive_job.run(archive_job.Params(**arguments), eager)

    def rows(self, name: str = again) -> pa.Table:
        columns = ("broker", "queue_id", "queue_offset", "body", "properties", "tag", "keys")
        return read_topic(self.topic.namesrv, name, columns)

    def bodies(self, name: str = again) -> list[bytes]:
        return sorted(self.rows(name)["body"].to_pylist())

    def places(self, name: str = again) -> list[tuple[str, int, int, bytes]]:
        rows = self.rows(name).select(["broker", "queue_id", "queue_offset", "body"])
        return sorted(tuple(row.values()) for row in rows.to_pylist())


@pytest.fixture
def archived_topic(topic: Topic, tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(topic, tmp_path)
