"""A Java push consumer and ours in one group on our brokers: each genuine strategy in turn."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.java_client import JavaClient, until
from roquet.client import ConsumerConfig, Producer, PushConsumer, ReceivedMessage
from roquet.client.config import ConsumeFrom
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import (
    BROKER_DECIDED,
    STRATEGIES,
    Strategy,
    allocate,
    from_config,
    machine_room,
    nearby,
)
from roquet.testing.cluster import Cluster, cluster

pytestmark = pytest.mark.interop

BROKERS = "east@broker-a", "west@broker-b"
QUEUES = [(broker, number) for broker in BROKERS for number in range(4)]
ROUND = 80
"""Messages: ten for each queue."""
JAVA_SHARE, OUR_SHARE = QUEUES[::2], QUEUES[1::2]
"""For CONFIG, where each member is told its own."""


class BalanceStrategy(NamedTuple):
    """One strategy, as the setting of each side."""

    java: str
    ours: Callable[[str], str | Strategy]
    """For a topic."""
    leaves_unowned: bool = False
    """Whether the queues of a member that left are nobody's."""


def room_of_broker(name: str) -> str:
    return name.split("@")[0]


def room_of_member(client_id: str) -> str:
    return client_id.split("@")[1].split("-")[0]


def queues_of(topic: str, places: list[tuple[str, int]]) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker, number in places]


def by_name(name: str) -> BalanceStrategy:
    return BalanceStrategy(name, lambda _topic: name)


def in_rooms(inner: str) -> BalanceStrategy:
    rule = nearby(STRATEGIES[inner], room_of_broker, room_of_member)
    return BalanceStrategy(f"MACHINE_ROOM_NEARBY-{inner}", lambda _topic: rule)


WAYS: Mapping[str, BalanceStrategy] = {
    "AVG": by_name("AVG"),
    "AVG_BY_CIRCLE": by_name("AVG_BY_CIRCLE"),
    "CONSISTENT_HASH": by_name("CONSISTENT_HASH"),
    "CONFIG": BalanceStrategy(
        "CONFIG:" + ",".join(f"{broker}/{number}" for broker, number in JAVA_SHARE),
        lambda topic: from_config(queues_of(topic, OUR_SHARE)),
        leaves_unowned=True,
    ),
    "MACHINE_ROOM": BalanceStrategy(
        "MACHINE_ROOM:east,west", lambda _topic: machine_room({"east", "west"})
    ),
    "MACHINE_ROOM_NEARBY-AVG": in_rooms("AVG"),
    "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE": in_rooms("AVG_BY_CIRCLE"),
}


class RoquetMember:
    """Our member of the group, and what it has handled."""

    def __init__(self, consumer: PushConsumer) -> None:
        self.consumer = consumer
        self.bodies: list[str] = []

    @property
    def owns(self) -> set[tuple[str, int]]:
        return {(queue.broker_name, queue.queue_id) for queue in self.consumer.assignment()}

    async def handle(self, message: ReceivedMessage) -> None:
        self.bodies.append(message.body.decode())


@asynccontextmanager
async def two_rooms(folder: Path) -> AsyncIterator[Cluster]:
    """A broker in each of two rooms."""
    async with cluster(brokers=0, store=folder, default_queue_count=4) as running:
        for name in BROKERS:
            await running.add_broker(broker_name=name)
        yield running


@asynccontextmanager
async def our_member(
    namesrv: str, group: str, topic: str, strategy: str | Strategy
) -> AsyncIterator[RoquetMember]:
    """A consumer at work."""
    config = ConsumerConfig(
        consume_from=ConsumeFrom.FIRST,
        strategy=strategy,
        client_ip="127.0.0.1",
        instance=f"west-ours-{group}",
    )
    async with PushConsumer(namesrv, group=group, topic=topic, config=config) as consumer:
        member = RoquetMember(consumer)
        running = asyncio.create_task(consumer.run(member.handle))
        yield member
        consumer.stop()
        await running


async def send(namesrv: str, topic: str, first: int) -> set[str]:
    """One round of messages to all queues."""
    bodies = {f"{topic}-{number}" for number in range(first, first + ROUND)}
    async with Producer(namesrv, group="maker") as producer:
        await asyncio.gather(*(producer.send(Message(topic, body.encode())) for body in bodies))
    return bodies


