import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import (
    LocalBroker,
    failing,
    make_pop,
    make_pull,
    make_send,
    not_none,
    refuses,
)

from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.model.errors import CallRefused, FieldError, StoreError, StoreFull
from roquet.model.topic import GroupTable, SubscriptionGroup, TopicConfig
from roquet.rules.consumption.ordered_pop import hold
from roquet.store.store import Draft
from roquet.wire.calls.admin import topic as calls
from roquet.wire.calls.admin.topic import ForbidGroup
from roquet.wire.calls.bodies import (
    GroupForbidden,
    SubscriptionGroups,
    TopicConfigs,
    TopicsOfBroker,
)
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records.record import decode


async def create(broker: LocalBroker, topic: str = "orders", **fields: Any) -> None:
    arguments = {"read_queue_nums": 4, "write_queue_nums": 4, "perm": 6, **fields}
    await broker.ask(calls.CreateTopic(topic=topic, **arguments))


def get(broker: LocalBroker, topic: str = "orders") -> TopicConfig:
    reply = broker.ask(calls.GetTopic(topic=topic))
    return codec.loads(reply.body, TopicConfig)


async def test_a_topic_is_created_and_changed(broker: LocalBroker) -> None:
    await create(broker)
    assert get(broker) == TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)
    await create(broker, write_queue_nums=8, order=True)
    assert (get(broker).write_queue_nums, get(broker).order) == (8, True)


async def test_attributes_are_added_and_taken_away(broker: LocalBroker) -> None:
    await create(broker, attributes="+message.type=FIFO,+reserve.time=1")
    await create(broker, attributes="-reserve.time, +message.type=DELAY")
    assert get(broker).attributes == {"message.type": "DELAY"}


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": ""},
        {"topic": "a b"},
        {"topic": "x" * 128},
        {"topic": "TBW102"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "rmq_sys_mine"},
        {"topic": "%DLQ%"},
        {"topic": "%RETRY%"},
        {"read_queue_nums": -1},
        {"perm": 99},
        {"attributes": "message.type=FIFO"},
        {"attributes": "+message.type"},
    ],
)
async def test_an_impossible_topic_is_refused(broker: LocalBroker, fields: dict[str, Any]) -> None:
    before = broker.tables.topics.version
    with refuses(ResponseCode.INVALID_PARAMETER):
        await create(broker, **fields)
    assert broker.tables.topics.version == before


async def test_a_deleted_topic_takes_its_messages_and_progress_along(broker: LocalBroker) -> None:
    broker.send()
    broker.tables.offsets.commit("billing", "orders", 0, 1)
    await broker.ask(calls.DeleteTopic(topic="orders"))
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    assert broker.log.store.bounds("orders", 0) == (0, 0)
    with refuses(ResponseCode.TOPIC_NOT_EXIST):
        get(broker)
    await broker.ask(calls.DeleteTopic(topic="orders"))


