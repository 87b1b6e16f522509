"""Triggers wait in an event loop, and are made again from what they serialize."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("airflow", reason="pip install 'roquet[airflow]'")
from airflow.sdk.module_loading import import_string

from roquet.client import Producer
from roquet.client.blocking import PushConsumer
from roquet.integrations.airflow.hook import ClusterSettings, RocketMQHook
from roquet.integrations.airflow.triggers import RocketMQTrigger
from roquet.testing.cluster import BlockingCluster

pytestmark = pytest.mark.virtual_time(False)


class FakeConnection:
    """A connection as `aget_connection` returns it; that one needs a supervisor's process."""

    conn_id, port, login, password = "mq", None, None, None

    def __init__(self, host: str) -> None:
        self.host = host
        self.extra_dejson: dict[str, Any] = {}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, roquet_cluster: BlockingCluster) -> BlockingCluster:
    async def asettings(_: RocketMQHook) -> ClusterSettings:
        return ClusterSettings(FakeConnection(roquet_cluster.namesrv_addr))

    monkeypatch.setattr(RocketMQHook, "asettings", asettings)
    return roquet_cluster


def trigger_of(wait: str, **conditions: Any) -> RocketMQTrigger:
    conditions = {"period_s": 0.2, "topic": "orders", **conditions}
    return RocketMQTrigger(rocketmq_conn_id="mq", wait=wait, conditions=conditions)


def made_again(trigger: Any) -> Any:
    """The trigger as another triggerer makes it of what is stored."""
    path, arguments = trigger.serialize()
    return import_string(path)(**arguments)


async def event_of(trigger: Any) -> dict[str, Any]:
    async with asyncio.timeout(30):
        async for event in trigger.run():
            payload: dict[str, Any] = event.payload
            return payload
    raise AssertionError("no event")


async def test_a_restarted_triggerer_finds_what_came_meanwhile(cluster: BlockingCluster) -> None:
    trigger = trigger_of("message", group="airflow", since_ms=1, tags="done", key="A-2")
    waiting = asyncio.create_task(event_of(trigger))
    await asyncio.sleep(1)
    waiting.cancel()  # the triggerer ends
    await asyncio.gather(waiting, return_exceptions=True)
    async with Producer(cluster.namesrv_addr) as producer:
        await producer.send("orders", b"1", tag="done", keys=["A-1"])
        await producer.send("orders", b"2", tag="done", keys=["A-2"])
    event = await event_of(made_again(trigger))
    assert (event["result"]["body"], event["result"]["keys"]) == ("2", ["A-2"])


async def test_what_can_never_come_is_an_error(cluster: BlockingCluster) -> None:
    async with Producer(cluster.namesrv_addr) as producer:
        await producer.send("orders", b"1")
    trigger = trigger_of("message", group="airflow", since_ms=1, sql="price >")
    assert "error" in await event_of(made_again(trigger))
    lag = trigger_of("lag", group="nobody", topic=None, lag_max=0)
    assert "NotFound" in (await event_of(lag))["error"]


async def test_a_lag_is_waited_for(cluster: BlockingCluster) -> None:
    def handle(count: int) -> None:
        with PushConsumer(cluster.namesrv_addr, group="billing", topic="orders") as consumer:
            for message in consumer.fetch(count):
                message.ack()

    async with Producer(cluster.namesrv_addr) as producer:
        for _ in range(3):
            await producer.send("orders", b"x")
    await asyncio.to_thread(handle, 1)
    trigger = trigger_of("lag", group="billing", lag_max=1)
    waiting = asyncio.create_task(event_of(made_again(trigger)))
    await asyncio.sleep(1)
    assert not waiting.done()
    await asyncio.to_thread(handle, 1)
    assert (await waiting) == {"result": 1}
