from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster


class Operated:
    """Two brokers, and an operator who reaches them."""

    def __init__(self, running: Cluster, admin: AdminClient) -> None:
        self.running = running
        self.admin = admin
        self.namesrv = running.namesrv_addr
        self.clock = this_loop().clock

    async def settle(self) -> None:
        """Until the name server has heard of what is new."""
        await self.clock.sleep(1_000)


@asynccontextmanager
async def operated(**settings: Any) -> AsyncIterator[Operated]:
    clock = this_loop().clock
    async with (
        cluster(brokers=2, clock=clock, auto_create_topic=False, **settings) as running,
        AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin,
    ):
        yield Operated(running, admin)


@pytest.fixture
def operating() -> Iterator[Any]:
    """`async with operating() as it:` in virtual time."""
    return operated  # type: ignore[return-value]
