"""Topic patterns of consumers: topics join and leave while they run."""

import asyncio
import re
from typing import Any

import msgspec
import pytest
from tests.conversation.conftest import config_of, virtual_cluster

from roquet.client import (
    CallRefused,
    ConsumeFrom,
    ConsumerConfig,
    PopConsumer,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    UsageError,
)
from roquet.client.connection.routes import NameServers, Routes
from roquet.client.consumer import Consumer
from roquet.client.reading.offsets import GroupOffsets
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import Cluster
from roquet.wire.codes import ResponseCode

ORDERS = re.compile("orders-.*")
PERIOD_MS = 30_000
"""Between two lists of topics."""


async def send(running: Cluster, *topics: str) -> None:
    async with Producer(running.namesrv_addr, config=config_of(ProducerConfig)) as producer:
        for topic in topics:
            await producer.send(topic, topic.encode())


def consumer_of(
    running: Cluster, kind: Any = PushConsumer, topic: Any = ORDERS, **settings: Any
) -> Consumer[Any]:
    config = config_of(ConsumerConfig, **settings)
    consumer: Consumer[Any] = kind(running.namesrv_addr, group="g", topic=topic, config=config)
    return consumer


async def bodies(consumer: Consumer[Any], count: int, timeout_ms: int = 5_000) -> list[str]:
    messages = await consumer.fetch(count, timeout_ms)
    for message in messages:
        await message.ack()
    return sorted(message.body.decode() for message in messages)


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_a_pattern_subscribes_to_all_topics_that_match(kind: Any) -> None:
    async with virtual_cluster() as running:
        await send(running, "orders-eu", "orders-us", "invoices", "other")
        consumer = consumer_of(running, kind, ["invoices", ORDERS])
        async with consumer:
            assert await bodies(consumer, 4) == ["invoices", "orders-eu", "orders-us"]
            assert consumer.subscriptions.keys() == {"invoices", "orders-eu", "orders-us"}


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
@pytest.mark.parametrize("start", [ConsumeFrom.FIRST, ConsumeFrom.LAST])
async def test_a_topic_that_is_made_later_is_read_from_its_first_message(
    kind: Any, start: ConsumeFrom
) -> None:
    async with (
        virtual_cluster() as running,
        consumer_of(running, kind, consume_from=start) as consumer,
    ):
        await asyncio.sleep(5)
        await send(running, "orders-new")
        await asyncio.sleep(2 * PERIOD_MS / 1000)
        await send(running, "orders-new")
        assert await bodies(consumer, 2) == ["orders-new", "orders-new"]


async def test_a_topic_leaves_once_it_is_not_listed_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden = set[str]()
    ask = NameServers.list_topics

    async def list_topics(self: NameServers, call: Any) -> Any:
        topics = await ask(self, call)
        is_fresh = "everything" in hidden  # as of a name server that was just started
        return [] if is_fresh else [topic for topic in topics if topic not in hidden]

    forgotten: list[str] = []
    forget = Routes.forget

    def forget_topic(self: Routes, topic: str) -> None:
        forgotten.append(topic)
        forget(self, topic)

    monkeypatch.setattr(NameServers, "list_topics", list_topics)
    monkeypatch.setattr(Routes, "forget", forget_topic)
    async with virtual_cluster() as running, consumer_of(running) as consumer:
        await send(running, "orders-eu", "orders-us")
        await asyncio.sleep(PERIOD_MS / 1000 + 2)
        assert len(consumer.assignment()) == 8
        hidden.add("everything")
        await asyncio.sleep(300)
        hidden.remove("everything")
        hidden.add("orders-us")
        await asyncio.sleep(50)
        assert consumer.subscriptions.keys() == {"orders-eu", "orders-us"}
        await asyncio.sleep(60)
        assert consumer.subscriptions.keys() == {"orders-eu"}
        assert {queue.topic for queue in consumer.assignment()} == {"orders-eu"}
        assert forgotten == ["orders-us"], "its route is refreshed no more"
        hidden.clear()
        await send(running, "orders-us")
        await asyncio.sleep(2 * PERIOD_MS / 1000)
        assert consumer.subscriptions.keys() == {"orders-eu", "orders-us"}
        assert len(consumer.assignment()) == 8


async def test_a_refused_list_is_an_error_that_says_what_to_do() -> None:
    async with virtual_cluster() as running:
        refuse_lists(running)
        with pytest.raises(CallRefused, match="let this user Get the cluster, or name the topics"):
            await consumer_of(running).start()


def refuse_lists(running: Cluster, *, is_refused: bool = True) -> None:
    state = running.namesrvs[0].state
    state.config = msgspec.structs.replace(state.config, all_topics=not is_refused)


