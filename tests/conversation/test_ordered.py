"""Ordered consumption: one message of a queue at a time, whoever comes, goes or dies."""

import asyncio
from collections import defaultdict
from random import Random
from typing import Any

from tests.conversation.conftest import Member, producer_of, remote_cluster, virtual_cluster

from roquet.client import ConsumerConfig, Message, PullConsumer, ReceivedMessage
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from simulation.hosts import Hosts


class OrderedMember(Member):
    """An ordered consumer that records keys and numbers, and fails as often as a test says."""

    def __init__(self, running: Cluster, seen: list[tuple[str, int]], **settings: Any) -> None:
        super().__init__(running, ordered=True, **settings)
        self.handled = seen
        self.rng = Random(7)
        self.fails = 0.0

    async def handle(self, message: ReceivedMessage) -> None:
        await asyncio.sleep(self.rng.random() / 20)
        if self.rng.random() < self.fails:
            raise ValueError("not now")
        key = message.order_key or ""
        self.handled.append((key, int(message.body)))


async def send(running: Cluster, count: int, keys: int = 6) -> None:
    async with producer_of(running) as producer:
        for n in range(count):
            await producer.send(Message("t", b"%d" % n, order_key=f"k{n % keys}"))


def numbers(seen: list[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, number in seen:
        found[key].append(number)
    return found


async def test_members_that_come_and_go_keep_the_order_and_handle_nothing_twice() -> None:
    async with virtual_cluster(brokers=2) as running:
        await send(running, 400)
        seen: list[tuple[str, int]] = []
        members = [await OrderedMember(running, seen).start()]
        for _ in range(3):
            await asyncio.sleep(1.5)
            members.append(await OrderedMember(running, seen).start())
        for _ in range(2):
            await asyncio.sleep(1.5)
            await members.pop(0).close()
        await asyncio.sleep(60)
        for member in members:
            await member.close()
        found = numbers(seen)
        assert sum(map(len, found.values())) == 400
        assert all(some == sorted(some) for some in found.values())


async def test_a_failing_handler_holds_back_what_comes_after() -> None:
    async with virtual_cluster() as running:
        await send(running, 60)
        seen: list[tuple[str, int]] = []
        member = OrderedMember(running, seen, ordered_pause_ms=100)
        member.fails = 0.3
        await member.start()
        await asyncio.sleep(60)
        await member.close()
        found = numbers(seen)
        assert sum(map(len, found.values())) == 60
        assert all(some == sorted(some) for some in found.values())


async def test_a_killed_members_queues_flow_again_soon() -> None:
    hosts = Hosts(this_loop())
    async with remote_cluster() as running:
        await send(running, 100)
        seen: list[tuple[str, int]] = []
        first = await OrderedMember(running, seen, hosts=hosts).start()
        second = await OrderedMember(running, seen).start()
        await asyncio.sleep(2)
        await first.kill()
        await asyncio.sleep(3)
        assert len(second.consumer.assignment()) == 4
        await asyncio.sleep(20)
        await second.close()
        assert {number for _, number in seen} == set(range(100))


async def test_a_message_that_always_fails_gives_way_after_its_limit() -> None:
    async with virtual_cluster() as running:
        await send(running, 3, keys=1)
        seen: list[int] = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append(int(message.body))
            if message.body == b"0":
                raise ValueError("always")

        member = OrderedMember(running, [], retries_max=2)
        member.handle = handler  # type: ignore[method-assign]
        await member.start()
        await asyncio.sleep(30)
        await member.close()
        assert seen[:5] == [0, 0, 0, 1, 2]
        config = ConsumerConfig(clock=this_loop().clock, client_ip="127.0.0.1")
        async with PullConsumer(running.namesrv_addr, group="look", config=config) as look:
            (queue,) = await look.queues("%DLQ%g")
            assert [m.body for m in (await look.pull(queue, 0)).messages] == [b"0"]
