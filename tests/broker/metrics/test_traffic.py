import asyncio
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend
from tests.broker.metrics.conftest import Collect

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.handlers.messages.send_back import SendBackHandler
from roquet.broker.metrics.traffic import (
    add_consumers,
    add_events,
    add_inventory,
    add_traffic,
    language_name,
    version_name,
)
from roquet.metrics.counts import OTHER
from roquet.metrics.rocketmq_metrics import TIMER_BOUNDS_S
from roquet.model.subscription import ConsumerData, HeartbeatData, ProducerData, Subscription
from roquet.rules.consumption.pop import PopCheckpoint
from roquet.rules.quota import QuotaExcess, parse_quotas
from roquet.wire.calls.send import SendBack
from roquet.wire.codes import VERSION_GO_AWAY, VERSION_STANDARD_JSON


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"recall_message": True}


async def test_messages_are_counted_by_type(
    measured: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    kinds = {
        "normal": "",
        "fifo": "__SHARDINGKEY\x01k\x02",
        "delay": "DELAY\x013\x02",
        "transaction": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02",
        "priority": "_SYS_MSG_PRIORITY_\x013\x02",
    }
    for text in kinds.values():
        for _ in range(3):
            measured.bind(SendHandler.send)(message(b"x" * 2000, properties=text), peer)
    measured.bind(SendHandler.send)(message(b"x", properties=kinds["normal"]), peer)
    page = await collect(add_traffic)
    counts = {
        kind: page.one("rocketmq_messages_in_total", message_type=kind, topic="orders")
        for kind in kinds
    }
    assert counts == {"normal": 4, "fifo": 3, "delay": 3, "transaction": 3, "priority": 3}
    assert page.one("rocketmq_throughput_in_total", message_type="fifo") > 6000
    name = "rocketmq_message_size_bucket"
    assert page.one(name, message_type="normal", le="1024.0") == 1
    assert page.one(name, message_type="normal", le="4096.0") == 4
    assert page.one("rocketmq_messages_in_total", is_system="false", message_type="fifo") == 3
    for _ in range(2):  # a page between does not lose any
        measured.bind(SendHandler.send)(message(b"x", properties=kinds["normal"]), peer)
    page = await collect(add_traffic)
    assert page.one("rocketmq_messages_in_total", message_type="normal", topic="orders") == 6


async def test_nothing_is_counted_on_the_way_of_a_send_without_metrics(
    broker: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    assert (await collect(add_traffic)).values == []


async def test_given_messages_are_those_of_the_statistics(broker: Broker, collect: Collect) -> None:
    statistics = broker.control.statistics
    statistics.got("orders", "billing", 3, 300)
    statistics.got("%RETRY%billing", "billing", 1, 10)
    page = await collect(add_traffic)
    labels = {"topic": "orders", "consumer_group": "billing"}
    assert page.one("rocketmq_messages_out_total", is_retry="false", **labels) == 3
    assert page.one("rocketmq_throughput_out_total", is_system="false", **labels) == 300
    assert page.one("rocketmq_messages_out_total", is_retry="true") == 1


async def test_groups_that_the_statistics_have_no_room_for_are_one_series(
    broker: Broker, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.broker.statistics.KEYS_MAX", 1)
    for group in ("a", "b", "c"):
        broker.control.statistics.got("orders", group, 2, 20)
    page = await collect(add_traffic)
    assert page.one("rocketmq_messages_out_total", consumer_group="a") == 2
    assert page.one("rocketmq_messages_out_total", consumer_group=OTHER, topic=OTHER) == 4


async def test_events_are_counted_since_the_start(broker: Broker, collect: Collect) -> None:
    counts = broker.log.counts
    counts.dead_letters.add("billing", "orders")
    counts.retention_unread.add("billing", "orders", count=4_380)
    counts.commits.add("orders")
    counts.commit_s.observe("orders", value=7)
    counts.rollbacks.add("orders", count=2)
    counts.timer_enqueued.add("orders", count=3)
    counts.timer_dequeued.add("orders")
    counts.delay_s.observe("orders", value=100)
    counts.revive_notes.add("orders", "billing", "CK")
    counts.redelivered.add("orders", "billing")
    broker.coordination.notify(["billing"])
    broker.delivery.set_aside.counts["timer"] += 1
    page = await collect(add_events)
    group = {"consumer_group": "billing", "topic": "orders"}
    assert page.one("rocketmq_send_to_dlq_messages_total", is_system="false", **group) == 1
    assert page.one("roquet_retention_unread_messages_total", **group) == 4_380
    assert page.one("rocketmq_commit_messages_total", topic="orders") == 1
    assert page.one("rocketmq_rollback_messages_total", topic="orders") == 2
    assert page.one("rocketmq_finish_message_latency_milliseconds_sum", topic="orders") == 7
    assert page.one("roquet_transaction_seconds_sum", topic="orders") == 7
    assert page.one("rocketmq_timer_enqueue_total", storage_type="local") == 3
    assert page.one("rocketmq_timer_dequeue_total", storage_medium="disk") == 1
    assert page.one("rocketmq_delay_message_latency_seconds_bucket", le="600.0") == 1
    assert page.one("rocketmq_timer_enqueue_lag") == 0
    assert page.one(
        "rocketmq_pop_revive_in_message_total",
        revive_message_type="CK", put_status="PUT_OK", **group,
    ) == 1  # fmt: skip
    assert page.one("rocketmq_pop_revive_retry_messages_total", **group) == 1
    assert page.one("roquet_rebalances_total", consumer_group="billing") == 1
    assert page.one("roquet_set_aside_messages_total", service="timer") == 1
    assert page.one("rocketmq_pop_checkpoint_buffer_size") == 0


async def test_requests_over_a_quota_are_counted(broker: Broker, collect: Collect) -> None:
    (quota,) = parse_quotas("topic:* send 1/s", "quotas")
    broker.control.quotas.note(QuotaExcess(quota, "orders", 7))
    page = await collect(add_events)
    labels = {"direction": "send", "kind": "topic", "quota": "*"}
    assert page.one("roquet_quota_excess_requests_total", **labels) == 1


async def test_open_half_messages_are_counted(
    broker: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    half = message(properties="TRAN_MSG\x01true\x02PGROUP\x01pg\x02")
    broker.bind(SendHandler.send)(half, peer)
    broker.bind(SendHandler.send)(half, peer)
    assert (await collect(add_events)).one("roquet_half_messages") == 2
    transactions = broker.delivery.transactions
    transactions.roll_back(transactions.queue.stored_at(broker.log.store.begin_position))
    page = await collect(add_events)
    assert page.one("roquet_half_messages") == 1
    assert page.one("rocketmq_rollback_messages_total", topic="orders") == 1


async def test_a_message_that_its_group_gives_up_is_a_dead_letter(
    broker: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    begin = broker.log.store.begin_position
    broker.bind(SendBackHandler.send_back)(
        SendBack(offset=begin, group="billing", delay_level=3), peer
    )
    assert (await collect(add_events)).of("rocketmq_send_to_dlq_messages_total") == []
    broker.bind(SendBackHandler.send_back)(
        SendBack(offset=begin, group="billing", delay_level=-1), peer
    )
    page = await collect(add_events)
    group = {"consumer_group": "billing", "topic": "orders"}
    assert page.one("rocketmq_send_to_dlq_messages_total", **group) == 1


async def test_a_commit_counts_with_its_time(
    broker: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(properties="TRAN_MSG\x01true\x02PGROUP\x01pg\x02"), peer)
    transactions = broker.delivery.transactions
    transactions.commit(transactions.queue.stored_at(broker.log.store.begin_position))
    page = await collect(add_events)
    assert page.one("rocketmq_commit_messages_total", topic="orders") == 1
    born_ago_s = broker.control.clock.now_ms() / 1000 - 1_700_000_000
    assert abs(page.one("roquet_transaction_seconds_sum", topic="orders") - born_ago_s) < 60


async def test_a_timed_message_counts_when_it_comes_and_when_it_is_delivered(
    measured: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    broker, timer = measured, measured.delivery.timer
    broker.bind(SendHandler.send)(message(properties="TIMER_DELAY_SEC\x011\x02"), peer)
    for _ in range(50):
        page = await collect(add_events)
        if page.of("rocketmq_timer_dequeue_total"):
            break
        await asyncio.sleep(0.1)
    assert page.one("rocketmq_timer_enqueue_total", topic="orders") == 1
    assert page.one("rocketmq_timer_dequeue_total", topic="orders") == 1
    assert page.one("rocketmq_delay_message_latency_seconds_count", topic="orders") == 1
    assert page.one("rocketmq_timing_messages", topic="orders") == 0
    assert timer.behind == 0
    page = await collect(add_traffic)
    assert page.one("rocketmq_messages_in_total", topic="orders", message_type="delay") == 2


async def test_waiting_messages_are_counted_by_the_time_until_they_are_due(
    measured: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    broker, timer = measured, measured.delivery.timer
    name = "rocketmq_timer_message_snapshot"
    page = await collect(add_events)
    assert {page.one(name, timer_bound_s=str(bound_s)) for bound_s in TIMER_BOUNDS_S} == {0}
    for delay_s in (40, 50, 200, 7_000, 100_000):
        broker.bind(SendHandler.send)(message(properties=f"TIMER_DELAY_SEC\x01{delay_s}\x02"), peer)
    async with asyncio.timeout(5):
        while timer.behind:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    page = await collect(add_events)
    counts = {bound_s: page.one(name, timer_bound_s=str(bound_s)) for bound_s in TIMER_BOUNDS_S}
    assert counts == {5: 0, 60: 2, 300: 1, 900: 0, 3600: 0, 14400: 1, 28800: 0, 86400: 0}
    assert page.one("rocketmq_timer_dequeue_lag", storage_type="local") == 5
    assert page.one("rocketmq_timing_messages", topic="orders") == 5


async def test_topics_that_wait_beyond_the_limit_are_one_series(
    broker: Broker, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.broker.metrics.traffic.SERIES_MAX", 2)
    for number, topic in enumerate("abcd", 1):
        broker.delivery.timer.context.metrics.add(topic, number, 0)
    page = await collect(add_events)
    assert page.one("rocketmq_timing_messages", topic="b") == 2
    assert page.one("rocketmq_timing_messages", topic=OTHER) == 7
    assert len(page.of("rocketmq_timing_messages")) == 3
    assert broker.log.counts.overflow == 2


async def test_pops_and_their_acknowledgements_are_counted(
    broker: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    revive = broker.delivery.revive
    checkpoint = PopCheckpoint(
        group="billing",
        topic="orders",
        queue_id=0,
        start=0,
        pop_ms=broker.control.clock.now_ms(),
        invisible_ms=60_000,
        delivered=1,
        left=1,
        revive_queue_id=0,
        revive_offset=0,
    )
    revive.give(checkpoint)
    page = await collect(add_events)
    assert page.one("rocketmq_pop_checkpoint_buffer_size") == 1
    assert page.one("rocketmq_pop_revive_lag_milliseconds", queue_id="0") == 1
    assert page.one("roquet_pop_revive_lag_messages", queue_id="0") == 1
    revive.settle(checkpoint, 1)
    page = await collect(add_events)
    noted = {
        kind: page.one("rocketmq_pop_revive_in_message_total", revive_message_type=kind)
        for kind in ("CK", "ACK")
    }
    assert noted == {"CK": 1, "ACK": 1}


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (513, "v5_5_0"),
        (512, "v5_5_0_snapshot"),
        (511, "v5_4_9"),
        (VERSION_GO_AWAY, "v5_3_1"),
        (VERSION_STANDARD_JSON, "v4_9_4"),
        (121, "121"),
        (0, "0"),
        (-7, "-7"),
        (2**31 - 1, "2147483647"),
    ],
)
def test_versions_are_named_as_apache_does(number: int, name: str) -> None:
    assert version_name(number) == name


def test_languages_are_named_as_apache_does() -> None:
    assert [language_name(number) for number in (0, 3, 13, 99)] == [
        "java", "python", "node_js", "99",
    ]  # fmt: skip


async def test_tables_and_requests_are_counted(broker: Broker, collect: Collect) -> None:
    broker.control.admission.gates["pull"].enter("peer", 10)
    broker.control.admission.gates["send"].enter("peer", 10)
    page = await collect(add_inventory)
    assert page.one("rocketmq_broker_permission") == 6
    assert page.one("rocketmq_topic_number") == len(list(broker.tables.topics))
    assert page.one("rocketmq_consumer_group_number") == len(list(broker.tables.groups))
    assert page.one("rocketmq_processor_watermark", processor="send") == 1
    assert page.one("rocketmq_processor_watermark", processor="pull") == 0
    assert page.one("roquet_waiting_requests", kind="pull") == 1
    assert page.one("roquet_waiting_requests_limit", kind="send") == 10_000


async def test_connections_are_counted_by_language_and_version(
    broker: Broker, collect: Collect
) -> None:
    consumer = ConsumerData(
        group_name="billing", subscription_data_set=[Subscription(topic="orders")]
    )
    for number, (language, version) in enumerate([(0, 513), (0, 513), (3, 401)]):
        peer = FakePeer()
        peer.language, peer.version = language, version
        broker.tables.clients.beat(
            peer,
            HeartbeatData(
                client_id=f"c{number}",
                producer_data_set=[ProducerData(group_name=name) for name in ("p", "q")],
                consumer_data_set=[consumer],
            ),
        )
    page = await collect(add_inventory)
    name = "rocketmq_producer_connections"
    assert page.one(name, language="java", version="v5_5_0", protocol_type="remoting") == 2
    assert page.one(name, language="python", version="v4_9_4") == 1
    page = await collect(lambda broker, page: add_consumers(broker, page, "billing"))
    assert page.one(
        "rocketmq_consumer_connections",
        consumer_group="billing", consume_mode="push", language="java", is_system="false",
    ) == 2  # fmt: skip
    assert not (await collect(lambda broker, page: add_consumers(broker, page, "none"))).values
