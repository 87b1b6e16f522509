from typing import Any

import pytest

from roquet.broker.broker import Broker
from roquet.broker.handlers import topic as handlers
from roquet.broker.handlers.send import send
from roquet.model.errors import CallRefused, FieldError
from roquet.model.topic import GroupTable, SubscriptionGroup, TopicConfig
from roquet.wire import dialect
from roquet.wire.calls import topic as calls
from roquet.wire.calls.bodies import TopicsOfBroker
from roquet.wire.codes import ResponseCode


def create(broker: Broker, peer: Any, topic: str = "orders", **fields: Any) -> None:
    given = {"read_queue_nums": 4, "write_queue_nums": 4, "perm": 6, **fields}
    handlers.create_topic(broker, calls.CreateTopic(topic=topic, **given), peer)


def get(broker: Broker, peer: Any, topic: str = "orders") -> TopicConfig:
    reply = handlers.topic(broker, calls.GetTopic(topic=topic), peer)
    return dialect.loads(reply.body, TopicConfig)


async def test_a_topic_is_created_and_changed(broker: Broker, peer: Any) -> None:
    create(broker, peer)
    assert get(broker, peer) == TopicConfig(
        topic_name="orders", read_queue_nums=4, write_queue_nums=4
    )
    create(broker, peer, write_queue_nums=8, order=True)
    assert (get(broker, peer).write_queue_nums, get(broker, peer).order) == (8, True)


async def test_attributes_are_added_and_taken_away(broker: Broker, peer: Any) -> None:
    create(broker, peer, attributes="+message.type=FIFO,+reserve.time=1")
    create(broker, peer, attributes="-reserve.time, +cleanup.policy=DELETE")
    assert get(broker, peer).attributes == {"message.type": "FIFO", "cleanup.policy": "DELETE"}


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": ""},
        {"topic": "a b"},
        {"topic": "x" * 128},
        {"topic": "TBW102"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "rmq_sys_mine"},
        {"read_queue_nums": -1},
        {"perm": 99},
        {"attributes": "message.type=FIFO"},
        {"attributes": "+message.type"},
    ],
)
async def test_a_topic_that_cannot_be_is_refused(
    broker: Broker, peer: Any, fields: dict[str, Any]
) -> None:
    before = broker.topics.version
    with pytest.raises(CallRefused) as refused:
        create(broker, peer, **fields)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.version == before


async def test_a_deleted_topic_takes_its_messages_and_progress_along(
    broker: Broker, peer: Any, message: Any
) -> None:
    send(broker, message(), peer)
    broker.offsets.commit("billing", "orders", 0, 1)
    handlers.delete_topic(broker, calls.DeleteTopic(topic="orders"), peer)
    assert broker.offsets.get("billing", "orders", 0) is None
    assert broker.store.bounds("orders", 0) == (0, 0)
    with pytest.raises(CallRefused) as refused:
        get(broker, peer)
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    handlers.delete_topic(broker, calls.DeleteTopic(topic="orders"), peer)


async def test_a_topic_may_be_made_again_after_it_was_deleted(
    broker: Broker, peer: Any, message: Any
) -> None:
    send(broker, message(b"old"), peer)
    handlers.delete_topic(broker, calls.DeleteTopic(topic="orders"), peer)
    reply: Any = send(broker, message(b"new"), peer)
    assert (reply.code, reply.queue_offset) == (0, 0)
    assert broker.store.bounds("orders", 0) == (0, 1)


async def test_the_systems_topics_cannot_be_deleted(broker: Broker, peer: Any) -> None:
    with pytest.raises(CallRefused):
        handlers.delete_topic(broker, calls.DeleteTopic(topic="TBW102"), peer)


async def test_all_topics_are_listed_with_their_version(broker: Broker, peer: Any) -> None:
    create(broker, peer)
    reply = handlers.topics(broker, calls.GetTopics(), peer)
    table = dialect.loads(reply.body, TopicsOfBroker)
    assert {"orders", "TBW102", "BenchmarkTest"} <= table.topic_config_table.keys()
    assert table.data_version == broker.topics.version


async def test_a_group_is_created_changed_and_deleted(broker: Broker, peer: Any) -> None:
    group = SubscriptionGroup(group_name="billing", retry_max_times=3)
    handlers.create_group(broker, calls.CreateGroup(body=dialect.dumps(group)), peer)
    reply = handlers.group(broker, calls.GetGroup(group="billing"), peer)
    assert dialect.loads(reply.body, SubscriptionGroup) == group
    table = dialect.loads(handlers.groups(broker, calls.GetGroups(), peer).body, GroupTable)
    assert table.subscription_group_table["billing"] == group

    broker.offsets.commit("billing", "orders", 0, 1)
    handlers.delete_group(broker, calls.DeleteGroup(group_name="billing"), peer)
    assert broker.offsets.get("billing", "orders", 0) == 1
    handlers.delete_group(broker, calls.DeleteGroup(group_name="billing", clean_offset=True), peer)
    assert broker.offsets.get("billing", "orders", 0) is None
    with pytest.raises(CallRefused) as refused:
        handlers.group(broker, calls.GetGroup(group="billing"), peer)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_group_that_cannot_be_is_refused(broker: Broker, peer: Any) -> None:
    group = SubscriptionGroup(group_name="no good name")
    with pytest.raises(CallRefused) as refused:
        handlers.create_group(broker, calls.CreateGroup(body=dialect.dumps(group)), peer)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(CallRefused):
        handlers.delete_group(broker, calls.DeleteGroup(group_name="TOOLS_CONSUMER"), peer)
    with pytest.raises(FieldError):
        handlers.create_group(broker, calls.CreateGroup(body=b"{"), peer)
