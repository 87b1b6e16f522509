import asyncio
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, local, make_send, refuses

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.admin import inspection as handlers
from roquet.broker.replication.role import Role
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.replica_copies import WAITERS_MAX
from roquet.model.subscription import ConsumerData, HeartbeatData, ProducerData, Subscription
from roquet.model.topic import SubscriptionGroup
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.admin import inspection as calls
from roquet.wire.calls.bodies import RequestMode, TopicList
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.fastjson import codec


@pytest.fixture
def shop(broker: LocalBroker) -> LocalBroker:
    """One client: a producer of the group shop, and a member of billing that listens to orders."""
    wish = Subscription(topic="orders", sub_string="new")
    data = HeartbeatData(
        client_id="c1",
        producer_data_set=[ProducerData(group_name="shop")],
        consumer_data_set=[ConsumerData(group_name="billing", subscription_data_set=[wish])],
    )
    broker.peer.version, broker.peer.language = 513, Language.GO
    broker.ask(Heartbeat(body=codec.dumps(data)))
    return broker


@pytest.fixture
def orders(broker: LocalBroker) -> LocalBroker:
    broker.put_topic("orders", 2)
    for _ in range(3):
        broker.log.ingest.append(make_send(properties="TAGS\x01new\x02"), 0, broker.peer)
    return broker


async def test_the_members_of_a_producer_group_are_listed(shop: LocalBroker) -> None:
    reply = shop.ask(calls.GetProducers(producer_group="shop"))
    (connection,) = codec.loads(reply.body, calls.ProducerConnection).connection_set
    assert (connection.client_id, connection.client_addr) == ("c1", shop.peer.address)
    assert (connection.language, connection.version) == (Language.GO, 513)


async def test_an_unknown_producer_group_is_refused(broker: LocalBroker) -> None:
    with refuses(ResponseCode.SYSTEM_ERROR, r"the producer group\[x\] not exist$"):
        broker.ask(calls.GetProducers(producer_group="x"))


async def test_all_producers_are_listed_with_their_last_heartbeat(shop: LocalBroker) -> None:
    reply = shop.ask(calls.GetAllProducers())
    table = codec.loads(reply.body, calls.ProducerTable).data
    (producer,) = table["shop"]
    assert (producer.client_id, producer.remote_ip) == ("c1", f"/{shop.peer.address}")
    assert abs(producer.last_update_timestamp - shop.control.clock.now_ms()) < 60_000


async def test_without_producers_the_table_is_empty(broker: LocalBroker) -> None:
    assert broker.ask(calls.GetAllProducers()).body == b'{"data":{}}'


async def test_very_many_producer_groups_are_listed_in_slices(broker: LocalBroker) -> None:
    groups = [ProducerData(group_name=f"g{number}") for number in range(1_000)]
    broker.tables.clients.beat(broker.peer, HeartbeatData(client_id="c1", producer_data_set=groups))
    later = broker.ask(calls.GetAllProducers())
    assert len(codec.loads((await later).body, calls.ProducerTable).data) == 1_000


def groups(broker: LocalBroker, topic: str) -> list[str]:
    reply = broker.ask(calls.GetGroupsOfTopic(topic=topic))
    return codec.loads(reply.body, calls.GroupList).group_list


async def test_groups_that_subscribe_to_or_have_read_a_topic_are_listed(shop: LocalBroker) -> None:
    shop.tables.offsets.commit("audit", "orders", 0, 1)
    shop.tables.offsets.commit("billing", "orders", 0, 1)
    assert groups(shop, "orders") == ["audit", "billing"]
    assert groups(shop, "unknown") == []


async def test_the_topics_in_which_a_group_has_progress_are_listed(broker: LocalBroker) -> None:
    for topic in ("paid", "orders"):
        broker.tables.offsets.commit("billing", topic, 0, 1)
    reply = broker.ask(calls.GetTopicsOfGroup(group="billing"))
    body = codec.loads(reply.body, TopicList)
    assert (body.topic_list, body.broker_addr) == (["orders", "paid"], broker.log.address)


async def test_a_groups_subscription_to_a_topic_is_reported(shop: LocalBroker) -> None:
    reply = shop.ask(calls.GetSubscription(group="billing", topic="orders"))
    answer = codec.loads(reply.body, calls.SubscriptionAnswer)
    assert (answer.group, answer.topic) == ("billing", "orders")
    assert answer.subscription_data is not None
    assert answer.subscription_data.sub_string == "new"


