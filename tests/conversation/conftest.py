from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.net.channel import Channel
from roquet.net.router import Router
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster

SMALL = {
    "host": "127.0.0.1",
    "port": 0,
    "log_file_size": 1 << 20,
    "queue_file_entries": 300,
    "index_slots": 500,
    "index_entries": 2_000,
}
"""Of files: a test must not fill a disk."""

SERVER_HOST = "10.0.0.1"


def remote_cluster(**settings: Any) -> Cluster:
    """A cluster in virtual time on a host of its own: clients on other hosts can be killed."""
    clock = this_loop().clock
    return cluster(clock=clock, host=SERVER_HOST, advertise=SERVER_HOST, **settings)


Connect = Callable[..., Awaitable[Channel]]


@pytest.fixture
def small() -> dict[str, Any]:
    return dict(SMALL)


@pytest.fixture
async def server(small: dict[str, Any]) -> AsyncIterator[BrokerServer]:
    async with BrokerServer(BrokerConfig(**small)) as server:
        yield server


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes raw channels to a broker."""
    channels: list[Channel] = []

    async def to(server: BrokerServer, router: Router | None = None) -> Channel:
        channel = await Channel.connect("127.0.0.1", server.port, router=router)
        channels.append(channel)
        return channel

    yield to
    for channel in channels:
        await channel.close()


@pytest.fixture
async def channel(server: BrokerServer, connect: Connect) -> Channel:
    return await connect(server)
