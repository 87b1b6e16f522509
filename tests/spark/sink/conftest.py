"""A cluster of two brokers, and what its topics hold."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from roquet.arrow.records import SCHEMA
from roquet.model.errors import UsageError
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import ranges
from roquet.spark.sink.options import SinkOptions
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.topic import CreateTopic

COLUMNS = ("broker", "queue_id", "queue_offset", "body", "properties", "flag", "stored_at")


class Sea:
    """A cluster that rows sink into."""

    def __init__(self, running: BlockingCluster) -> None:
        self.running = running
        self.namesrv = running.namesrv_addr

    def create(self, topic: str, queues: int = 2) -> None:
        """A topic with so many queues on each broker."""
        for address in self.running.broker_addrs:
            with BlockingChannel(address) as channel:
                channel.call(
                    CreateTopic(
                        topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
                    )
                )

        cluster = ClusterClient(SourceOptions(namesrv=(self.namesrv,), topics=(topic,)))
        for _ in range(100):  # brokers tell name servers in a moment
            with suppress(UsageError):
                if len(cluster.latest()) == queues * len(self.running.broker_addrs):
                    return
            cluster.pause(20)

    def options(self, **given: Any) -> SinkOptions:
        return SinkOptions(**{"namesrv": (self.namesrv,), "timeout_ms": 20_000, **given})

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
def sea_of() -> type[Sea]:
    """To look into a cluster of one's own."""
    return Sea


@pytest.fixture(scope="module")
def sea() -> Iterator[Sea]:
    """Two brokers in memory; the first check of a half message is far away."""
    with BlockingCluster(brokers=2) as running:
        yield Sea(running)


@pytest.fixture
def hasty() -> Iterator[Sea]:
    """One broker that asks about half messages at once, and gives them up at the second time."""
    settings: dict[str, Any] = {
        "transaction_timeout": 0,
        "transaction_check_interval": 50,
        "transaction_check_max": 1,
    }
    with BlockingCluster(brokers=1, **settings) as running:
        yield Sea(running)
