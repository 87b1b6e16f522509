import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.settings.config import BrokerConfig
from roquet.net.router import Peer
from roquet.wire.call import Call, Reply
from roquet.wire.calls.send import Send

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


def config_of(directory: Path | None = None, **settings: Any) -> BrokerConfig:
    small = {"log_file_size": 1 << 20, "queue_file_entries": 1000, "index_slots": 100}
    arguments = {"host": "127.0.0.1", "port": 0, "index_entries": 1000, **small, **settings}
    return BrokerConfig(store_dir=directory, **arguments)


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
async def broker(server: BrokerServer) -> Broker:
    return server.broker


@pytest.fixture
def message() -> MakeSend:
    def make(body: bytes = b"body", **fields: Any) -> Send:
        arguments = {
            "producer_group": "pg",
            "topic": "orders",
            "queue_id": 0,
            "born_timestamp": 1_700_000_000_000,
            **fields,
        }
        return Send(body=body, **arguments)

    return make
