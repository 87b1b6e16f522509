"""An operator's connection to a group of brokers with a controller, in virtual time."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.conversation.failover_group import CLIENT, NAMESRV, Group

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig

T = TypeVar("T")


async def operate(running: Group, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Do an operator's work, on a machine of its own."""

    async def connected() -> T:
        config = ClientConfig(clock=running.loop.clock)
        async with AdminClient(f"{NAMESRV}:9876", config) as admin:
            return await work(admin)

    return await running.hosts.run(CLIENT, connected())


def address(number: int) -> str:
    return f"{Group.host(number)}:10911"
