"""Running info of a member."""

import asyncio
from typing import Any

from tests.client.conftest import FakeCluster, config_of, fake_cluster, running_info

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.pop import PopConsumer
from roquet.client.push import PushConsumer
from roquet.model.queue import MessageQueue
from roquet.testing.clock import this_loop
from roquet.wire.calls.admin import client_forwarding

QUEUE = MessageQueue("t", "a", 0)


def consumer_of(cluster: FakeCluster, **settings: Any) -> PushConsumer:
    config = config_of(ConsumerConfig, consume_from=ConsumeFrom.FIRST, **settings)
    return PushConsumer(cluster.address, group="g", topic="t", tags="A || B", config=config)


async def test_running_info_has_cached_messages_and_times() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster) as consumer:
        consumer.subscribe("t")
        cluster.a.put("t", 0, b"0", b"1", b"2")
        clock = this_loop().clock
        messages = await consumer.fetch(3)
        await messages[1].ack()
        handled_ms = clock.now_ms()
        await asyncio.sleep(50)
        info = (await running_info(cluster.a, consumer.client_id)).mq_table[QUEUE]
        assert (info.commit_offset, info.cached_msg_count) == (0, 2)
        assert (info.cached_msg_min_offset, info.cached_msg_max_offset) == (0, 2)
        assert handled_ms <= info.last_consume_timestamp <= handled_ms + 5_000
        assert clock.now_ms() - info.last_pull_timestamp <= 15_000
        assert (info.locked, info.droped) == (False, False)


async def test_an_ordered_queue_is_locked() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster, ordered=True) as consumer:
        await asyncio.sleep(1)
        info = await running_info(cluster.a, consumer.client_id, stacks=True)
        assert info.mq_table[QUEUE].locked
        assert info.properties[client_forwarding.ORDERLY] == "true"
        assert info.jstack


async def test_running_info_has_the_settings_without_secrets() -> None:
    started_ms = this_loop().clock.now_ms()
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        consumer_of(cluster, access_key="AK", secret_key="SK12345") as consumer,
    ):
        await asyncio.sleep(1)
        info = await running_info(cluster.a, consumer.client_id)
        properties = info.properties
        assert properties["pullCount"] == "256"
        assert properties["messageModel"] == "CLUSTERING"
        assert properties[client_forwarding.CLIENT_VERSION] == "V5_5_0"
        assert properties[client_forwarding.STARTED] == str(started_ms)
        assert "SK12345" not in str(properties)
        assert "accessKey" not in properties


async def test_a_pop_consumers_running_info_names_the_popped_brokers() -> None:
    config = config_of(ConsumerConfig)
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        PopConsumer(cluster.address, group="g", topic="t", config=config) as consumer,
    ):
        await asyncio.sleep(1)
        info = await running_info(cluster.a, consumer.client_id)
        popped = {MessageQueue("t", "a", -1): client_forwarding.PopInfo(wait_ack_count=0)}
        assert info.mq_pop_table == popped
        consumer.unsubscribe("t")
        info = await running_info(cluster.a, consumer.client_id)
        assert info.mq_pop_table == {}
