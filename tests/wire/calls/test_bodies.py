"""JSON bodies, against texts of Apache's classes."""

import json
from typing import Any

import pytest
from tests.for_each import for_each
from tests.vector_lines import vector_lines

from roquet.broker.tables.request_modes import RequestModeTable
from roquet.model import topic
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from roquet.model.subscription import ConsumerData, HeartbeatData, ProducerData, Subscription
from roquet.wire.calls import bodies
from roquet.wire.calls.admin.client_forwarding import PopInfo, QueueInfo, TopicRates
from roquet.wire.fastjson import codec
from roquet.wire.fastjson.parser import quote_keys

LINES = vector_lines("bodies.jsonl")

CLASSES: dict[str, Any] = {
    "BrokerData": BrokerData,
    "CheckClientRequestBody": bodies.CheckClientBody,
    "ClusterInfo": ClusterInfo,
    "Connection": bodies.ClientConnection,
    "ConsumeStatus": TopicRates,
    "ConsumerData": ConsumerData,
    "ConsumerOffsetSerializeWrapper": topic.OffsetTable,
    "DataVersion": topic.DataVersion,
    "GetConsumerListByGroupResponseBody": bodies.ConsumerIdList,
    "GroupForbidden": bodies.GroupForbidden,
    "HeartbeatData": HeartbeatData,
    "KVTable": bodies.KVTable,
    "LockBatchRequestBody": bodies.LockBody,
    "LockBatchResponseBody": bodies.LockedQueues,
    "MessageQueue": MessageQueue,
    "MessageRequestModeSerializeWrapper": RequestModeTable,
    "OffsetWrapper": bodies.QueueProgress,
    "PopProcessQueueInfo": PopInfo,
    "ProcessQueueInfo": QueueInfo,
    "ProducerData": ProducerData,
    "QueueData": QueueData,
    "RegisterBrokerBody": bodies.RegisterBrokerBody,
    "SubscriptionData": Subscription,
    "SubscriptionGroupConfig": topic.SubscriptionGroup,
    "SubscriptionGroupWrapper": topic.GroupTable,
    "TopicConfig": topic.TopicConfig,
    "TopicConfigAndQueueMapping": topic.TopicConfig,
    "TopicConfigAndMappingSerializeWrapper": bodies.TopicsOfBroker,
    "TopicConfigSerializeWrapper": topic.TopicTable,
    "TopicList": bodies.TopicList,
    "TopicRouteData": TopicRoute,
    "UnlockBatchRequestBody": bodies.LockBody,
}

STATIC = {
    "mappingDetail",
    "topicQueueMappingByBroker",
    "topicQueueMappingDetailMap",
    "topicQueueMappingInfoMap",
}
"""Tables of static topics, which we do not have: they are ignored."""


def lines(op: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    vectors = [(line["in"], line["out"]) for line in LINES if line["in"]["op"] == op]
    return [(value, out) for value, out in vectors if value["class"] in CLASSES]


def covers(ours: Any, apache: Any) -> bool:
    """Whether ours has all of Apache's values; ours may have values for its nulls."""
    if isinstance(apache, dict):
        return all(k in STATIC or (k in ours and covers(ours[k], v)) for k, v in apache.items())
    if isinstance(apache, list):
        return len(ours) == len(apache) and all(map(covers, ours, apache))
    return bool(ours == apache)


def standard(text: str) -> Any:
    return json.loads(quote_keys(text))


def value_of(given: dict[str, Any], text: str) -> Any:
    return codec.loads(text, CLASSES[given["class"]])


def written(given: dict[str, Any], value: Any) -> str:
    form = given["form"]
    return codec.dumps(value, standard=form == "standard", pretty=form == "pretty").decode()


WRITTEN = [(given, out["text"]) for given, out in lines("encode")]


@for_each(WRITTEN)
def test_java_texts_are_read_and_written_again(given: dict[str, Any], text: str) -> None:
    again = written(given, value_of(given, text))
    assert covers(standard(again), standard(text))
    if standard(again) == standard(text) and not any(table in text for table in STATIC):
        assert again == text, "to the byte"


def test_most_texts_of_java_are_written_to_the_byte() -> None:
    same = [text for given, text in WRITTEN if written(given, value_of(given, text)) == text]
    assert len(same) >= 25


@pytest.mark.parametrize(("given", "out"), lines("decode"))
def test_other_clients_texts_are_read_as_in_java(
    given: dict[str, Any], out: dict[str, Any]
) -> None:
    value = codec.loads(given["text"], CLASSES[given["class"]])
    assert codec.dumps(value).decode() == out["reencoded"]


@pytest.mark.parametrize("names", ["", '"brokerName":null,"topic":null,"queueId":0'])
def test_names_that_java_leaves_out_are_empty(names: str) -> None:
    queue = codec.loads(f'{{"clientId":"c","mqSet":[{{{names}}}]}}', bodies.LockBody).mq_set[0]
    assert queue == MessageQueue("", "", 0)
    text = f'{{"clientId":null,"subscriptionData":{{{names}}}}}'
    checked = codec.loads(text, bodies.CheckClientBody)
    assert (checked.client_id, checked.subscription_data) == ("", Subscription())
    assert (
        codec.loads(f'{{{names},"clientAddr":null}}'.replace("{,", "{"), bodies.ClientConnection)
        == bodies.ClientConnection()
    )


def test_members_of_a_group_are_named_as_java_names_them() -> None:
    body = bodies.ConsumerIdList(consumer_id_list=["a@1"])
    assert codec.dumps(body) == b'{"consumerIdList":["a@1"]}'


def test_the_locks_of_clients_are_read() -> None:
    queues = '[{"brokerName":"b","queueId":3,"topic":"t"}]'
    cpp = f'{{"clientId":"c","consumerGroup":"g","mqSet":{queues}}}\n'
    lock = codec.loads(cpp, bodies.LockBody)
    assert lock.mq_set == [MessageQueue("t", "b", 3)]
    held = codec.dumps(bodies.LockedQueues(lock_ok_mq_set=lock.mq_set))
    assert held == b'{"lockOKMQSet":[{"brokerName":"b","queueId":3,"topic":"t"}]}'