def shares_of(name: str, topic: str, java_id: str, our_id: str) -> tuple[set[tuple[str, int]], ...]:
    """The queues of the Java member and ours, as the rule says."""
    if name == "CONFIG":
        return set(JAVA_SHARE), set(OUR_SHARE)
    strategy = WAYS[name].ours(topic)
    rule = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
    shares = allocate(queues_of(topic, QUEUES), [java_id, our_id], rule)
    theirs, mine = ({(q.broker_name, q.queue_id) for q in shares[one]} for one in (java_id, our_id))
    return theirs, mine


@pytest.mark.parametrize("name", WAYS)
async def test_each_queue_has_one_owner_and_all_is_consumed(
    java_member: JavaClient, tmp_path: Path, name: str
) -> None:
    way, topic, group, java = WAYS[name], f"Shared-{name}", f"group-{name}", f"east-java-{name}"
    strategy = way.ours(topic)
    async with two_rooms(tmp_path) as running:
        namesrv = running.namesrv_addr
        wanted = await send(namesrv, topic, 0)
        async with our_member(namesrv, group, topic, strategy) as ours:
            java_id = await java_member.join(namesrv, group, topic, java, way.java)
            theirs, mine = shares_of(name, topic, java_id, ours.consumer.client_id)
            assert theirs | mine == set(QUEUES)
            assert not theirs & mine

            async def is_settled() -> bool:
                return (await java_member.owns(java), ours.owns) == (theirs, mine)

            await until(is_settled)
            wanted |= await send(namesrv, topic, ROUND)

            def all_is_consumed() -> bool:
                return wanted <= {*java_member.bodies(java), *ours.bodies}

            await until(all_is_consumed)
            assert bool(theirs) == bool(java_member.bodies(java))
            assert bool(mine) == bool(ours.bodies)

            await java_member.leave(java)
            if way.leaves_unowned:
                await asyncio.sleep(0.5)
                assert ours.owns == mine
                return
            await until(lambda: ours.owns == set(QUEUES))
            late = await send(namesrv, topic, 2 * ROUND)
            await until(lambda: late <= set(ours.bodies))


@pytest.mark.parametrize(
    "name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", *sorted(BROKER_DECIDED)]
)
async def test_java_may_leave_the_decision_to_our_broker(
    java_member: JavaClient, tmp_path: Path, name: str
) -> None:
    topic, group, java = f"Asked-{name}", f"asking-{name}", f"east-asking-{name}"
    async with cluster(store=tmp_path) as running:
        namesrv = running.namesrv_addr
        wanted = await send(namesrv, topic, 0)
        places = {(running.brokers[0].config.broker_name, number) for number in range(4)}
        async with our_member(namesrv, group, topic, name) as ours:
            await java_member.join(namesrv, group, topic, java, name, mode="asking")

            async def is_settled() -> bool:
                theirs, mine = await java_member.owns(java), ours.owns
                return bool(theirs and mine) and theirs | mine == places and not theirs & mine

            await until(is_settled)
            wanted |= await send(namesrv, topic, ROUND)
            await until(lambda: wanted <= {*java_member.bodies(java), *ours.bodies})
            assert java_member.bodies(java)
            await java_member.leave(java)
            await until(lambda: ours.owns == places)
            late = await send(namesrv, topic, 2 * ROUND)
            await until(lambda: late <= set(ours.bodies))


async def test_queues_change_hands_with_java_and_nothing_is_handled_twice(
    java_member: JavaClient, tmp_path: Path
) -> None:
    topic, group, java, sent = "Hands", "changing-hands", "east-stays", set[str]()

    async def go_on() -> None:
        while True:
            sent.update(await send(namesrv, topic, len(sent)))
            await asyncio.sleep(0.05)

    async with two_rooms(tmp_path) as running:
        namesrv = running.namesrv_addr
        sending = asyncio.create_task(go_on())
        async with our_member(namesrv, group, topic, "AVG") as ours:
            await until(lambda: len(ours.bodies) > ROUND)
            await java_member.join(namesrv, group, topic, java)
            await until(lambda: len(java_member.bodies(java)) > ROUND)

        async def java_has_all() -> bool:
            return await java_member.owns(java) == set(QUEUES)

        await until(java_has_all)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await until(lambda: sent <= {*java_member.bodies(java), *ours.bodies})
        await java_member.leave(java)
    times = Counter([*java_member.bodies(java), *ours.bodies])
    assert [body for body, count in times.items() if count > 1] == []
