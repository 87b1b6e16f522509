"""What tests of RocketMQ 5's official clients stand on: topics, groups, clients by a proxy."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

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

CHECKING: dict[str, Any] = {"transaction_timeout": 1_000, "transaction_check_interval": 2_000}


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
async def proxied() -> AsyncIterator[tuple[Cluster, str]]:
    """A cluster with a topic of each type, and the address of a proxy in front of it."""
    async with cluster(recall_message=True, **CHECKING) as running:
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
        try:
            await until(lambda: len(client.bodies(group)) >= count, seconds)
        except TimeoutError:
            raise AssertionError(f"{topic}: only {client.bodies(group)}") from None
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


async def check_each_type(namesrv: str, client: GrpcClient) -> None:
    """Send messages of each type and receive them, in groups that are the client's own."""
    own = client.name
    expected = {
        "NORM": ["plain", "tagged"],
        "FIFOT": [f"step {number}" for number in range(5)],
        "DELAYT": ["delayed"],
        "TXT": ["committed", "nothing"],
    }
    for topic in expected:
        is_ordered = topic == "FIFOT"
        await add_group(namesrv, f"{own}-{topic}", topic, consume_message_orderly=is_ordered)
    await add_group(namesrv, f"{own}-simple", "NORM")
    time, client.checked = asyncio.get_running_loop().time, []
    began_s = time()
    await send_each_type(client)
    for topic, bodies in expected.items():
        got = await consume(client, f"{own}-{topic}", topic, len(bodies))
        found = got() if topic == "FIFOT" else sorted(got())
        assert found == bodies, (topic, found)
        if topic == "DELAYT":  # the Rust client's times are whole seconds
            assert time() - began_s >= 2
    assert client.checked == ["nothing"]
    assert await client.receive(f"{own}-simple", "NORM", tag="a") == ["tagged"]


async def send_each_type(client: GrpcClient) -> None:
    """Messages of each type; one is recalled, and one of the transactions is left open."""
    await client.send("NORM", "tagged", value="a")
    await client.send("NORM", "plain")
    for number in range(5):
        await client.send("FIFOT", f"step {number}", "FIFO", "one")
    if client.name in LISTENING:  # the Rust client recalls nothing
        handle = await client.send("DELAYT", "recalled", "DELAY", "3")
        await client.ask("recall", "DELAYT", handle)
    await client.send("DELAYT", "delayed", "DELAY", "3")
    for end, body in (("commit", "committed"), ("rollback", "undone"), ("nothing", "nothing")):
        await client.ask("transact", "TXT", end, body)


async def keep_sending(it: GrpcClient, topic: str, stop: asyncio.Event) -> set[str]:
    """Send until it is over; returns what was acknowledged."""
    acknowledged = set()
    number = 0
    while not stop.is_set():
        number += 1
        with suppress(RuntimeError, TimeoutError):
            await it.send(topic, f"body {number}")
            acknowledged.add(f"body {number}")
        await asyncio.sleep(0.05)
    return acknowledged


async def still_missing(
    it: GrpcClient, group: str, topic: str, sent: set[str], seconds: float = 90
) -> set[str]:
    """What has not come to a client's consumer after that time at most."""
    read = set[str]()

    async def is_complete() -> bool:
        if it.name not in LISTENING:
            read.update(await it.receive(group, topic))
        return not sent - read - set(it.bodies(group))

    with suppress(TimeoutError):
        await until(is_complete, seconds)
    return sent - read - set(it.bodies(group))
