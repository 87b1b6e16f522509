import asyncio
import json
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, heartbeat_of, make_pull, make_send, refuses

from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.model.subscription import Subscription
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.admin import stats as calls
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


@pytest.fixture
def orders(broker: LocalBroker) -> LocalBroker:
    """A topic of two queues: three messages in the first, of which billing has handled two."""
    broker.put_topic("orders", 2)
    broker.tables.groups.find("billing", 0)
    for _ in range(3):
        broker.log.ingest.append(make_send(), 0, broker.peer)
    broker.tables.offsets.commit("billing", "orders", 0, 2)
    return broker


def queue(broker: LocalBroker, number: int) -> MessageQueue:
    return MessageQueue("orders", broker.control.settings.config.broker_name, number)


def listen(broker: LocalBroker, topic: str) -> None:
    broker.beat(heartbeat_of("c1", Subscription(topic=topic, sub_string="*")))


def get_all(broker: LocalBroker, offset: int = 0) -> None:
    broker.ask(make_pull(offset))


async def test_each_queue_of_a_topic_is_listed(orders: LocalBroker) -> None:
    reply = orders.ask(calls.GetTopicStats(topic="orders"))
    table = codec.loads(reply.body, calls.TopicStats).offset_table
    first, second = (table[queue(orders, number)] for number in (0, 1))
    assert (first.min_offset, first.max_offset) == (0, 3)
    assert first.last_update_timestamp == orders.log.store.store_time_at("orders", 0, 2)
    assert second == calls.QueueStats()


@pytest.mark.parametrize(
    "call", [calls.GetTopicStats(topic="x"), calls.GetTimeSpan(topic="x", group="g")]
)
async def test_an_unknown_topic_has_no_queues(
    broker: LocalBroker, call: calls.GetTopicStats | calls.GetTimeSpan
) -> None:
    with refuses(ResponseCode.TOPIC_NOT_EXIST, r"topic\[x\] not exist$"):
        broker.ask(call)


def spans(broker: LocalBroker, group: str) -> list[calls.TimeSpan]:
    reply = broker.ask(calls.GetTimeSpan(topic="orders", group=group))
    return codec.loads(reply.body, calls.TimeSpans).consume_time_span_set


async def test_the_time_span_of_a_groups_messages_is_reported(orders: LocalBroker) -> None:
    times = [orders.log.store.store_time_at("orders", 0, offset) for offset in range(3)]
    first, second = spans(orders, "billing")
    assert first.message_queue == queue(orders, 0)
    assert (first.min_time_stamp, first.max_time_stamp) == (times[0], times[2])
    assert first.consume_time_stamp == times[1]
    assert 0 <= first.delay_time < 60_000
    assert (first.min_time_stamp_str or "")[:3] == "202"
    assert (first.min_time_stamp_str or "").endswith(f":{times[0] % 1000:03d}")
    assert (second.min_time_stamp, second.max_time_stamp, second.delay_time) == (-1, -1, 0)


async def test_a_group_that_has_handled_all_is_not_late(orders: LocalBroker) -> None:
    orders.tables.offsets.commit("billing", "orders", 0, 3)
    assert spans(orders, "billing")[0].delay_time == 0


async def test_a_group_without_progress_is_late_as_the_first_message(orders: LocalBroker) -> None:
    span = spans(orders, "unknown")[0]
    assert span.consume_time_stamp == span.min_time_stamp
    assert 0 <= span.delay_time < 60_000


async def corrections(broker: LocalBroker, **fields: Any) -> dict[int, int]:
    reply = await broker.ask(calls.GetCorrections(topic="orders", **fields))
    return dict(codec.loads(reply.body, calls.Corrections).correction_offsets)


async def test_the_least_progress_of_all_groups_is_reported(orders: LocalBroker) -> None:
    orders.tables.offsets.commit("audit", "orders", 0, 1)
    orders.tables.offsets.commit("audit", "orders", 1, 0)
    assert await corrections(orders, compare_group="billing") == {0: 1, 1: 0}
    assert await corrections(orders, compare_group="billing", filter_groups="audit,x") == {0: 2}
    assert orders.tables.offsets.get("audit", "orders", 0) == 1, "asking changes nothing"


