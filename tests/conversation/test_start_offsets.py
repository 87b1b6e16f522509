"""A new group with LAST gets every message that is sent after its first member has started."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conversation.conftest import producer_of, virtual_cluster

from roquet.client import ConsumerConfig, Message
from roquet.client.consumer import Consumer
from roquet.client.pop import PopConsumer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.model.subscription import MessageModel
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster

OLD: dict[str, Any] = {"memory_share": 0.0}
"""Brokers whose queues are never young: to young ones a new group's first member comes at 0."""


def settings(**named: Any) -> ConsumerConfig:
    return ConsumerConfig(clock=this_loop().clock, client_ip="127.0.0.1", **named)


async def send(running: Cluster, name: str, count: int = 8, topic: str = "t") -> list[bytes]:
    """Send messages to all queues in turn; return their bodies."""
    bodies = [b"%s-%d" % (name.encode(), number) for number in range(count)]
    async with producer_of(running) as producer:
        for body in bodies:
            await producer.send(Message(topic, body))
    return bodies


async def resize(running: Cluster, queues: int) -> None:
    """Give the topic more queues."""
    topics = running.brokers[0].broker.tables.topics
    config = topics.get("t")
    assert config is not None
    changed = replace(config, read_queue_nums=queues, write_queue_nums=queues)
    topics.put(changed, this_loop().clock.now_ms())
    await asyncio.sleep(1)


async def bodies_of(*consumers: Consumer[Any]) -> list[bytes]:
    """Everything that members get, acknowledged."""
    got = []

    async def read(consumer: Consumer[Any]) -> None:
        while (message := await consumer.next(40_000)) is not None:
            got.append(message.body)
            await message.ack()

    await asyncio.gather(*map(read, consumers))
    return sorted(got)


@pytest.mark.parametrize("kind", ["shared", "ordered", "broadcast", "pop"])
async def test_messages_sent_right_after_the_start_of_a_new_group_reach_it(
    kind: str, tmp_path: Path
) -> None:
    async with virtual_cluster(**OLD) as running:
        await send(running, "before")
        model = MessageModel.BROADCASTING if kind == "broadcast" else MessageModel.CLUSTERING
        config = settings(ordered=kind == "ordered", message_model=model, offsets_dir=tmp_path)
        consumer_class = PopConsumer if kind == "pop" else PushConsumer
        async with consumer_class(
            running.namesrv_addr, group="g", topic="t", config=config
        ) as consumer:
            sent = await send(running, "after")
            assert await bodies_of(consumer) == sorted(sent)


async def test_messages_sent_right_after_a_subscription_reach_a_pull_consumer() -> None:
    async with virtual_cluster(**OLD) as running:
        await send(running, "before")
        await send(running, "before", topic="u")
        await asyncio.sleep(2)  # name servers learn of it
        async with PullConsumer(running.namesrv_addr, group="g", config=settings()) as consumer:
            sent = []
            for topic in ("t", "u"):
                await consumer.subscribe(topic)
                sent += await send(running, f"after {topic}", topic=topic)
            assert await bodies_of(consumer) == sorted(sent)


async def test_messages_sent_after_a_later_subscription_reach_a_running_member() -> None:
    async with virtual_cluster(**OLD) as running:
        await send(running, "before")
        async with PushConsumer(running.namesrv_addr, group="g", config=settings()) as consumer:
            await asyncio.sleep(30)
            consumer.subscribe("t")
            sent = await send(running, "after")
            assert await bodies_of(consumer) == sorted(sent)


async def test_a_topic_that_is_made_by_the_first_send_is_read_from_its_first_message() -> None:
    async with (
        virtual_cluster(**OLD) as running,
        PushConsumer(running.namesrv_addr, group="g", topic="t", config=settings()) as push,
        PopConsumer(running.namesrv_addr, group="p", topic="t", config=settings()) as pop,
    ):
        await asyncio.sleep(5)
        sent = sorted(await send(running, "first"))
        assert await bodies_of(push) == sent
        assert await bodies_of(pop) == sent


async def test_members_that_start_at_once_lose_nothing_between_them() -> None:
    async with virtual_cluster(**OLD) as running:
        await send(running, "before")
        members = [
            PushConsumer(running.namesrv_addr, group="g", topic="t", config=settings())
            for _ in range(3)
        ]
        sent: list[bytes] = []

        async def start_and_send(member: PushConsumer, name: str) -> None:
            await member.start()
            sent.extend(await send(running, name))

        await asyncio.gather(
            *(start_and_send(member, f"after-{n}") for n, member in enumerate(members))
        )
        try:
            assert sorted(set(await bodies_of(*members))) == sorted(sent)
        finally:
            await asyncio.gather(*(member.close() for member in members))


async def test_what_was_sent_while_the_first_member_was_away_reaches_the_next_one() -> None:
    """Its place is committed in all queues when it has started, however soon it ends."""
    async with virtual_cluster(**OLD) as running:
        await send(running, "before")
        async with PushConsumer(running.namesrv_addr, group="g", topic="t", config=settings()):
            pass
        sent = await send(running, "meanwhile")
        async with PushConsumer(
            running.namesrv_addr, group="g", topic="t", config=settings()
        ) as consumer:
            assert await bodies_of(consumer) == sorted(sent)


@pytest.mark.parametrize("is_broadcast", [False, True])
async def test_queues_that_a_topic_gets_later_are_read_from_their_first_message(
    is_broadcast: bool, tmp_path: Path
) -> None:
    model = MessageModel.BROADCASTING if is_broadcast else MessageModel.CLUSTERING
    async with virtual_cluster(**OLD) as running:
        await send(running, "before")
        config = settings(message_model=model, offsets_dir=tmp_path)
        async with PushConsumer(
            running.namesrv_addr, group="g", topic="t", config=config
        ) as consumer:
            await asyncio.sleep(5)
            await resize(running, 8)
            sent = await send(running, "after")
            assert await bodies_of(consumer) == sorted(sent)
        await resize(running, 16)
        sent = await send(running, "away", 16)
        async with PushConsumer(
            running.namesrv_addr, group="g", topic="t", config=config
        ) as consumer:
            assert await bodies_of(consumer) == sorted(sent)
