"""A cluster of two brokers to write to, and reads of its topics."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from roquet.arrow.records import SCHEMA
from roquet.lake.queue_offsets import ranges
from roquet.model.errors import UsageError
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions
from roquet.spark.sink.options import SinkOptions
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.topic import CreateTopic

COLUMNS = ("broker", "queue_id", "queue_offset", "body", "properties", "flag", "stored_at")


class SinkCluster:
    """A running cluster to write rows to."""

    def __init__(self, running: BlockingCluster) -> None:
        self.running = running
        self.namesrv = running.namesrv_addr

    def create(self, topic: str, queues: int = 2) -> None:
        """Create a topic with so many queues on each broker."""
        for address in self.running.broker_addrs:
            with BlockingChannel(address) as channel:
                channel.call(
                    CreateTopic(
                        topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
                    )
                )

        cluster = ClusterClient(SourceOptions(namesrv=(self.namesrv,), topics=(topic,)))
        for _ in range(100):  # until the name servers know the topic
            with suppress(UsageError):
                if len(cluster.latest()) == queues * len(self.running.broker_addrs):
                    return
            cluster.pause(20)

    def options(self, **settings: Any) -> SinkOptions:
        return SinkOptions(**{"namesrv": (self.namesrv,), "timeout_ms": 20_000, **settings})

    def read(self, topic: str) -> pa.Table:
        """All messages of a topic."""
        cluster = ClusterClient(SourceOptions(namesrv=(self.namesrv,), topics=(topic,)))
        pieces = ranges(cluster.earliest(), cluster.latest())
        batches = list(RangeReader(cluster, COLUMNS).batches(pieces))
        return pa.Table.from_batches(
            batches, batches[0].schema if batches else pa.schema([SCHEMA.field(c) for c in COLUMNS])
        )

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies of all messages, sorted."""
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
