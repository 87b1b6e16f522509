"""What streams in Spark are tested with: two brokers, senders, and queries that keep their rows."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roquet.arrow.encode import batch_bodies, encode
from roquet.net.blocking import BlockingChannel
from roquet.testing.cluster import BlockingCluster
from roquet.wire.call import Call
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.admin.topic import CreateTopic, DeleteTopic
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.calls.send import SendBatch
from roquet.wire.fastjson.codec import loads

PATIENCE_S = 60
"""For what should take one or two, on a machine that has other work."""


class TopicCluster:
    """Topics of two queues on each broker, and senders to each queue."""

    def __init__(self, running: BlockingCluster) -> None:
        self.running = running
        self.namesrv = running.namesrv_addr
        self._sent: dict[tuple[str, int, int], int] = {}

    def create(self, topic: str, broker: int = 0, queues: int = 2) -> None:
        self._call(broker, CreateTopic(
            topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
        ))  # fmt: skip

    def delete(self, topic: str, broker: int = 0) -> None:
        self._call(broker, DeleteTopic(topic=topic))
        self._sent = {place: n for place, n in self._sent.items() if place[:2] != (topic, broker)}

    def send(
        self, topic: str, count: int, broker: int = 0, queue_id: int = 0, size: int = 1
    ) -> None:
        """Messages whose bodies begin with what is sent there before them."""
        place = topic, broker, queue_id
        first = self._sent.get(place, 0)
        bodies = [f"{broker}/{queue_id}/{at}".ljust(size) for at in range(first, first + count)]
        for body in batch_bodies(encode(pa.RecordBatch.from_pydict({"body": bodies})), 1_000_000):
            self._call(broker, SendBatch(
                producer_group="tests", topic=topic, queue_id=queue_id, born_timestamp=1, body=body
            ))  # fmt: skip
        self._sent[place] = first + count

    def progress(self, group: str, broker: int = 0) -> dict[tuple[str, int], tuple[int, int]]:
        """A group's progress and its lag, as the genuine tool asks for it."""
        reply = self._call(broker, GetConsumeStats(consumer_group=group))
        table = loads(bytes(reply.body), ConsumeStats).offset_table
        return {(q.topic, q.queue_id): (one.consumer_offset, one.lag) for q, one in table.items()}

    def _call(self, broker: int, call: Call[Any]) -> Any:
        with closing(BlockingChannel(self.running.broker_addrs[broker])) as channel:
            return channel.call(call)


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[TopicCluster]:
    """Two brokers that keep what they have on disk."""
    with BlockingCluster(brokers=2, store=tmp_path / "brokers") as running:
        yield TopicCluster(running)


class StreamRun:
    """One run of a query whose batches are kept here, by their numbers."""

    def __init__(self, spark: SparkSession, topics: TopicCluster, folder: Path, topic: str) -> None:
        self._spark, self._topics, self._folder = spark, topics, folder
        self.topic = topic
        self.batches: dict[int, list[str]] = {}
        self.partitions: dict[int, int] = {}
        self.trigger: dict[str, bool] = {"availableNow": True}
        self.fails_at: int | None = None
        self.query: StreamingQuery

    def start(self, *, now: bool = True, pattern: bool = False, **options: str) -> StreamingQuery:
        """A run to the end of what there is now, or one without an end."""
        reader = self._spark.readStream.format("roquet").option("namesrv", self._topics.namesrv)
        reader = reader.option("topicPattern" if pattern else "topic", self.topic)
        frame = reader.options(**cast("Any", {"timeout": "3s", **options})).load()
        writer = frame.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        self.query = (writer.trigger(**self.trigger) if now else writer).start()
        return self.query

    def other(self, name: str) -> "StreamRun":
        """A query of the same topic that knows nothing of this one."""
        return StreamRun(self._spark, self._topics, self._folder / name, self.topic)

    def once(self, **options: str) -> list[int]:
        """Everything there is; the rows of each batch."""
        before = set(self.batches)
        assert self.start(**cast("Any", options)).awaitTermination(PATIENCE_S)
        return [len(self.batches[number]) for number in sorted(self.batches.keys() - before)]

    @property
    def rows(self) -> list[str]:
        """All that came, in order."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what comes of the running query."""
        deadline = time.perf_counter() + PATIENCE_S
        while not holds():
            if error := self.query.exception():
                raise error
            assert time.perf_counter() < deadline, (self.batches, self.query.lastProgress)
            time.sleep(0.1)

    def _keep(self, frame: DataFrame, number: int) -> None:
        rows_read = frame.selectExpr("body", "spark_partition_id() as partition").collect()
        rows = [bytes(row.body).decode().strip() for row in rows_read]
        if number == self.fails_at:
            raise RuntimeError("the sink is down")
        self.batches[number] = rows
        self.partitions[number] = len({row.partition for row in rows_read})


@pytest.fixture
def run(spark: SparkSession, topics: TopicCluster, tmp_path: Path) -> Iterator[StreamRun]:
    topics.create("orders", 0)
    topics.create("orders", 1)
    stream_run = StreamRun(spark, topics, tmp_path, "orders")
    yield stream_run
    for query in spark.streams.active:
        query.stop()
