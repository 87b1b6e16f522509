"""Health of clients: at once, and true to what happens."""

import asyncio
from typing import Any

import pytest
from tests.client.conftest import config_of, consumer_of, fake_cluster, producer_of
from tests.conversation.conftest import send, virtual_cluster

from roquet.client import (
    CallRefused,
    ConsumerConfig,
    PopConsumer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from roquet.client.blocking import Producer as BlockingProducer
from roquet.client.blocking import PushConsumer as BlockingPushConsumer
from roquet.testing.cluster import BlockingCluster
from roquet.wire.codes import ResponseCode


async def test_a_consumer_is_ready_once_it_has_its_queues() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        consumer = consumer_of(cluster)
        assert consumer.health().reason == "the client is not open"
        async with consumer:
            await asyncio.sleep(5)
            cluster.a.put("t", 0, b"1", b"2")
            await asyncio.sleep(1)
            assert consumer.health().lag is None, "the other queue has got no answer yet"
            await asyncio.sleep(15)
            health = consumer.health()
            assert (health.ok, health.reason) == (True, "ready")
            assert (health.brokers, health.lost_brokers) == (("a",), ())
            assert (health.queues, health.lag, health.waiting) == (2, 2, 2)
            assert health.answered_s is not None
            assert health.answered_s <= 15
        assert not consumer.health()


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_a_lost_broker_is_named_and_its_return_noticed(kind: Any) -> None:
    async with virtual_cluster() as running:
        await send(running, b"m")
        config = config_of(ConsumerConfig)
        async with kind(running.namesrv_addr, group="g", topic="t", config=config) as consumer:
            await asyncio.sleep(3)
            assert consumer.health().ok
            await running.stop_broker(0)
            await asyncio.sleep(1)
            assert consumer.health().reason.startswith("no broker is connected, lost: broker-a")
            await asyncio.sleep(35)
            assert "connection refused" in consumer.health().reason
            await running.start_broker(0)
            await asyncio.sleep(10)
            assert consumer.health().ok


async def test_one_of_several_brokers_may_be_away() -> None:
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster:
        consumer = consumer_of(cluster)
        async with consumer:
            await asyncio.sleep(2)
            await cluster.brokers["b"].server.stop(0)
            await asyncio.sleep(5)
            health = consumer.health()
            assert (health.ok, health.brokers, health.lost_brokers) == (True, ("a",), ("b",))
            await asyncio.sleep(60)
            assert "got no answer for" in consumer.health().reason


async def test_a_broker_that_hangs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster) as consumer:
        await asyncio.sleep(2)

        async def hang(*_: object) -> None:
            await asyncio.sleep(1_000)

        for handler in cluster.a.handlers:
            cluster.a.handlers[handler] = hang
        await asyncio.sleep(90)
        assert not consumer.health().ok


async def test_stuck_handlers_are_counted_from_when_they_were_seen() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.put("t", 0, b"1", b"2")

        async def handle(_message: ReceivedMessage) -> None:
            await asyncio.sleep(300)

        async with consumer_of(cluster, concurrency=2, close_timeout_ms=0) as consumer:
            task = asyncio.create_task(consumer.run(handle))
            await asyncio.sleep(1)
            assert (consumer.health().stuck, consumer.health().handlers) == ((), 2)
            await asyncio.sleep(70)
            health = consumer.health()
            assert [stuck.seconds for stuck in health.stuck] == pytest.approx([70, 70], abs=1)
            assert health.stuck[0].message.startswith("<ReceivedMessage")
            assert health.reason == "all handlers are stuck, the longest for 70 s"
            assert consumer.health(stuck_ms=100_000).ok
            consumer.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_full_queue_is_not_silent() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.put("t", 0, *[b"m"] * 20)
        async with consumer_of(cluster, in_flight_max=10) as consumer:
            await asyncio.sleep(300)
            health = consumer.health()
            assert health.ok
            assert health.handled_s == pytest.approx(300, abs=5)


async def test_what_ended_the_consumer_is_the_reason() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:

        def refuse(*_: object) -> None:
            raise CallRefused(ResponseCode.NO_PERMISSION, "wrong keys")

        for call in cluster.a.handlers:
            cluster.a.handlers[call] = refuse
        async with consumer_of(cluster) as consumer:
            await asyncio.sleep(5)
            health = consumer.health()
            assert not health.ok
            assert "wrong keys" in health.reason


async def test_a_pull_consumer_without_a_subscription_waits_for_no_queues() -> None:
    async with virtual_cluster() as running:
        await send(running, b"m")
        config = config_of(ConsumerConfig)
        async with PullConsumer(running.namesrv_addr, group="g", config=config) as consumer:
            await consumer.assign(await consumer.queues("t"))
            await asyncio.sleep(1)
            assert consumer.health().ok


async def test_a_producer_is_ready_until_all_its_brokers_are_lost() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        producer = producer_of(cluster)
        assert not producer.health()
        async with producer:
            assert producer.health().ok
            await producer.send("t", b"m")
            await asyncio.sleep(1)
            assert producer.health().brokers == ("a",)
            await cluster.a.server.stop(0)
            await asyncio.sleep(40)
            assert "no broker is connected, lost: a" in producer.health().reason
        assert producer.health().reason == "the client is not open"


def test_the_blocking_clients_have_it_as_well(roquet_cluster: BlockingCluster) -> None:
    namesrv = roquet_cluster.namesrv_addr
    with BlockingProducer(namesrv) as producer:
        producer.send("t", b"m")
        assert producer.health()
    with BlockingPushConsumer(namesrv, group="g", topic="t") as consumer:
        consumer.next(5_000)
        assert consumer.health().brokers == ("broker-a",)