async def test_files_of_a_deleted_topic_that_remain_are_logged(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send()

    monkeypatch.setattr(broker.log.store, "clear_removed", failing(StoreError("not yours")))
    assert (await broker.ask(calls.DeleteTopic(topic="orders"))).code == 0
    assert broker.log.store.bounds("orders", 0) == (0, 0)
    assert "files of deleted topics are left until the next start: not yours" in caplog.text


async def test_a_topic_may_be_made_again_after_it_was_deleted(broker: LocalBroker) -> None:
    broker.send(b"old")
    await broker.ask(calls.DeleteTopic(topic="orders"))
    reply = broker.send(b"new")
    assert (reply.code, reply.queue_offset) == (0, 0)
    assert broker.log.store.bounds("orders", 0) == (0, 1)


async def test_the_systems_topics_cannot_be_deleted(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused):
        await broker.ask(calls.DeleteTopic(topic="TBW102"))


async def test_all_topics_are_listed_with_their_version(broker: LocalBroker) -> None:
    await create(broker)
    reply = broker.ask(calls.GetTopics())
    table = codec.loads(reply.body, TopicsOfBroker)
    assert {"orders", "TBW102", "BenchmarkTest"} <= table.topic_config_table.keys()
    assert table.data_version == broker.tables.topics.version


async def test_a_group_is_created_changed_and_deleted(broker: LocalBroker) -> None:
    group = SubscriptionGroup(group_name="billing", retry_max_times=3)
    await broker.ask(calls.CreateGroup(body=codec.dumps(group)))
    assert codec.loads(broker.ask(calls.GetGroup(group="billing")).body, SubscriptionGroup) == group
    groups = broker.ask(calls.GetGroups())
    assert codec.loads(groups.body, GroupTable).subscription_group_table["billing"] == group

    broker.tables.offsets.commit("billing", "orders", 0, 1)
    broker.coordination.rebalances.add("billing")
    await broker.ask(calls.DeleteGroup(group_name="billing"))
    assert list(broker.coordination.rebalances.items()) == []
    assert broker.tables.offsets.get("billing", "orders", 0) == 1
    await broker.ask(calls.DeleteGroup(group_name="billing", clean_offset=True))
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    broker.peer.language = Language.PYTHON
    with refuses(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        broker.ask(calls.GetGroup(group="billing"))


async def test_apache_tools_get_default_settings_of_an_unknown_group(broker: LocalBroker) -> None:
    reply = broker.ask(calls.GetGroup(group="gone"))
    assert codec.loads(reply.body, SubscriptionGroup) == SubscriptionGroup(group_name="gone")
    assert broker.tables.groups.get("gone") is None, "a question makes no group"
    broker.configure(autoCreateSubscriptionGroup="false")
    with refuses(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        broker.ask(calls.GetGroup(group="gone"))


async def test_a_group_that_cannot_be_is_refused(broker: LocalBroker) -> None:
    group = SubscriptionGroup(group_name="no good name")
    with refuses(ResponseCode.INVALID_PARAMETER):
        await broker.ask(calls.CreateGroup(body=codec.dumps(group)))
    with pytest.raises(CallRefused):
        await broker.ask(calls.DeleteGroup(group_name="TOOLS_CONSUMER"))
    with pytest.raises(FieldError):
        await broker.ask(calls.CreateGroup(body=b"{"))


# -- many at a time ------------------------------------------------------------------------------


async def test_attributes_of_a_group_stay_until_they_are_changed(broker: LocalBroker) -> None:
    async def attributes_after(**attributes: str) -> dict[str, str]:
        group = SubscriptionGroup(group_name="g", attributes=attributes)
        await broker.ask(calls.CreateGroup(body=codec.dumps(group)))
        return not_none(broker.tables.groups.get("g")).attributes

    factor = {"priority.factor": "50"}
    assert await attributes_after(**{"+priority.factor": "50"}) == factor
    assert await attributes_after() == factor
    with refuses(ResponseCode.INVALID_PARAMETER, r"priority.factor: '101' is no number from 0 to"):
        await attributes_after(**{"+priority.factor": "101"})
    assert await attributes_after(**{"-priority.factor": "", "mine": "x"}) == {"mine": "x"}


async def test_many_topics_are_created_at_once(broker: LocalBroker) -> None:
    await create(broker, "old", attributes="+message.type=FIFO")
    before = broker.tables.topics.version.counter
    made = TopicConfigs(
        topic_config_list=[
            TopicConfig(topic_name="new", write_queue_nums=3, attributes={"+reserve.time": "5"}),
            TopicConfig(topic_name="plain", attributes={"message.type": "DELAY"}),
            TopicConfig(topic_name="old", attributes={"-message.type": ""}),
        ]
    )
    await broker.ask(calls.CreateTopics(body=codec.dumps(made)))
    assert get(broker, "new").attributes == {"reserve.time": "5"}
    assert get(broker, "plain").attributes == {"message.type": "DELAY"}
    assert get(broker, "old").attributes == {}
    assert broker.tables.topics.version.counter == before + 1


@pytest.mark.parametrize(
    "bad",
    [
        TopicConfig(topic_name="TBW102"),
        TopicConfig(topic_name="a b"),
        TopicConfig(topic_name="t", attributes={"+color": "red"}),
        TopicConfig(topic_name="t", read_queue_nums=1_000_000),
        TopicConfig(topic_name="t", topic_filter_type="SOME_TAGS"),
    ],
)
async def test_one_invalid_topic_prevents_them_all(broker: LocalBroker, bad: TopicConfig) -> None:
    made = TopicConfigs(topic_config_list=[TopicConfig(topic_name="good"), bad])
    with refuses(ResponseCode.INVALID_PARAMETER):
        await broker.ask(calls.CreateTopics(body=codec.dumps(made)))
    assert broker.tables.topics.get("good") is None


async def test_a_disk_that_does_not_take_the_table_makes_no_topic(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(broker)

    def full() -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(broker.tables.topics, "saving", lambda: full)
    made = TopicConfigs(
        topic_config_list=[TopicConfig(topic_name="new"), TopicConfig(topic_name="orders", perm=4)]
    )
    with pytest.raises(StoreFull):
        await broker.ask(calls.CreateTopics(body=codec.dumps(made)))
    assert broker.tables.topics.get("new") is None
    assert get(broker).perm == 6


async def test_several_groups_are_created_all_or_none(broker: LocalBroker) -> None:
    first = SubscriptionGroup(group_name="one", attributes={"+a": "1", "+b": "2"})
    two = SubscriptionGroup(group_name="two", retry_max_times=2)
    made = SubscriptionGroups(group_config_list=[first, two])
    await broker.ask(calls.CreateGroups(body=codec.dumps(made)))
    group = not_none(broker.tables.groups.get("one"))
    assert group.attributes == {"a": "1", "b": "2"}
    assert broker.tables.groups.get("two") == two

    changed = msgspec.structs.replace(first, attributes={"-a": "", "+b": "3"})
    bad = SubscriptionGroup(group_name="no good name")
    made = SubscriptionGroups(group_config_list=[changed, bad])
    with pytest.raises(CallRefused):
        await broker.ask(calls.CreateGroups(body=codec.dumps(made)))
    assert broker.tables.groups.get("one") == group
    await broker.ask(calls.CreateGroup(body=codec.dumps(changed)))
    assert not_none(broker.tables.groups.get("one")).attributes == {"b": "3"}


# -- what a deleted topic takes along ------------------------------------------------------------


async def test_popped_messages_of_a_deleted_topic_do_not_return(broker: LocalBroker) -> None:
    broker.send()
    broker.tables.groups.find("billing", 0)
    assert broker.ask(make_pop()).code == 0
    for retry in ("%RETRY%billing_orders", "%RETRY%billing+orders"):
        broker.tables.topics.create_for_group(retry, 1, 0)
        broker.log.store.append(Draft(retry, 0, b"x", b""), 0)
        broker.tables.offsets.commit("billing", retry, 0, 1)
    broker.tables.ordered_pops.put("billing", "orders", 0, hold(None, [0], 1, 60_000, None))
    broker.tables.offset_resets.put("billing", "orders", 0, 0)
    broker.tables.groups.begin_forbid("billing", "orders", 0, readable=False)

    await broker.ask(calls.DeleteTopic(topic="orders"))
    assert [t for t in broker.log.store.topics() if "orders" in t] == []
    assert [t.topic_name for t in broker.tables.topics if "orders" in t.topic_name] == []
    assert broker.tables.offsets.topics("billing") == []
    assert len(broker.delivery.revive.in_flight) == 0
    assert broker.tables.ordered_pops.get("billing", "orders", 0) is None
    assert not broker.tables.offset_resets.pending
    assert broker.tables.groups.may_read("billing", "orders")


@pytest.mark.parametrize("settings", [{"retry_topic_v2": False}, {}])
async def test_deleting_a_topic_leaves_the_failed_messages_of_another_that_shares_a_retry_topic(
    broker: LocalBroker,
) -> None:
    failed = [("pay", "eu_orders"), ("pay_eu", "orders")]
    for group, topic in failed:
        broker.tables.groups.find(group, 0)
        broker.send(topic.encode(), topic=topic)
        assert await pop_one(broker, group, topic) == topic.encode()
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 60_000)
    shared = "%RETRY%pay_eu_orders"
    broker.tables.topics.create_for_group(shared, 1, 0)
    for group, topic in failed:  # in flight again, and some that name no topic
        broker.send(b"old", topic=shared)
        assert await pop_one(broker, group, topic) in (topic.encode(), b"old")

    await broker.ask(calls.DeleteTopic(topic="eu_orders"))
    broker.send(b"new", topic="eu_orders")
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 60_000)
    found = {await pop_one(broker, "pay_eu", "orders") for _ in range(4)}
    assert found == {b"orders", b"old", None}
    assert await pop_one(broker, "pay", "eu_orders") == b"new"
    assert await pop_one(broker, "pay", "eu_orders") is None


async def test_deleting_a_topic_deletes_what_failed_in_deleted_groups(broker: LocalBroker) -> None:
    retry_topic = "%RETRY%pay+orders"
    broker.tables.topics.create_for_group(retry_topic, 1, 0)
    broker.send(b"failed", topic="orders")
    assert not broker.tables.offsets.groups_of("orders")
    await broker.ask(calls.DeleteTopic(topic="orders"))
    assert broker.tables.topics.get(retry_topic) is None


async def test_deleting_a_topic_leaves_the_retry_topic_of_that_group(broker: LocalBroker) -> None:
    broker.send()
    broker.tables.groups.find("billing", 0)
    assert await pop_one(broker, "billing", "orders") == b"body"
    broker.tables.groups.find("billing_orders", 0)
    broker.send(topic="%RETRY%billing_orders")
    await broker.ask(calls.DeleteTopic(topic="orders"))
    assert broker.log.store.bounds("%RETRY%billing_orders", 0) == (0, 1)


async def pop_one(broker: LocalBroker, group: str, topic: str) -> bytes | None:
    call = make_pop(consumer_group=group, topic=topic, max_msg_nums=1)
    for _ in range(4):  # one pop passes at most as many messages of others as it may return
        reply = broker.ask(call)
        if reply.body:
            return decode(reply.body).body
    return None


async def test_a_waiting_pull_is_refused_when_its_topic_is_deleted(broker: LocalBroker) -> None:
    broker.send()
    broker.tables.groups.find("billing", 0)
    waiting = [
        broker.ask(make_pull(1, sys_flag=2 | 4, suspend_timeout_millis=60_000)),
        broker.ask(make_pop(topic="orders", poll_time=60_000, queue_id=1)),
    ]
    tasks = [asyncio.ensure_future(answer) for answer in waiting if isinstance(answer, Awaitable)]
    assert len(tasks) == 2
    await asyncio.sleep(0)
    await broker.ask(calls.DeleteTopic(topic="orders"))
    for task in tasks:
        with refuses(ResponseCode.TOPIC_NOT_EXIST):
            await asyncio.wait_for(task, 5)
    assert broker.tables.offsets.topics("billing") == []


async def test_a_blank_name_is_refused_in_apaches_words(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused, match="The specified topic is blank"):
        await broker.ask(calls.DeleteTopic(topic=" "))


async def test_a_deleted_group_takes_its_holds_along(broker: LocalBroker) -> None:
    broker.tables.groups.find("billing", 0)
    broker.tables.ordered_pops.put("billing", "orders", 0, hold(None, [0], 1, 60_000, None))
    broker.tables.offset_resets.put("billing", "orders", 0, 0)
    await broker.ask(calls.DeleteGroup(group_name="billing", clean_offset=True))
    assert broker.tables.ordered_pops.get("billing", "orders", 0) is None
    assert not broker.tables.offset_resets.pending


# -- what a group may not read -------------------------------------------------------------------


async def forbid(broker: LocalBroker, readable: bool | None) -> bool | None:
    reply = await broker.ask(ForbidGroup(group="billing", topic="orders", readable=readable))
    assert reply.code == 0
    return codec.loads(reply.body, GroupForbidden).readable


async def test_a_group_is_forbidden_a_topic_and_allowed_again(broker: LocalBroker) -> None:
    broker.send()
    broker.tables.groups.find("billing", 0)
    assert await forbid(broker, None) is True
    assert await forbid(broker, False) is False
    assert await forbid(broker, None) is False
    table = broker.tables.groups.content().forbidden_table
    assert table == {"billing": {"orders": 4}}

    refused = broker.ask(make_pull())
    assert (refused.code, refused.forbidden_type) == (ResponseCode.NO_PERMISSION, 5)
    assert refused.remark == "the consumer group[billing] is forbidden for topic[orders]"
    with refuses(ResponseCode.NO_PERMISSION, "is forbidden for topic"):
        broker.ask(make_pop())
    assert broker.ask(make_pull(consumer_group="others")).code == 0

    assert await forbid(broker, True) is True
    assert broker.tables.groups.content().forbidden_table == {}
    assert broker.ask(make_pull()).code == 0


async def test_a_waiting_pull_is_refused_when_reading_is_forbidden(broker: LocalBroker) -> None:
    broker.send()
    broker.tables.groups.find("billing", 0)
    held = broker.ask(make_pull(1, sys_flag=2 | 4, suspend_timeout_millis=60_000))
    assert isinstance(held, Awaitable)
    task = asyncio.ensure_future(held)
    await asyncio.sleep(0)
    await forbid(broker, False)
    reply: Any = await asyncio.wait_for(task, 5)
    assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 5)


# -- read and write queues -----------------------------------------------------------------------


async def test_a_topic_shrinks_first_for_writers_then_for_readers(broker: LocalBroker) -> None:
    await create(broker, read_queue_nums=8, write_queue_nums=8)
    for queue_id in range(8):
        broker.send(queue_id=queue_id)
    await create(broker, read_queue_nums=8, write_queue_nums=4)
    anywhere = {send_anywhere(broker) for _ in range(50)}
    assert anywhere == {0, 1, 2, 3}
    on_its_way = broker.send(queue_id=7)
    assert (on_its_way.code, on_its_way.queue_offset) == (0, 1)
    reply = broker.ask(make_pull(queue_id=7))
    assert (reply.code, reply.max_offset) == (0, 2)

    await create(broker, read_queue_nums=4, write_queue_nums=4)
    assert broker.send(queue_id=7).code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(CallRefused, match=r"queueId\[7\] is illegal"):
        broker.ask(make_pull(queue_id=7))
    await create(broker, read_queue_nums=8, write_queue_nums=8)
    assert broker.log.store.bounds("orders", 7) == (0, 2)


async def test_a_topic_may_be_read_from_fewer_queues_than_written_to(broker: LocalBroker) -> None:
    await create(broker, read_queue_nums=2, write_queue_nums=4)
    assert broker.send(queue_id=3).code == 0
    with pytest.raises(CallRefused):
        broker.ask(make_pull(queue_id=3))


def send_anywhere(broker: LocalBroker) -> int:
    reply = broker.ask(make_send(queue_id=-1))
    assert reply.code == 0
    return int(reply.queue_id)


async def test_an_unknown_filter_type_is_refused_as_java_reads_it(broker: LocalBroker) -> None:
    with refuses(ResponseCode.SYSTEM_ERROR, r"topicFilterType = \[SOME\] value invalid"):
        await create(broker, topic_filter_type="SOME")


async def topics_page(broker: LocalBroker, **fields: Any) -> TopicsOfBroker:
    reply = broker.ask(calls.GetTopics(**fields))
    if not isinstance(reply, calls.TopicsReply):
        reply = await reply
    return codec.loads(reply.body, TopicsOfBroker)


async def test_topics_come_with_ids_and_at_first_with_the_deleted(broker: LocalBroker) -> None:
    for topic in ("orders", "aaa"):
        broker.log.ingest.append(make_send(topic=topic), 0, broker.peer)
        broker.put_topic(topic)
    position = broker.log.store.end_position
    broker.make(TopicDeletion).delete(["orders"])
    whole = await topics_page(broker)
    assert whole.topic_ids == {"aaa": broker.tables.topics.ids["aaa"]}
    assert whole.deleted_topics == {"orders": position}
    version = codec.dumps(whole.data_version).decode()
    first = await topics_page(broker, topic_seq=0, max_topic_num=1)
    second = await topics_page(broker, topic_seq=1, max_topic_num=100, data_version=version)
    assert first.deleted_topics == {"orders": position}
    assert second.deleted_topics is None
    assert {*(first.topic_ids or {}), *(second.topic_ids or {})} == {"aaa"}
