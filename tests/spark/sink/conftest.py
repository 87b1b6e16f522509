"""A cluster of two brokers to write to, and reads of its topics."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import create_topic, read_topic

from roquet.spark.sink.commit_records import SCHEMA, CommitRecord
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.row_encoder import PartitionOrigin
from roquet.spark.sink.task import send_partition
from roquet.testing.cluster import BlockingCluster

COLUMNS = ("broker", "queue_id", "queue_offset", "body", "properties", "flag", "stored_at")


HALF = {
    "partition": [0], "row": [5], "topic": ["orders"], "broker": ["broker-a"], "queue_id": [2],
    "half_offset": [9], "position": [400], "unique_key": ["U"], "ordered": [False],
}  # fmt: skip


def commit_record(batch: int = 3, query: str = "q") -> CommitRecord:
    table = SCHEMA.empty_table().from_pydict(HALF, SCHEMA)
    ends = {"orders": {"broker-a": {"0": 7}}}
    return CommitRecord(query, batch, "group", ("a:1", "b:2"), ends, table)


def write_rows(options: SinkOptions, batch: int = 0, **columns: Any) -> tuple[int, bytes]:
    """Write rows as partition 0 of a batch of query `q`."""
    rows = pa.RecordBatch.from_pydict(columns)
    return send_partition(iter([rows]), options, rows.schema.names, PartitionOrigin("q", batch, 0))


def nobody(_ms: int) -> None:
    raise AssertionError("nobody else holds the lock or the lease")


class SinkCluster:
    def __init__(self, running: BlockingCluster) -> None:
        self.running = running
        self.namesrv = running.namesrv_addr

    def create(self, topic: str, queues: int = 2) -> None:
        create_topic(self.running, topic, queues)

    def options(self, **settings: Any) -> SinkOptions:
        return SinkOptions(**{"namesrv": (self.namesrv,), "timeout_ms": 20_000, **settings})

    def new_topic(self, topic: str, **settings: Any) -> SinkOptions:
        """The options of writes to a new topic."""
        self.create(topic)
        return self.options(topic=topic, **settings)

    def transaction(self, topic: str, commits: str, **settings: Any) -> SinkOptions:
        """The options of transactions that write to a new topic."""
        fixed = {"commits": commits, "timeout_ms": 5_000, **settings}
        return self.new_topic(topic, transactional=True, **fixed)

    def send_halves(
        self, topic: str, commits: str, bodies: list[bytes]
    ) -> tuple[SinkOptions, list[bytes]]:
        options = self.transaction(topic, commits)
        return options, [write_rows(options, body=bodies)[1]]

    def read(self, topic: str) -> pa.Table:
        return read_topic(self.namesrv, topic, COLUMNS)

    def bodies(self, topic: str) -> list[bytes]:
        return sorted(self.read(topic)["body"].to_pylist())


@pytest.fixture
def cluster_type() -> type[SinkCluster]:
    """The class, for a cluster of the test's own."""
    return SinkCluster


@pytest.fixture(scope="module")
def sink_cluster() -> Iterator[SinkCluster]:
    """Two brokers in memory that do not check half messages during a test."""
    with BlockingCluster(brokers=2) as running:
        yield SinkCluster(running)


@pytest.fixture
def impatient_cluster() -> Iterator[SinkCluster]:
    """One broker that checks half messages at once, and discards them at the second check."""
    settings: dict[str, Any] = {
        "transaction_timeout": 0,
        "transaction_check_interval": 50,
        "transaction_check_max": 1,
    }
    with BlockingCluster(brokers=1, **settings) as running:
        yield SinkCluster(running)
