import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any, Self, TypeVar

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client import (
    ClientConfig,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from roquet.client.consumer import Consumer
from roquet.client.reading.handler_pool import AsyncMessageHandler
from roquet.client.reading.message import M
from roquet.model.subscription import ALL
from roquet.model.topic import READ_WRITE
from roquet.net.channel import Channel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.router import Router
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.call import Call
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.records.record import Record, decode_many
from simulation.hosts import Hosts

Config = TypeVar("Config", bound=ClientConfig)

SMALL: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "log_file_size": 1 << 20,
    "queue_file_entries": 300,
    "index_slots": 500,
    "index_entries": 2_000,
}
"""Of files: a test must not fill a disk."""

SERVER_HOST = "10.0.0.1"


def virtual_cluster(**settings: Any) -> Cluster:
    """A cluster in virtual time."""
    return cluster(clock=this_loop().clock, **settings)


def remote_cluster(**settings: Any) -> Cluster:
    """A cluster in virtual time on a host of its own: clients on other hosts can be killed."""
    return virtual_cluster(host=SERVER_HOST, advertise=SERVER_HOST, **settings)


def config_of(kind: type[Config], **settings: Any) -> Config:
    """Settings in virtual time that repeat; consumers start at the first message."""
    first = {"consume_from": ConsumeFrom.FIRST} if issubclass(kind, ConsumerConfig) else {}
    given = {"rng": Random(3), "client_ip": "127.0.0.1", **first, **settings}
    return kind(clock=this_loop().clock, **given)


def producer_of(running: Cluster, **settings: Any) -> Producer:
    return Producer(running.namesrv_addr, config=config_of(ProducerConfig, **settings))


def consumer_of(
    running: Cluster, *, tags: str = ALL, sql: str | None = None, **settings: Any
) -> PushConsumer:
    """A consumer of topic `t` in group `g`."""
    config = config_of(ConsumerConfig, **settings)
    return PushConsumer(
        running.namesrv_addr, group="g", topic="t", tags=tags, sql=sql, config=config
    )


def puller_of(running: Cluster, group: str = "g", **settings: Any) -> PullConsumer:
    config = config_of(ConsumerConfig, **settings)
    return PullConsumer(running.namesrv_addr, group=group, config=config)


async def send(running: Cluster, *bodies: bytes, **fields: Any) -> None:
    """Send messages to topic `t`, by a producer of their own."""
    async with producer_of(running) as producer:
        await producer.send_many([Message("t", body, **fields) for body in bodies])


async def next_of(consumer: Consumer[M], timeout_ms: int = 60_000) -> M:
    """The next message, which has to come."""
    message = await consumer.next(timeout_ms)
    assert isinstance(message, ReceivedMessage)
    return message


@asynccontextmanager
async def handling(consumer: Consumer[M], handler: AsyncMessageHandler[M]) -> AsyncIterator[None]:
    """Run a handler until the end of the block, and until its last call has ended."""
    task = asyncio.create_task(consumer.run(handler))
    yield
    consumer.stop()
    await task


class Member:
    """A consumer that records what it handles; can be killed where it has a host of its own."""

    host_numbers = count(2)

    def __init__(
        self, running: Cluster, pause_s: float = 0, *, hosts: Hosts | None = None, **settings: Any
    ) -> None:
        self.hosts, self.host = hosts, f"10.0.0.{next(self.host_numbers)}"
        self.consumer = consumer_of(running, **settings)
        self.pause_s = pause_s
        self.seen: list[bytes] = []

    async def start(self) -> Self:
        if self.hosts is None:
            await self.consumer.start()
            self.task = asyncio.create_task(self.consumer.run(self.handle))
        else:
            await self.hosts.run(self.host, self.consumer.start())
            self.task = self.hosts.run(self.host, self.consumer.run(self.handle))
        return self

    async def handle(self, message: ReceivedMessage) -> None:
        await asyncio.sleep(self.pause_s)
        self.seen.append(message.body)

    async def kill(self) -> None:
        """As SIGKILL does: nothing is saved, nobody is told, the sockets close."""
        assert self.hosts is not None
        self.hosts.kill(self.host)
        await self.hosts.wait_ended(self.host)

    async def close(self) -> None:
        await self.consumer.close()
        await self.task

    @property
    def count(self) -> int:
        return len(self.consumer.assignment())


def broker_of(**settings: Any) -> BrokerServer:
    """A broker of small files."""
    files, clock = settings.pop("files", None), settings.pop("clock", SYSTEM_CLOCK)
    return BrokerServer(BrokerConfig(**{**SMALL, **settings}), clock, files=files)


def started(**settings: Any) -> BrokerServer:
    """A broker of small files in virtual time."""
    return broker_of(clock=this_loop().clock, **settings)


async def ask(server: BrokerServer, call: Call[Any], timeout_ms: int = 60_000) -> Any:
    """The reply to a call over a connection of its own: a silent one is closed after hours."""
    channel = await Channel.connect("127.0.0.1", server.port)
    try:
        return await channel.call(call, timeout_ms=timeout_ms)
    finally:
        await channel.close()


def held(server: BrokerServer, topic: str = "orders", queue_id: int = 0) -> Sequence[Record]:
    """The records of a queue."""
    found = server.broker.log.store.read(topic, queue_id, 0, count_max=10_000, bytes_max=1 << 30)
    return [record for part in found.parts for record in decode_many(part)]


Connect = Callable[..., Awaitable[Channel]]


@pytest.fixture
def small() -> dict[str, Any]:
    return dict(SMALL)


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    async with BrokerServer(BrokerConfig(**SMALL)) as server:
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


def send_of(body: bytes, queue_id: int = 0, **fields: Any) -> Send:
    """A send to topic `flights`."""
    given = {"topic": "flights", "born_timestamp": 1_700_000_000_000, **fields}
    return Send(producer_group="pg", queue_id=queue_id, body=body, **given)


async def put_topic(running: Cluster, *queues: int, topic: str = "t") -> None:
    """A topic with so many queues on each of the last brokers, made or changed."""
    for broker, number in zip(running.brokers[-len(queues) :], queues, strict=True):
        call = CreateTopic(
            topic=topic, read_queue_nums=number, write_queue_nums=number, perm=READ_WRITE
        )
        await ask(broker, call)
    await asyncio.sleep(1)  # the name server is told of it beside


def pull_of(offset: int, queue_id: int = 0, **fields: Any) -> Pull:
    """A pull from topic `flights`, which waits for a message."""
    given = {
        "consumer_group": "billing", "topic": "flights", "max_msg_nums": 32, "sys_flag": 6,
        "commit_offset": 0, "suspend_timeout_millis": 15_000, "subscription": "*",
        "sub_version": 0, **fields,
    }  # fmt: skip
    return Pull(queue_id=queue_id, queue_offset=offset, **given)