async def test_a_list_that_is_refused_later_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with virtual_cluster() as running:
        await send(running, "orders-eu")
        async with consumer_of(running) as consumer:
            refuse_lists(running)
            await asyncio.sleep(3 * PERIOD_MS / 1000)
            assert consumer.subscriptions.keys() == {"orders-eu"}
            refuse_lists(running, is_refused=False)
            await send(running, "orders-us")
            await asyncio.sleep(PERIOD_MS / 1000 + 5)
            assert consumer.subscriptions.keys() == {"orders-eu", "orders-us"}
        warnings = [r for r in caplog.records if r.levelname == "WARNING"]
        assert len([r for r in warnings if "topics of g" in r.getMessage()]) == 1


async def test_without_a_name_server_the_start_does_not_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = config_of(ConsumerConfig)
    async with PushConsumer("127.0.0.1:1", group="g", topic=ORDERS, config=config):
        assert "topic patterns match nothing yet" in caplog.text


async def test_a_topic_that_may_not_be_read_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers refuse a heartbeat that names it, and so the whole member."""
    committed = GroupOffsets.committed
    refused = {"orders-secret"}

    async def guarded(self: GroupOffsets, queue: MessageQueue, **settings: Any) -> int | None:
        if queue.topic in refused:
            raise CallRefused(ResponseCode.NO_PERMISSION, "no rights")
        return await committed(self, queue, **settings)

    monkeypatch.setattr(GroupOffsets, "committed", guarded)
    async with virtual_cluster() as running:
        await send(running, "orders-secret", "orders-eu")
        async with consumer_of(running) as consumer:
            assert await bodies(consumer, 1) == ["orders-eu"]
            await asyncio.sleep(2 * PERIOD_MS / 1000)
            assert consumer.subscriptions.keys() == {"orders-eu"}
            assert caplog.text.count("orders-secret matches a pattern and is left out") == 1
            refused.clear()
            assert await bodies(consumer, 1, 40_000) == ["orders-secret"]


async def test_a_filter_that_changes_while_a_topic_is_looked_up_applies_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed = GroupOffsets.committed

    async with virtual_cluster() as running, consumer_of(running) as consumer:

        async def changing(self: GroupOffsets, queue: MessageQueue, **named: Any) -> int | None:
            monkeypatch.undo()
            assert isinstance(consumer, PushConsumer)
            consumer.subscribe(ORDERS, "B")
            return await committed(self, queue, **named)

        await send(running, "orders-eu")
        monkeypatch.setattr(GroupOffsets, "committed", changing)
        await asyncio.sleep(2 * PERIOD_MS / 1000)
        assert consumer.subscriptions == {"orders-eu": "B"}


async def test_members_that_see_different_topics_lose_nothing() -> None:
    """A broker tells the others when one member has found a topic: they look for it, too."""
    async with virtual_cluster() as running:
        await send(running, "base")
        topics = ["base", ORDERS]
        first = consumer_of(running, topic=topics, route_period_ms=5_000)
        second = consumer_of(running, topic=topics, route_period_ms=600_000)
        async with first, second:
            assert await bodies(first, 1, 2_000) + await bodies(second, 1, 2_000) == ["base"]
            await send(running, *["orders-eu"] * 20)
            found = await bodies(first, 20, 15_000) + await bodies(second, 20, 15_000)
            assert found == ["orders-eu"] * 20
            assert [len(member.assignment()) for member in (first, second)] == [4, 4]


async def test_a_pull_consumer_subscribes_to_a_pattern() -> None:
    async with virtual_cluster() as running:
        config = config_of(ConsumerConfig, auto_commit=True)
        async with PullConsumer(running.namesrv_addr, group="g", config=config) as consumer:
            await consumer.subscribe(ORDERS)
            await send(running, "orders-eu")
            assert await bodies(consumer, 1, 40_000) == ["orders-eu"]


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_an_unsubscribed_pattern_takes_its_topics_along(kind: Any) -> None:
    async with virtual_cluster() as running:
        await send(running, "orders-eu", "orders-us", "invoices")
        consumer: Any = consumer_of(running, kind, [ORDERS, "invoices"])
        async with consumer:
            with pytest.raises(UsageError, match="subscribed by a pattern"):
                consumer.unsubscribe("orders-eu")
            consumer.subscribe("orders-us")  # by its name, from now on
            consumer.subscribe(ORDERS, "paid")
            assert consumer.subscriptions["orders-eu"] == "paid"
            consumer.unsubscribe(ORDERS)
            assert consumer.subscriptions.keys() == {"orders-us", "invoices"}
            consumer.subscribe(ORDERS)
            await asyncio.sleep(2)
            assert consumer.subscriptions.keys() == {"orders-us", "invoices", "orders-eu"}


async def test_a_namespace_sees_its_own_topics_without_their_prefix() -> None:
    async with virtual_cluster() as running:
        await send(running, "shop%orders-eu", "orders-us")
        async with consumer_of(running, namespace="shop") as consumer:
            assert await bodies(consumer, 2) == ["shop%orders-eu"]
            assert consumer.subscriptions == {"orders-eu": "*"}


def test_a_pattern_of_bytes_is_refused() -> None:
    pattern: Any = re.compile(b"orders")
    with pytest.raises(UsageError, match="that of a str"):
        PushConsumer("127.0.0.1:1", group="g", topic=pattern)
