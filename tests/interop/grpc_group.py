"""What tests of RocketMQ 5's official clients stand on: topics, groups, clients by a proxy."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harness import grpc_clients
from harness.grpc_clients import GrpcClient
from harness.java_client import until
from harness.ports import HOST, free_port
from harness.processes import ROQUET
from harness.servers import Server
from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client import PullConsumer
from roquet.proxy.config import ProxyConfig
from roquet.proxy.server import ProxyServer
from roquet.testing.cluster import Cluster, cluster

LISTENING = ("python", "node", "java", "go")
"""Clients with a push consumer."""

TYPES = {"NORM": None, "FIFOT": "FIFO", "DELAYT": "DELAY", "TXT": "TRANSACTION"}

CHECKING = {"transaction_timeout": 1_000, "transaction_check_interval": 2_000}


def installed(names: Sequence[str] = tuple(grpc_clients.CLIENTS)) -> list[str]:
    """The clients that can run here, installed; skips where none can."""
    found, lacks = [], []
    for name in names:
        try:
            grpc_clients.command_of(name, "")
            found.append(name)
        except grpc_clients.NotInstalled as error:
            lacks.append(str(error))
    if not found:
        pytest.skip("; ".join(lacks))
    return found


@asynccontextmanager
async def proxied(**settings: object) -> AsyncIterator[tuple[Cluster, str]]:
    """A cluster with a topic of each type, and the address of a proxy in front of it."""
    async with cluster(recall_message=True, **CHECKING, **settings) as running:
        await add_topics(running.namesrv_addr, TYPES)
        config = ProxyConfig(port=0, host=HOST)
        async with ProxyServer(running.namesrv_addr, config) as proxy:
            yield running, proxy.address


def proxy_process(folder: Path, namesrv: str) -> Server:
    """`roquet proxy` as a process."""
    port = free_port()
    command = [*ROQUET, "proxy", "--namesrv", namesrv, "--host", HOST, "--port", str(port)]
    return Server(command, folder, "proxy", port)


async def add_topics(namesrv: str, types: Mapping[str, str | None], queues: int = 4) -> None:
    """Make topics, each for messages of a type; of the type NORMAL where that is None."""
    async with AdminClient(namesrv) as admin:
        for topic, kind in types.items():
            attributes = None if kind is None else f"+message.type={kind}"
            settings = TopicSettings(read_queues=queues, write_queues=queues, attributes=attributes)
            await topics.create(admin, topic, settings)


async def add_group(namesrv: str, group: str, topic: str, **settings: object) -> str:
    """Make a group that begins with a topic's first message, whenever its consumers come."""
    async with AdminClient(namesrv) as admin:
        await groups.create(admin, group, settings)
    async with PullConsumer(namesrv, group=group) as consumer:
        for queue in await consumer.queues(topic):
            await consumer.commit(queue, 0)
    return group


@asynccontextmanager
async def clients(
    names: Sequence[str], address: str, home: Path, *, tls: bool = False
) -> AsyncIterator[list[GrpcClient]]:
    """Clients of these kinds, which are installed."""
    async with AsyncExitStack() as stack:
        started = []
        for number, name in enumerate(names):
            folder = home / f"{name}-{number}"
            folder.mkdir(parents=True)
            command = grpc_clients.command_of(name, address, tls=tls)
            client = grpc_clients.running(name, command, folder)
            started.append(await stack.enter_async_context(client))
        yield started


async def consume(
    client: GrpcClient, group: str, topic: str, count: int, seconds: float = 45
) -> Callable[[], list[str]]:
    """What a group's consumer gets: a push consumer where the client has one, else receives.

    Returns a function that gives the bodies so far; they come on with a push consumer.
    """
    if client.name in LISTENING:
        await client.push(group, topic)
        await until(lambda: len(client.bodies(group)) >= count, seconds)
        return lambda: client.bodies(group)
    found: list[str] = []
    async with asyncio.timeout(seconds):
        while len(found) < count:
            found += await client.receive(group, topic)
    return lambda: found


async def dead_letters(namesrv: str, group: str) -> list[str]:
    """Bodies of a group's dead letters."""
    async with PullConsumer(namesrv, group="reader") as reader:
        return [
            message.body.decode()
            for queue in await reader.queues(f"%DLQ%{group}")
            for message in (await reader.pull(queue, 0)).messages
        ]
