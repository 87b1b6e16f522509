"""Body needs: resources and actions of requests that name them in their bodies.

Bodies are decoded as the handlers decode them, so that both see the same names.
"""

from collections.abc import Iterator
from typing import Final

from roquet.access.requirement import RequestFacts, on_group, on_topic
from roquet.model import names
from roquet.model.access import Action
from roquet.model.subscription import HeartbeatData
from roquet.model.topic import SubscriptionGroup
from roquet.rules.access.decision import AccessRequest
from roquet.wire.calls.bodies import (
    AssignmentQuery,
    CheckClientBody,
    LockBody,
    RequestMode,
    SubscriptionGroups,
    TopicConfigs,
)
from roquet.wire.calls.pop import decode_acks
from roquet.wire.request_body import decode_body

SUB: Final = (Action.SUB,)
CREATE: Final = (Action.CREATE,)
UPDATE: Final = (Action.UPDATE,)
CREATE_OR_UPDATE: Final = (Action.CREATE, Action.UPDATE)


def heartbeat(facts: RequestFacts) -> Iterator[AccessRequest]:
    """Subscriptions of the consumers of a heartbeat, but for the own retry topics."""
    for consumer in decode_body(facts.body, HeartbeatData).consumer_data_set:
        yield from on_group(consumer.group_name, SUB)
        for topic in dict.fromkeys(each.topic for each in consumer.subscription_data_set):
            if topic != names.retry_topic(consumer.group_name):
                yield from on_topic(names.retried_topic(consumer.group_name, topic), SUB)


def subscription(facts: RequestFacts) -> Iterator[AccessRequest]:
    """A subscription that is checked before it is used."""
    if facts.body:
        body = decode_body(facts.body, CheckClientBody)
        yield from on_group(body.group, SUB)
        if body.subscription_data is not None:
            yield from on_topic(body.subscription_data.topic, SUB)


def locks(facts: RequestFacts) -> Iterator[AccessRequest]:
    """Queues that a member locks or unlocks."""
    body = decode_body(facts.body, LockBody)
    yield from on_group(body.consumer_group, SUB)
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield from on_topic(topic, SUB)


def batch_ack(facts: RequestFacts) -> Iterator[AccessRequest]:
    """Groups and topics of acknowledged messages."""
    for group, topic in dict.fromkeys((a.group, a.topic) for a in decode_acks(facts.body).acks):
        yield from on_group(group, SUB)
        yield from on_topic(names.retried_topic(group, topic), SUB)


def new_topics(facts: RequestFacts) -> Iterator[AccessRequest]:
    """Topics that are created or changed."""
    for topic in decode_body(facts.body, TopicConfigs).topic_config_list:
        yield from on_topic(topic.topic_name, CREATE)


def new_group(facts: RequestFacts) -> Iterator[AccessRequest]:
    """A group that is created or changed."""
    yield from on_group(decode_body(facts.body, SubscriptionGroup).group_name, CREATE_OR_UPDATE)


def new_groups(facts: RequestFacts) -> Iterator[AccessRequest]:
    """Groups that are created or changed."""
    for group in decode_body(facts.body, SubscriptionGroups).group_config_list:
        yield from on_group(group.group_name, CREATE_OR_UPDATE)


def assignment(facts: RequestFacts) -> Iterator[AccessRequest]:
    """A member that asks for its queues."""
    body = decode_body(facts.body, AssignmentQuery)
    yield from on_group(body.consumer_group, SUB)
    yield from on_topic(body.topic, SUB)


def request_mode(facts: RequestFacts) -> Iterator[AccessRequest]:
    """How a group gets the messages of a topic."""
    body = decode_body(facts.body, RequestMode)
    yield from on_group(body.consumer_group, UPDATE)
    yield from on_topic(body.topic, UPDATE)
