"""A name server without a network: its state, a clock that the test moves, peers that hang up."""

from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.model.topic import DataVersion, TopicConfig
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.kv_store import KVStore
from roquet.namesrv.live_brokers import LiveBrokers
from roquet.namesrv.state import NameServerState
from roquet.net.router import Peer
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.call import Call, R
from roquet.wire.calls.bodies import RegisterBrokerBody, TopicsOfBroker
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.fastjson import codec


class MovedClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms


class FakePeer:
    """The other end of a connection that is not there."""

    address = "127.0.0.1:5"
    host_bytes = bytes(8)
    language = 0
    is_full = False

    def __init__(self, version: int = 513) -> None:
        self.version = version
        self.closed = False
        self._callbacks: list[Callable[[Peer], object]] = []

    def oneway(self, call: Call[R]) -> None:
        raise AssertionError("a name server tells nobody anything")

    async def drain(self) -> None:
        """There always is."""

    async def call(self, call: Call[R], timeout_ms: int = 0) -> R:
        raise AssertionError("a name server asks nobody anything")

    def on_close(self, callback: Callable[[Peer], object]) -> None:
        self._callbacks.append(callback)

    def hang_up(self) -> None:
        self.closed = True
        for callback in self._callbacks:
            callback(self)


def of_broker(
    name: str = "a",
    broker_id: int = 0,
    *,
    port: int = 10911,
    edition: int = 1,
    acting: bool | None = None,
    **topics: int,
) -> RegisterBroker:
    """A broker's registration; each keyword is a topic and its number of queues."""
    table = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        for topic, count in (topics or {"orders": 4, "TBW102": 8}).items()
    }
    version = DataVersion(state_version=edition, counter=edition)
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicsOfBroker(
            topic_config_table=table, data_version=version
        )
    )
    return RegisterBroker(
        broker_name=name,
        broker_id=broker_id,
        broker_addr=f"10.0.0.{broker_id}:{port}",
        cluster_name="c",
        ha_server_addr=f"10.0.0.{broker_id}:10912",
        enable_acting_master=acting,
        body=codec.dumps(body),
    )


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def state(clock: MovedClock) -> NameServerState:
    return NameServerState(
        config=NameServerConfig(),
        clock=clock,
        brokers=LiveBrokers(),
        kv_store=KVStore(Path("/"), MemoryFiles()),
    )


@pytest.fixture
def peer() -> FakePeer:
    return FakePeer()
