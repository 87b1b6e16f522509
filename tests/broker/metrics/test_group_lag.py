import asyncio
import time

import pytest
from tests.broker.conftest import FakePeer, MakeSend, background
from tests.metrics.prometheus_text import Page, parsed

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.metrics.group_lag import GroupLagSource
from roquet.metrics.counts import OTHER
from roquet.metrics.metric import NodeType
from roquet.metrics.text_format import MetricsPage
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription
from roquet.model.topic import TopicConfig
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.request_meter import RequestMeter
from roquet.observe.exporter import ExporterAddress, MetricsExporter, NodeIdentity

BILLING = {"consumer_group": "billing", "topic": "orders"}


@pytest.fixture
def stored(broker: Broker, peer: FakePeer, message: MakeSend) -> Broker:
    """A broker with three messages in one queue, of which a group has committed one."""
    broker.tables.topics.put(
        TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2), 0
    )
    for _ in range(3):
        broker.bind(SendHandler.send)(message(), peer)
    broker.tables.groups.find("billing", 0)
    broker.tables.offsets.commit("billing", "orders", 0, 1)
    return broker


def join(broker: Broker, peer: FakePeer) -> None:
    wanted = ConsumerData(
        group_name="billing", subscription_data_set=[Subscription(topic="orders")]
    )
    broker.tables.clients.beat(peer, HeartbeatData(client_id="c", consumer_data_set=[wanted]))


async def page_of(source: GroupLagSource) -> Page:
    page = MetricsPage({})
    await source.add(page)
    return parsed(b"".join(page.chunks()).decode())


async def test_a_group_without_members_is_shown_by_our_names_alone(stored: Broker) -> None:
    page = await page_of(GroupLagSource(stored))
    assert page.one("roquet_consumer_lag_messages", **BILLING) == 2
    assert page.one("roquet_group_online", consumer_group="billing") == 0
    assert page.of("rocketmq_consumer_lag_messages") == []


async def test_a_group_with_a_member_is_shown_by_both(stored: Broker, peer: FakePeer) -> None:
    join(stored, peer)
    counter = stored.control.statistics.got("orders", "billing", 1, 10)
    counter.pulled[0] = 2
    await asyncio.sleep(0.02)
    page = await page_of(GroupLagSource(stored))
    assert page.one("roquet_group_online", consumer_group="billing") == 1
    labels = {**BILLING, "is_retry": "false", "is_system": "false"}
    assert page.one("rocketmq_consumer_lag_messages", **labels) == 2
    assert page.one("rocketmq_consumer_inflight_messages", **labels) == 1
    assert page.one("rocketmq_consumer_ready_messages", **labels) == 1
    waits_ms = page.one("rocketmq_consumer_lag_latency_milliseconds", **labels)
    queueing_ms = page.one("rocketmq_consumer_queueing_latency_milliseconds", **labels)
    assert 10 <= queueing_ms <= waits_ms + 500, "the second message waits less; it is read later"
    assert waits_ms / 1000 == page.one("roquet_consumer_lag_seconds", **BILLING)
    assert page.one("rocketmq_consumer_connections", consumer_group="billing") == 1


async def test_retention_is_shown_for_groups_that_are_behind(stored: Broker) -> None:
    page = await page_of(GroupLagSource(stored))
    left_s = page.one("roquet_consumer_retention_left_seconds", **BILLING)
    assert 71 * 3600 < left_s <= 72 * 3600
    stored.tables.offsets.commit("billing", "orders", 0, 3)
    page = await page_of(GroupLagSource(stored))
    assert page.of("roquet_consumer_retention_left_seconds") == []
    assert page.one("roquet_consumer_lag_seconds", **BILLING) == 0


async def test_progress_is_seen_from_page_to_page(stored: Broker) -> None:
    source, name = GroupLagSource(stored), "roquet_consumer_seconds_since_progress"
    assert (await page_of(source)).one(name, **BILLING) == 0
    await asyncio.sleep(0.05)
    assert (await page_of(source)).one(name, **BILLING) >= 0.04
    stored.tables.offsets.commit("billing", "orders", 0, 2)
    assert (await page_of(source)).one(name, **BILLING) < 0.04


async def test_an_offset_out_of_bounds_is_no_negative_lag(stored: Broker) -> None:
    stored.tables.offsets.commit("billing", "orders", 0, 99)
    assert (await page_of(GroupLagSource(stored))).one("roquet_consumer_lag_messages") == 0


async def test_a_deleted_topic_and_a_system_group_are_not_shown(stored: Broker) -> None:
    stored.tables.offsets.commit("billing", "gone", 0, 5)
    stored.tables.offsets.commit("CID_RMQ_SYS_TRANS", "orders", 0, 1)
    page = await page_of(GroupLagSource(stored))
    assert len(page.of("roquet_consumer_lag_messages")) == 1


async def test_groups_beyond_the_limit_are_one_series(stored: Broker) -> None:
    for group in ("b", "c"):
        stored.tables.offsets.commit(group, "orders", 0, 0)
    source = GroupLagSource(stored, series_max=1)
    page = await page_of(source)
    assert page.one("roquet_consumer_lag_messages", consumer_group=OTHER) == 6
    assert source.overflow == 2
    assert len(page.of("roquet_consumer_lag_messages")) == 2


@pytest.mark.slow
async def test_five_thousand_groups_and_topics_hold_the_loop_for_milliseconds(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for number in range(5_000):
        broker.tables.offsets.commit(f"group-{number}", f"topic-{number}", 0, 0)
    topics = [
        TopicConfig(topic_name=f"topic-{number}", read_queue_nums=8, write_queue_nums=8)
        for number in range(5_000)
    ]
    broker.tables.topics.put_all(topics, 0)
    for number in range(5_000):
        broker.bind(SendHandler.send)(message(topic=f"topic-{number}"), peer)
    source = GroupLagSource(broker)
    exporter = MetricsExporter(
        NodeIdentity(node_type=NodeType.BROKER, node_id="a"),
        ExporterAddress("127.0.0.1", 0),
        SYSTEM_CLOCK,
        meter=RequestMeter(SYSTEM_CLOCK),
        connections=lambda: 0,
        sources=(source.add,),
    )
    steps: list[float] = []

    async def watch() -> None:
        while True:
            begun_s = time.thread_time()  # of this thread: others may be busy
            await asyncio.sleep(0)
            steps.append(time.thread_time() - begun_s)

    async with background(watch()):
        pieces = [piece async for piece in exporter.body()]
    assert sum(piece.count(b"roquet_consumer_lag_messages{") for piece in pieces) == 5_000
    assert len(steps) > 200
    steps.sort()
    assert steps[int(len(steps) * 0.99)] < 0.010  # the store has work of its own
