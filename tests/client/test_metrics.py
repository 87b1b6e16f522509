"""Client metrics: what is counted, and how it is shown."""

import asyncio
from typing import Any

import pytest
from tests.client.conftest import config_of, consumer_of, fake_cluster, producer_of
from tests.conversation.conftest import handling, send, virtual_cluster

from roquet.client import (
    CallError,
    CallTimeout,
    ConsumerConfig,
    Message,
    PopConsumer,
    PullConsumer,
    ReceivedMessage,
)
from roquet.client.metrics import (
    HANDLE_SECONDS,
    METRICS,
    SENT,
    SERIES_MAX,
    WAITING,
    ClientMetrics,
    MetricSample,
)


def named(metrics: ClientMetrics, part: str) -> dict[str, float]:
    """The values whose names contain a part, by what follows the product's prefix."""
    values = metrics.snapshot().items()
    return {k.removeprefix("roquet_client_"): v for k, v in values if part in k}


async def test_sends_are_counted_by_topic_group_and_result() -> None:
    metrics = ClientMetrics()
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        producer_of(cluster, metrics=metrics, retry_times=0) as producer,
    ):
        await producer.send("t", b"m")
        await producer.send_many([Message("t", b"m")] * 3)
        cluster.a.faults = [CallTimeout("late")]
        with pytest.raises(CallError):
            await producer.send("t", b"m")
    assert named(metrics, "sent") == {
        'sent_messages_total{group="shop",result="ok",topic="t"}': 4,
        'sent_messages_total{group="shop",result="failed",topic="t"}': 1,
    }
    assert sum(named(metrics, "send_seconds_count").values()) >= 3


async def test_a_push_consumers_tries_are_counted() -> None:
    metrics = ClientMetrics()
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.put("t", 0, b"1", b"2", b"3")

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(2)
            if message.body == b"2":
                raise ValueError("no")
            if message.body == b"3":
                await message.dead_letter()

        consumer = consumer_of(cluster, metrics=metrics, concurrency=1)
        async with consumer, handling(consumer, handle):
            await asyncio.sleep(1)
            assert named(metrics, "in_flight") == {'in_flight_messages{group="g",topic="t"}': 3}
            assert named(metrics, "waiting") == {'waiting_messages{group="g"}': 2}
            assert named(metrics, "queues") == {'queues{group="g",topic="t"}': 1}
            await asyncio.sleep(8)
    labels = 'group="g",topic="t"'
    assert named(metrics, "received") == {f"received_messages_total{{{labels}}}": 3}
    assert named(metrics, "handled") == {
        'handled_messages_total{group="g",result="ok",topic="t"}': 1,
        'handled_messages_total{group="g",result="failed",topic="t"}': 2,
    }
    assert named(metrics, "dead_letters") == {f"dead_letters_total{{{labels}}}": 1}
    assert named(metrics, "handle_seconds_count") == {f"handle_seconds_count{{{labels}}}": 3}
    assert named(metrics, "handle_seconds_sum")[f"handle_seconds_sum{{{labels}}}"] >= 6
    assert named(metrics, "rebalances")['rebalances_total{group="g",result="ok"}'] >= 1
    assert not named(metrics, "in_flight"), "gauges end with the consumer"


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_pop_consumers_tries_are_counted(*, is_batch: bool) -> None:
    metrics = ClientMetrics()
    async with virtual_cluster() as running:
        await send(running, b"1", b"2")

        async def handle(taken: Any) -> None:
            for message in taken if is_batch else [taken]:
                if message.body == b"2" and not message.tries:
                    await message.nack(1_000)

        config = config_of(ConsumerConfig, metrics=metrics)
        consumer = PopConsumer(running.namesrv_addr, group="g", topic="t", config=config)
        async with consumer:
            run = consumer.run_batch(handle) if is_batch else consumer.run(handle)
            task = asyncio.create_task(run)
            await asyncio.sleep(10)
            consumer.stop()
            await task
    assert sum(named(metrics, "received").values()) == 3
    assert named(metrics, "handled") == {
        'handled_messages_total{group="g",result="ok",topic="t"}': 2,
        'handled_messages_total{group="g",result="failed",topic="t"}': 1,
    }


async def test_single_pulls_count_as_received() -> None:
    metrics = ClientMetrics()
    async with virtual_cluster() as running:
        await send(running, b"1", b"2")
        config = config_of(ConsumerConfig, metrics=metrics)
        async with PullConsumer(running.namesrv_addr, group="g", config=config) as consumer:
            for queue in await consumer.queues("t"):
                await consumer.pull(queue, 0)
    assert sum(named(metrics, "received").values()) == 2


def test_labels_are_bounded() -> None:
    metrics = ClientMetrics()
    for number in range(SERIES_MAX + 10):
        metrics.add(SENT, 1, f"t{number}", "g", "ok")
    found = named(metrics, "sent")
    assert len(found) == SERIES_MAX + 1
    assert found['sent_messages_total{group="other",result="other",topic="other"}'] == 10


def test_a_client_that_ends_leaves_its_counters() -> None:
    metrics = ClientMetrics()

    def source() -> list[MetricSample]:
        return [MetricSample(SENT, ("t", "g", "ok"), 2), MetricSample(WAITING, ("g",), 5)]

    metrics.watch(source)
    before = metrics.snapshot()
    metrics.unwatch(source)
    metrics.unwatch(source)
    assert before == {
        'roquet_client_sent_messages_total{group="g",result="ok",topic="t"}': 2,
        'roquet_client_waiting_messages{group="g"}': 5,
    }
    assert metrics.snapshot() == {
        'roquet_client_sent_messages_total{group="g",result="ok",topic="t"}': 2
    }


def test_prometheus_shows_the_same() -> None:
    prometheus = pytest.importorskip("prometheus_client")
    metrics = ClientMetrics()
    metrics.add(SENT, 2, "t", "g", "ok")
    metrics.times(HANDLE_SECONDS, "t", "g").observe(0.007)
    registry = prometheus.CollectorRegistry()
    registry.register(metrics)
    shown = prometheus.generate_latest(registry).decode()
    lines = dict(line.rsplit(" ", 1) for line in shown.splitlines() if line[0] != "#")
    assert lines['roquet_client_sent_messages_total{group="g",result="ok",topic="t"}'] == "2.0"
    assert lines['roquet_client_handle_seconds_bucket{group="g",le="0.01",topic="t"}'] == "1.0"
    assert lines['roquet_client_handle_seconds_sum{group="g",topic="t"}'] == "0.007"


def test_every_metric_has_a_name_of_its_own() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
