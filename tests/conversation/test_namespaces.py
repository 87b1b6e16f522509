"""Namespaces: clients of several share a cluster, and do not see each other."""

import asyncio
from random import Random
from typing import Any, TypeVar

import pytest
from tests.conversation.conftest import next_of, virtual_cluster

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    PopConsumer,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from roquet.testing.clock import this_loop

Config = TypeVar("Config", ConsumerConfig, ProducerConfig)


def of(kind: type[Config], namespace: str | None) -> Config:
    settings: dict[str, Any] = {"consume_from": ConsumeFrom.FIRST} if kind is ConsumerConfig else {}
    clock = this_loop().clock
    return kind(clock=clock, rng=Random(3), client_ip="127.0.0.1", namespace=namespace, **settings)


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_clients_of_a_namespace_see_only_its_topics_and_groups(
    kind: Any,
) -> None:
    async with virtual_cluster() as running:
        address = running.namesrv_addr
        for namespace in ("eu", "us", None):
            async with Producer(address, config=of(ProducerConfig, namespace)) as producer:
                receipt = await producer.send("t", str(namespace).encode(), tag="a")
                whole = f"{namespace}%t" if namespace else "t"
                assert receipt.queue.topic == whole
        broker = running.brokers[0].broker
        async with kind(address, group="g", topic="t", config=of(ConsumerConfig, "eu")) as consumer:
            message = await next_of(consumer, 10_000)
            assert (message.body, message.topic) == (b"eu", "t")
            await message.ack()
            assert await consumer.next(130_000) is None
            assert consumer.group == "eu%g"
            assert consumer.subscriptions == {"t": "*"}
            group = broker.tables.clients.consumers("eu%g")
            assert group is not None
            assert "eu%t" in group.subscriptions
        assert broker.tables.clients.consumers("g") is None


async def test_a_failed_message_comes_again_from_the_groups_own_retry_topic() -> None:
    async with virtual_cluster() as running:
        address = running.namesrv_addr
        seen: list[tuple[str, int]] = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append((message.topic, message.tries))
            if message.tries < 2:
                raise ValueError("again")

        async with (
            Producer(address, config=of(ProducerConfig, "eu")) as producer,
            PushConsumer(
                address, group="g", topic="t", config=of(ConsumerConfig, "eu")
            ) as consumer,
        ):
            await producer.send("t", b"x")
            work = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(60)
            consumer.stop()
            await work
        assert seen == [("t", 0), ("t", 1), ("t", 2)]
        assert running.brokers[0].broker.tables.topics.get("%RETRY%eu%g") is not None


async def test_a_pull_consumer_asks_for_its_own_topics() -> None:
    async with virtual_cluster() as running:
        address = running.namesrv_addr
        config = of(ConsumerConfig, "eu")
        async with (
            Producer(address, config=of(ProducerConfig, "eu")) as producer,
            PullConsumer(address, group="g", config=config) as consumer,
        ):
            receipt = await producer.send("t", b"x")
            assert receipt.queue in await consumer.queues("t")
            await consumer.subscribe("t")
            message = await next_of(consumer, 20_000)
            assert message.topic == "t"
            consumer.unsubscribe("t")
            assert consumer.subscriptions == {}
