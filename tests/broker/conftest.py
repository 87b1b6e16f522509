import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers import HANDLERS
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import CallRefused
from roquet.model.flags import PullFlag
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription
from roquet.model.topic import TopicConfig
from roquet.net.router import Peer
from roquet.wire.call import Call, Reply
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.pop import Pop
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.fastjson import codec

V = TypeVar("V")

ReplyTo = Callable[[Any, int], Awaitable[Reply]]
"""Answers a call of the broker; the number is its timeout in ms."""


def config_of(directory: Path | None = None, **settings: Any) -> BrokerConfig:
    small = {"log_file_size": 1 << 20, "queue_file_entries": 1000, "index_slots": 100}
    arguments = {"host": "127.0.0.1", "port": 0, "index_entries": 1000, **small, **settings}
    return BrokerConfig(store_dir=directory, **arguments)


class FakePeer:
    """A connection without a socket: records the one-way calls that it is sent."""

    language = 0
    version = 0

    def __init__(self, host_bytes: bytes = b"\x0a\x00\x00\x07\x00\x00\x13\x88") -> None:
        self.address = "10.0.0.7:5000"
        self.host_bytes = host_bytes
        self.told: list[Call[Any]] = []
        self.closed = False
        self.is_full = False
        self.reply_to: ReplyTo | None = None
        self._callbacks: list[Callable[[Peer], object]] = []

    async def drain(self) -> None:
        """Nothing waits to be read here."""

    def oneway(self, call: Call[Any]) -> None:
        self.told.append(call)

    async def call(self, call: Call[Any], timeout_ms: int = 3_000) -> Any:
        """The reply of `reply_to`, which a test sets."""
        if self.reply_to is None:
            raise NotImplementedError
        return await self.reply_to(call, timeout_ms)

    def on_close(self, callback: Callable[[Peer], object]) -> None:
        self._callbacks.append(callback)

    def hang_up(self) -> None:
        self.closed = True
        for callback in self._callbacks:
            callback(self)


@contextmanager
def refuses(code: int, match: str | None = None) -> Iterator[pytest.ExceptionInfo[CallRefused]]:
    """Expect that a request is refused with a code."""
    with pytest.raises(CallRefused, match=match) as refused:
        yield refused
    assert refused.value.code == code


def not_none(value: V | None) -> V:
    """A value that has to be there."""
    assert value is not None
    return value


def failing(error: Exception) -> Callable[..., Any]:
    """A function that always raises an error."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def make_send(body: bytes = b"body", **fields: Any) -> Send:
    """A send request; `fields` are its fields."""
    arguments = {
        "producer_group": "pg",
        "topic": "orders",
        "queue_id": 0,
        "born_timestamp": 1_700_000_000_000,
        **fields,
    }
    return Send(body=body, **arguments)


def make_pull(offset: int = 0, *, kind: type[Pull] = Pull, **fields: Any) -> Pull:
    """A pull of all messages of a queue from an offset on; `fields` are its fields."""
    arguments = {
        "consumer_group": "billing",
        "topic": "orders",
        "queue_id": 0,
        "max_msg_nums": 32,
        "sys_flag": PullFlag.SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "subscription": "*",
        "sub_version": 0,
        **fields,
    }
    return kind(queue_offset=offset, **arguments)


def make_pop(**fields: Any) -> Pop:
    """A pop of any queue, born now; `fields` are its fields."""
    arguments = {
        "consumer_group": "billing",
        "topic": "orders",
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": 60_000,
        "poll_time": 0,
        "born_time": 0,
        "init_mode": 0,
        **fields,
    }
    return Pop(**arguments)


def heartbeat_of(
    client_id: str, *subscriptions: Subscription, group: str = "billing", **fields: Any
) -> HeartbeatData:
    """The heartbeat of a member; `fields` are those of its group."""
    data = ConsumerData(group_name=group, subscription_data_set=list(subscriptions), **fields)
    return HeartbeatData(client_id=client_id, consumer_data_set=[data])


class LocalBroker(Broker, frozen=True, kw_only=True):
    """A running broker with a client that needs no socket."""

    peer: FakePeer

    def ask(self, call: Call[Any], peer: FakePeer | None = None) -> Any:
        """The answer to the client, or to another one: a reply, or what becomes one."""
        return self.bind(HANDLERS[type(call)])(call, peer or self.peer)

    def beat(self, data: HeartbeatData, peer: FakePeer | None = None) -> Any:
        """The reply to a heartbeat."""
        return self.ask(Heartbeat(body=codec.dumps(data)), peer)

    def send(self, body: bytes = b"body", **fields: Any) -> Any:
        """The reply to a message."""
        return self.ask(make_send(body, **fields))

    def configure(self, **values: object) -> None:
        """Change settings."""
        texts = {name: str(value) for name, value in values.items()}
        self.control.settings.change(texts, self.control.clock.now_ms())

    def put_topic(self, name: str = "orders", queues: int = 16, **fields: Any) -> None:
        """Set a topic with so many queues; `fields` are its other settings."""
        queue_counts = {"read_queue_nums": queues, "write_queue_nums": queues}
        self.tables.topics.put(TopicConfig(topic_name=name, **{**queue_counts, **fields}), 0)


def local(broker: Broker, peer: FakePeer | None = None) -> LocalBroker:
    """A broker with a client of it."""
    parts = {name: getattr(broker, name) for name in Broker.__struct_fields__}
    return LocalBroker(peer=peer or FakePeer(), **parts)


NewPeer = Callable[..., FakePeer]
"""Makes a peer, of the given host."""

MakeSend = Callable[..., Send]
"""Makes a send request; keywords are its fields."""


@asynccontextmanager
async def background(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """A coroutine that runs as a task for as long as this is entered."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def peer() -> FakePeer:
    return FakePeer()


@pytest.fixture
def new_peer() -> NewPeer:
    return FakePeer


@pytest.fixture
def settings() -> dict[str, Any]:
    """What a test module may override."""
    return {}


@pytest.fixture
async def server(settings: dict[str, Any]) -> AsyncIterator[BrokerServer]:
    config = BrokerConfig(host="127.0.0.1", port=0, **settings)
    async with BrokerServer(config, rng=Random(1)) as server:  # a failing test fails again
        yield server


@pytest.fixture
async def broker(server: BrokerServer, peer: FakePeer) -> LocalBroker:
    return local(server.broker, peer)


@pytest.fixture
def message() -> MakeSend:
    return make_send