async def test_an_offline_group_has_no_subscription(broker: LocalBroker) -> None:
    call = calls.GetSubscription(group="billing", topic="orders")
    assert broker.ask(call).body == b'{"group":"billing","topic":"orders"}'


async def test_system_topics_are_listed(broker: LocalBroker) -> None:
    reply = broker.ask(calls.GetSystemTopics())
    topics = codec.loads(reply.body, TopicList).topic_list
    assert {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        broker.control.settings.config.broker_name,
        "DefaultCluster",
    } < {*topics}
    assert "CHECKPOINT_TOPIC" in topics, "no broker of ours has it"


def entries(broker: LocalBroker, **fields: Any) -> Any:
    arguments = {"topic": "orders", "queue_id": 0, "index": 0, "count": 10, **fields}
    return broker.ask(calls.GetEntries(**arguments))


async def test_the_entries_of_a_queue_are_listed(orders: LocalBroker) -> None:
    body = codec.loads(entries(orders, index=1).body, calls.QueueEntries)
    assert (body.min_queue_index, body.max_queue_index) == (0, 3)
    size = orders.log.store.end_position // 3
    assert [(e.physic_offset, e.physic_size, e.tags_code) for e in body.queue_data or []] == [
        (size, size, 108960), (2 * size, size, 108960),
    ]  # fmt: skip
    assert body.filter_data is None


@pytest.mark.parametrize("count", [0, -2, -(2**31)])
async def test_no_count_gives_no_entries(orders: LocalBroker, count: int) -> None:
    assert codec.loads(entries(orders, count=count).body, calls.QueueEntries).queue_data == []


async def test_an_absurd_count_gives_what_there_is(orders: LocalBroker) -> None:
    body = codec.loads(entries(orders, count=2**31 - 1).body, calls.QueueEntries)
    assert len(body.queue_data or []) == 3


async def test_an_answer_is_bounded(orders: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "ENTRIES_MAX", 2)
    body = codec.loads(entries(orders, count=1000).body, calls.QueueEntries)
    assert len(body.queue_data or []) == 2


@pytest.mark.parametrize("index", [-5, 3, 999, 2**63 - 1])
async def test_an_offset_outside_the_queue_is_named(orders: LocalBroker, index: int) -> None:
    reply = entries(orders, index=index)
    assert (reply.code, reply.body) == (0, b"")
    assert reply.remark == f"Index {index} of 0@orders is not exist!"


@pytest.mark.parametrize("place", [{"queue_id": 1}, {"queue_id": -1}, {"topic": "no"}])
async def test_an_absent_queue_is_refused(orders: LocalBroker, place: dict[str, Any]) -> None:
    name = f"{place.get('queue_id', 0)}@{place.get('topic', 'orders')}"
    with refuses(ResponseCode.SYSTEM_ERROR, f"{name} is not exist!$"):
        entries(orders, **place)


@pytest.mark.usefixtures("shop")
async def test_a_groups_subscription_is_reported_with_the_entries(orders: LocalBroker) -> None:
    body = codec.loads(entries(orders, consumer_group="billing").body, calls.QueueEntries)
    assert body.filter_data == "null"
    assert body.subscription_data is not None
    assert body.subscription_data.sub_string == "new"
    body = codec.loads(entries(orders, consumer_group="x").body, calls.QueueEntries)
    assert body.filter_data == "x@orders is not online!"
    assert body.subscription_data is None


async def test_an_sql_filter_is_reported_with_its_expression(orders: LocalBroker) -> None:
    wish = Subscription(topic="orders", sub_string="a > 1", expression_type="SQL92", sub_version=7)
    data = ConsumerData(group_name="billing", subscription_data_set=[wish])
    orders.tables.clients.beat(orders.peer, HeartbeatData(client_id="c1", consumer_data_set=[data]))
    body = codec.loads(entries(orders, consumer_group="billing").body, calls.QueueEntries)
    assert body.filter_data == (
        '{\n\t"clientVersion":7,\n\t"consumerGroup":"billing",\n\t"dead":false,'
        '\n\t"expression":"a > 1",\n\t"expressionType":"SQL92",\n\t"topic":"orders"\n}'
    )


async def test_progress_is_reported_with_the_pulled_offsets(broker: LocalBroker) -> None:
    broker.tables.offsets.commit("billing", "orders", 1, 5)
    broker.control.statistics.got("orders", "billing", 1, 1).pulled[1] = 7
    broker.control.statistics.got("orders", "popping", 1, 1)
    reply = await broker.ask(calls.GetAllOffsets())
    body = codec.loads(reply.body, calls.AllOffsets)
    assert body.offset_table["orders@billing"] == {1: 5}
    assert body.pull_offset_table == {"orders@billing": {1: 7}}
    assert body.data_version is not None