async def test_a_compared_group_behind_all_others_needs_no_correction(orders: LocalBroker) -> None:
    orders.tables.offsets.commit("audit", "orders", 0, 1)
    assert await corrections(orders, compare_group="audit", filter_groups="audit") == {0: 2**63 - 1}
    assert await corrections(orders, compare_group="unknown", filter_groups="audit,billing") == {}


async def view(broker: LocalBroker, name: str, key: str) -> calls.StatsData:
    reply = await broker.ask(calls.ViewStats(stats_name=name, stats_key=key))
    return codec.loads(reply.body, calls.StatsData)


async def test_statistics_are_read_by_name_and_key(orders: LocalBroker) -> None:
    get_all(orders)
    body = await view(orders, "TOPIC_PUT_NUMS", "orders")
    assert body.stats_minute == calls.StatsItem(), "no sample was taken yet"
    await orders.control.sampler.step(orders.control.clock.now_ms() + 10_000)
    for name, key in [
        ("TOPIC_PUT_NUMS", "orders"), ("GROUP_GET_NUMS", "orders@billing"),
        ("BROKER_PUT_NUMS", "DefaultCluster"), ("BROKER_GET_NUMS", "DefaultCluster"),
    ]:  # fmt: skip
        body = await view(orders, name, key)
        assert body.stats_minute is not None
        assert body.stats_minute.sum == 3
        assert (body.stats_minute.avgpt == 0) == name.startswith("BROKER")


@pytest.mark.parametrize(
    ("name", "key"),
    [("X", "orders"), ("TOPIC_PUT_NUMS", "no"), ("BROKER_PUT_NUMS", "no"), ("", "")],
)
async def test_an_unknown_statistic_is_refused(broker: LocalBroker, name: str, key: str) -> None:
    with refuses(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist$"):
        await view(broker, name, key)


async def all_progress(broker: LocalBroker, **fields: Any) -> calls.ConsumeStatsList:
    reply = await broker.ask(calls.GetAllConsumeStats(**fields))
    return codec.loads(reply.body, calls.ConsumeStatsList)


async def test_the_progress_of_all_groups_is_listed(orders: LocalBroker) -> None:
    get_all(orders)
    body = await all_progress(orders)
    by_group = {g: stats for groups in body.consume_stats_list for g, stats in groups.items()}
    assert by_group["TOOLS_CONSUMER"] == []
    (progress,) = by_group["billing"]
    first = progress.offset_table[queue(orders, 0)]
    assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (3, 2, 3)
    assert (body.total_diff, body.total_inflight_diff) == (1, 1)
    assert body.broker_addr == orders.log.address


async def test_only_ordered_topics_are_listed_on_request(orders: LocalBroker) -> None:
    assert (await all_progress(orders, is_order=True)).total_diff == 0
    orders.put_topic("orders", 2, order=True)
    assert (await all_progress(orders, is_order=True)).total_diff == 1


async def test_topics_that_are_gone_or_left_are_passed_over(orders: LocalBroker) -> None:
    orders.tables.offsets.commit("billing", "gone", 0, 5)
    listen(orders, "other")
    assert {"billing": []} in (await all_progress(orders)).consume_stats_list


async def test_other_tasks_run_while_thousands_of_groups_are_listed(orders: LocalBroker) -> None:
    names = [f"g{number}" for number in range(2_000)]
    orders.tables.groups.begin_put([SubscriptionGroup(group_name=name) for name in names], 0)
    for name in names:
        orders.tables.offsets.commit(name, "orders", 0, 1)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    reply = await orders.ask(calls.GetAllConsumeStats())
    task.cancel()
    assert turns > 1_000
    assert reply.body.count(b'"brokerOffset"') == 2 * 2_001


async def test_a_broker_without_replicas_reports_none(orders: LocalBroker) -> None:
    reply = orders.ask(calls.GetHaStatus())
    status = json.loads(reply.body)
    assert status["master"] is True
    assert status["masterCommitLogMaxOffset"] == orders.log.store.end_position
    assert (status["haConnectionInfo"], status["inSyncSlaveNums"]) == ([], 0)


async def test_epochs_are_a_matter_of_controllers(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused, match="only for controllerMode"):
        broker.ask(calls.GetEpochs())


async def test_a_topic_says_which_one_of_its_name_it_is(orders: LocalBroker) -> None:
    reply = orders.ask(calls.GetTopicStats(topic="orders"))
    assert codec.loads(reply.body, calls.TopicStats).topic_id == orders.tables.topics.ids["orders"]
