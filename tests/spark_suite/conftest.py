"""What Spark is tested with: brokers, senders, queries that keep their rows, and an S3 server."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.conftest import create_topic, send_columns

from roquet.lake.objects import object_store
from roquet.net.blocking import BlockingChannel
from roquet.testing.cluster import BlockingCluster
from roquet.wire.call import Call
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.admin.topic import CreateTopic, DeleteTopic
from roquet.wire.calls.bodies import ConsumeStats
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
        send_columns(self.running.broker_addrs[broker], topic, queue_id, body=bodies)
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
        before = set(self.batches)
        assert self.start(**cast("Any", options)).awaitTermination(PATIENCE_S)
        return [len(self.batches[number]) for number in sorted(self.batches.keys() - before)]

    @property
    def rows(self) -> list[str]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def until(self, holds: Callable[[], bool]) -> None:
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


class PersistentTopic:
    """A topic in a cluster whose files outlive its brokers."""

    def __init__(self, running: BlockingCluster) -> None:
        self.running, self.sent = running, list[bytes]()
        self.make()

    @property
    def namesrv(self) -> str:
        return self.running.namesrv_addr

    def make(self) -> None:
        create_topic(self.running, "orders", 4)

    def send(self, broker: int = 0, count: int = 3_000, keys: int = 1) -> None:
        """As many to each of a broker's queues, with so many keys there in turn."""
        for queue_id in range(4):
            first = len(self.sent)
            bodies = [b"%d/%d/%d" % (broker, queue_id, at + first) for at in range(count)]
            names = [f"{broker}-{queue_id}-{at % keys}" for at in range(count)]
            address = self.running.broker_addrs[broker]
            send_columns(address, "orders", queue_id, body=bodies, key=names)
            self.sent += bodies


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[PersistentTopic]:
    with BlockingCluster(store=tmp_path / "brokers") as running:
        yield PersistentTopic(running)


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class InProcessSpark:
    """A Spark whose workers are this process, so that they can be made to fail."""

    def range(self, _start: int, end: int, _step: int, _parts: int) -> "InProcessSpark":
        self._count = end
        return self

    def mapInArrow(self, work: Work, _schema: str) -> "InProcessSpark":  # noqa: N802
        self._work = work
        return self

    def collect(self) -> list[Any]:
        numbers = (pa.RecordBatch.from_pydict({"id": [at]}) for at in range(self._count))
        return [row for answer in self._work(numbers) for row in answer.to_pylist()]


ADDRESS = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")

KEY_ID, SECRET = "AKIAROQUET", "hunter2-of-the-lake"


class S3Server:
    """The server, and what a test may do to it."""

    bucket = "lake"

    def __init__(self, url: str) -> None:
        self.url = url
        self.environ = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.files().create_dir(self.bucket)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """This process has the environment to reach the server, and no other."""
        object_store.s3_file_system.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in self.environ.items():
                patch.setenv(name, value)
            yield
        object_store.s3_file_system.cache_clear()

    def files(self) -> pafs.FileSystem:
        """The server's buckets and objects."""
        return pafs.S3FileSystem(
            access_key=KEY_ID,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=self.url.removeprefix("http://"),
            allow_bucket_creation=True,
        )

    def stored(self, path: str = "") -> list[str]:
        """The keys of all objects below a path of the bucket, without marks of directories."""
        selector = pafs.FileSelector(f"{self.bucket}/{path}", recursive=True, allow_not_found=True)
        found = self.files().get_file_info(selector)
        return sorted(info.path for info in found if info.type == pafs.FileType.File)

    def forbid(self) -> None:
        """From now on refuse everybody: no request's key is known to the server."""
        plain = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{self.url}/moto-api/reset-auth", b"0", plain)
        with urllib.request.urlopen(request) as reply:
            assert reply.status == 200


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with an empty bucket; it ends with the block."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = next(filter(None, map(ADDRESS.search, process.stderr)), None)
            assert found is not None, "the S3 server did not start"
            # It logs each request, and would wait for a reader.
            Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
            yield S3Server(found[1])
        finally:
            process.kill()


@pytest.fixture(scope="module")
def s3_of_module() -> Iterator[S3Server]:
    """A server, and the environment to reach it."""
    with s3_server() as running, running.reached():
        yield running


@pytest.fixture
def s3(s3_of_module: S3Server) -> Iterator[S3Server]:
    """The server with an empty bucket."""
    yield s3_of_module
    s3_of_module.files().delete_dir_contents(s3_of_module.bucket)