async def test_the_delay_levels_in_use_are_listed(broker: LocalBroker) -> None:
    broker.tables.delay_offsets.advance(3, 2)
    broker.tables.delay_offsets.advance(4, 0)
    assert b'"offsetTable":{3:2}' in broker.ask(calls.GetDelayOffsets()).body


async def test_request_modes_are_listed(broker: LocalBroker) -> None:
    broker.tables.request_modes.put(
        RequestMode(topic="orders", consumer_group="billing", mode="POP")
    )
    reply = broker.ask(calls.GetRequestModes())
    assert reply.body == (
        b'{"messageRequestModeMap":{"orders":{"billing":{"consumerGroup":"billing","mode":"POP",'
        b'"popShareQueueNum":0,"topic":"orders"}}}}'
    )


async def offsets_of(broker: LocalBroker, **fields: Any) -> calls.AllOffsetsReply:
    call = calls.GetAllOffsets(**fields)
    reply: calls.AllOffsetsReply = await broker.ask(call)
    return reply


@in_virtual_time
async def test_a_replica_gets_what_has_changed_as_soon_as_there_is_any() -> None:
    config = BrokerConfig(host="127.0.0.1", port=0)
    async with BrokerServer(config, this_loop().clock) as server:
        broker, clock = local(server.broker), this_loop().clock
        await asyncio.sleep(3)  # the services note their own progress
        broker.tables.offsets.commit("a", "orders", 0, 1)
        first = await offsets_of(broker, known_editions="", wait_millis=5_000)
        assert codec.loads(first.body, calls.AllOffsets).offset_table["orders@a"] == {0: 1}
        assert first.log_end == broker.log.store.end_position
        assert first.editions is not None
        began_ms = clock.monotonic_ms()
        held = asyncio.create_task(
            offsets_of(broker, known_editions=first.editions, wait_millis=5_000)
        )
        await asyncio.sleep(1)
        assert not held.done()
        broker.tables.offsets.commit("b", "orders", 1, 2)
        second = await held
        assert clock.monotonic_ms() - began_ms <= 1_000 + handlers.CHANGE_LOOK_MS
        assert codec.loads(second.body, calls.AllOffsets).offset_table == {"orders@b": {1: 2}}
        broker.tables.groups.put(SubscriptionGroup(group_name="g"), 0)
        third = await offsets_of(broker, known_editions=second.editions, wait_millis=5_000)
        assert codec.loads(third.body, calls.AllOffsets).offset_table == {}
        assert third.editions != second.editions
        began_ms = clock.monotonic_ms()
        fourth = await offsets_of(broker, known_editions=third.editions, wait_millis=10**9)
        assert fourth.editions == third.editions
        assert 5_000 <= clock.monotonic_ms() - began_ms <= 5_100


async def test_editions_of_a_process_before_get_everything_at_once(broker: LocalBroker) -> None:
    broker.tables.offsets.commit("a", "orders", 0, 1)
    reply = await offsets_of(broker, known_editions="1-0-0-0-0", wait_millis=5_000)
    assert codec.loads(reply.body, calls.AllOffsets).offset_table == {"orders@a": {0: 1}}


async def test_a_broker_that_stops_lets_no_replica_wait(broker: LocalBroker) -> None:
    first = await offsets_of(broker, known_editions="")
    broker.log.arrivals.close()
    async with asyncio.timeout(2):
        await offsets_of(broker, known_editions=first.editions, wait_millis=5_000)


async def test_others_get_no_editions(broker: LocalBroker) -> None:
    reply = await offsets_of(broker)
    assert (reply.editions, reply.log_end) == (None, None)


async def test_a_broker_that_leads_no_more_says_no_end_of_its_log(broker: LocalBroker) -> None:
    assert (await offsets_of(broker, known_editions="")).log_end == 0
    broker.replication.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
    reply = await offsets_of(broker, known_editions="")
    assert reply.editions is not None
    assert reply.log_end is None


async def test_a_replica_without_a_place_to_wait_is_answered_at_once(broker: LocalBroker) -> None:
    first = await offsets_of(broker, known_editions="")
    broker.tables.change_waiters.count = WAITERS_MAX
    async with asyncio.timeout(2):
        await offsets_of(broker, known_editions=first.editions, wait_millis=5_000)
    assert broker.tables.change_waiters.count == WAITERS_MAX
