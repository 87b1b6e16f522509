"""Requirements made from header fields."""

import json

import pytest

from roquet.access.required_access import REQUIRED
from roquet.access.requirement import (
    RequestFacts,
    all_of,
    group_and_topic,
    own_cluster,
    stored_message,
    topic_field,
    topic_resources,
)
from roquet.model.access import Action
from roquet.model.errors import FieldError
from roquet.wire.codes import RequestCode as Code

GET = (Action.GET,)


def test_a_retry_topic_is_its_groups_and_a_dead_letter_topic_is_not() -> None:
    assert [*map(str, topic_resources("%RETRY%g"))] == ["Group:g"]
    assert [*map(str, topic_resources("%DLQ%g"))] == ["Topic:%DLQ%g"]
    assert [*map(str, topic_resources("%RETRY%g+t"))] == ["Group:g", "Topic:t"]
    assert [*map(str, topic_resources("%RETRY%g_t"))] == ["Group:g_t"]


def test_a_requirement_names_the_fields_that_it_follows_from() -> None:
    assert group_and_topic(GET).fields == ("consumerGroup", "topic")
    assert own_cluster(GET).fields == ()
    stored = stored_message("offset", GET, GET)
    assert stored.fields is None
    assert all_of(topic_field("topic", GET), stored, own_cluster(GET)).fields is None


def test_a_name_that_is_missing_or_empty_needs_nothing() -> None:
    for fields in ({}, {"topic": ""}):
        facts = RequestFacts(fields, b"", "c", lambda _: None)
        assert list(topic_field("topic", GET).needs(facts)) == []


def needed(code: int, body: object = None) -> list[str]:
    """Needs of a request, as texts: `Topic:a Pub|Sub`."""
    raw = b"" if body is None else json.dumps(body).encode()
    facts = RequestFacts({}, raw, "c1", lambda _: None)
    return [f"{one.resource} {'|'.join(one.actions)}" for one in REQUIRED[code].needs(facts)]


def test_a_heartbeat_needs_what_its_consumers_subscribe_to() -> None:
    consumers = [
        {
            "groupName": "g",
            "subscriptionDataSet": [{"topic": "a"}, {"topic": "%RETRY%g"}, {"topic": "%RETRY%h"}],
        }
    ]
    body = {"clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": consumers}
    assert needed(Code.HEART_BEAT, body) == ["Group:g Sub", "Topic:a Sub", "Group:h Sub"]
    assert needed(Code.HEART_BEAT, {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}) == []


def test_a_heartbeat_that_subscribes_to_popped_messages_that_failed_needs_their_topic() -> None:
    topics = [{"topic": "Orders"}, {"topic": "%RETRY%popping_Orders"}]
    consumers = [{"groupName": "popping", "subscriptionDataSet": topics}]
    asked = needed(Code.HEART_BEAT, {"clientID": "c", "consumerDataSet": consumers})
    assert set(asked) == {"Group:popping Sub", "Topic:Orders Sub"}


def test_requests_with_lists_need_all_of_them() -> None:
    queues = [{"topic": topic, "brokerName": "b", "queueId": 0} for topic in ("a", "b", "a")]
    locks = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
    assert needed(Code.LOCK_BATCH_MQ, locks) == ["Group:g Sub", "Topic:a Sub", "Topic:b Sub"]
    topics = {"topicConfigList": [{"topicName": "a"}, {"topicName": "b"}]}
    assert needed(Code.UPDATE_AND_CREATE_TOPIC_LIST, topics) == ["Topic:a Create", "Topic:b Create"]
    groups = {"groupConfigList": [{"groupName": "g"}]}
    made = needed(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups)
    assert made == needed(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert made == ["Group:g Create|Update"]


def test_assignments_and_subscriptions_name_group_and_topic_in_the_body() -> None:
    body = {"topic": "a", "consumerGroup": "g"}
    assert needed(Code.QUERY_ASSIGNMENT, body) == ["Group:g Sub", "Topic:a Sub"]
    assert needed(Code.SET_MESSAGE_REQUEST_MODE, body) == ["Group:g Update", "Topic:a Update"]
    check = {"group": "g", "subscriptionData": {"topic": "a"}}
    assert needed(Code.CHECK_CLIENT_CONFIG, check) == ["Group:g Sub", "Topic:a Sub"]
    assert needed(Code.CHECK_CLIENT_CONFIG) == []


def test_a_batch_of_acks_needs_each_group_and_topic() -> None:
    ack = {"c": "g", "t": "a", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "AQ=="}
    asked = needed(Code.BATCH_ACK_MESSAGE, {"acks": [ack, {**ack, "t": "b"}, ack]})
    assert asked == ["Group:g Sub", "Topic:a Sub", "Group:g Sub", "Topic:b Sub"]


def test_a_broken_body_is_an_error() -> None:
    with pytest.raises(FieldError):
        list(REQUIRED[Code.HEART_BEAT].needs(RequestFacts({}, b"nonsense", "c1", lambda _: None)))
