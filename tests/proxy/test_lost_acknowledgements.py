"""Histories of members behind proxies: acknowledgements are lost, proxies die, clocks are set.

Each message comes until an acknowledgement of it has reached the broker: none is lost, and none is
acknowledged by a renewal, a proxy's end or a clock.
"""

import asyncio
from random import Random
from typing import Any

import pytest
from tests.proxy.conftest import User, consumer_settings

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.client import ClientConfig, Message, Producer, ProducerConfig
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster

MESSAGES = 40
MEMBERS = 3
STEPS = 12


class History:
    """A group behind two proxies, and what became of its messages."""

    def __init__(self, running: Cluster, seed: int, group: str, topic: str) -> None:
        self.rng = Random(seed)
        self.running = running
        self.group, self.topic = group, topic
        self.proxies = [self.start_proxy(), self.start_proxy()]
        self.asked: set[bytes] = set()
        """Messages of which an acknowledgement was sent, whatever came of it."""
        self.acked: set[bytes] = set()
        self.deliveries = 0

    def start_proxy(self) -> Proxy:
        proxy = Proxy(self.running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
        proxy.start()
        return proxy

    async def send(self) -> None:
        config = ProducerConfig(clock=this_loop().clock)
        async with Producer(self.running.namesrv_addr, group="p", config=config) as producer:
            for number in range(MESSAGES):
                key = f"k{number % 5}"
                await producer.send(Message(self.topic, b"%d" % number, order_key=key))

    async def join(self, name: str, proxy: Proxy) -> User:
        user = User(proxy, name)
        async with user.telemetry(consumer_settings(self.group, self.topic)):
            return user

    async def receive(self, user: User, **fields: Any) -> list[pb.Message]:
        found = await user.receive(self.group, self.topic, timeout_s=9, **fields)
        self.deliveries += len(found)
        return found

    async def ack(self, user: User, message: pb.Message) -> None:
        self.asked.add(message.body)
        answer = await user.ack(message, group=self.group, topic=self.topic)
        if answer.status.code == pb.OK:
            self.acked.add(message.body)

    async def member(self, name: str) -> None:
        """Take messages and settle some, by any proxy, as a client whose network is bad."""
        for step in range(STEPS):
            user = await self.join(f"{name}-{step}", self.rng.choice(self.proxies))
            fields = {"auto_renew": self.rng.random() < 0.7, "count": self.rng.randint(1, 8)}
            found = await self.receive(user, **fields)
            await asyncio.sleep(self.rng.choice([0, 1, 20, 90]))
            for message in found:
                if self.rng.random() < 0.5:  # else the request is lost, or the client has crashed
                    other = User(self.rng.choice(self.proxies), user.metadata["x-mq-client-id"])
                    await self.ack(self.rng.choice([user, other]), message)

    async def faults(self) -> None:
        """End proxies without a word, start others, set the clock."""
        clock = this_loop().clock
        while True:
            await asyncio.sleep(self.rng.uniform(5, 60))
            if self.rng.random() < 0.5:
                index = self.rng.randrange(len(self.proxies))
                dead, self.proxies[index] = self.proxies[index], self.start_proxy()
                await dead.cluster.close()  # as a kill: nothing is released
            else:
                clock.shift_wall_time(self.rng.choice([-3_600_000, -30_000, 30_000, 3_600_000]))

    async def drain(self) -> None:
        """Take and settle what is left, with nothing in the way."""
        user = await self.join("last", self.start_proxy())
        for _ in range(1_000):  # a clock that was set back blocks ordered queues for hours
            if len(self.acked) == MESSAGES:
                break
            for message in await self.receive(user, auto_renew=True):
                await self.ack(user, message)
            await asyncio.sleep(10)
            user = await self.join("last", user.proxy)


@pytest.mark.parametrize("group_topic", [("g", "NORM"), ("G_fifo", "FIFOT")], ids=["any", "fifo"])
@pytest.mark.parametrize("seed", range(6))
async def test_a_message_comes_until_its_acknowledgement_has_reached_the_broker(
    running: Cluster, seed: int, group_topic: tuple[str, str]
) -> None:
    async with AdminClient(running.namesrv_addr, ClientConfig(clock=this_loop().clock)) as admin:
        await groups.create(admin, group_topic[0], {"retry_max_times": 1_000})
    history = History(running, seed, *group_topic)
    await history.send()
    faults = asyncio.create_task(history.faults())
    await asyncio.gather(*(history.member(f"m{number}") for number in range(MEMBERS)))
    faults.cancel()
    await asyncio.gather(faults, return_exceptions=True)
    await history.drain()
    assert history.acked == {b"%d" % number for number in range(MESSAGES)}
    assert history.deliveries > MESSAGES, "some came again"
