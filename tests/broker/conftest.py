from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers import HANDLERS
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.wire.call import Call, Reply
from roquet.wire.calls.send import Send

V = TypeVar("V")

ReplyTo = Callable[[Any, int], Awaitable[Reply]]
"""Answers a call of the broker; the number is its timeout in ms."""


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


class LocalBroker(Broker, frozen=True, kw_only=True):
    """A running broker with a client that needs no socket."""

    peer: FakePeer

    def ask(self, call: Call[Any], peer: FakePeer | None = None) -> Any:
        """The answer to the client, or to another one: a reply, or what becomes one."""
        return self.bind(HANDLERS[type(call)])(call, peer or self.peer)

    def send(self, body: bytes = b"body", **fields: Any) -> Any:
        """The reply to a message."""
        return self.ask(make_send(body, **fields))


def local(broker: Broker, peer: FakePeer | None = None) -> LocalBroker:
    """A broker with a client of it."""
    parts = {name: getattr(broker, name) for name in Broker.__struct_fields__}
    return LocalBroker(peer=peer or FakePeer(), **parts)


NewPeer = Callable[..., FakePeer]
"""Makes a peer, of the given host."""

MakeSend = Callable[..., Send]
"""Makes a send request; keywords are its fields."""


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
    async with BrokerServer(config) as server:
        yield server


@pytest.fixture
async def broker(server: BrokerServer, peer: FakePeer) -> LocalBroker:
    return local(server.broker, peer)


@pytest.fixture
def message() -> MakeSend:
    return make_send
