"""Requirement: from the header or body of a request to the resources and actions that it needs.

A retry topic counts as its group, and as the popped topic if its name says so. A request that acts
on one stored message needs access to the topic of that message, whatever topic it names. Bodies are
decoded as the handlers decode them, so that both see the same names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from roquet.model import names
from roquet.model.access import Action, Resource, ResourceType
from roquet.model.errors import RecordError
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
from roquet.wire.fastjson.coercion import integer_of
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.request_body import decode_body

Actions = tuple[Action, ...]


class RequestFacts(NamedTuple):
    """Facts of one request from which its needs follow."""

    fields: Mapping[str, str]
    """The header's string map."""
    body: bytes
    cluster: str
    """The cluster that the server belongs to."""
    topic_at: Callable[[int], str | None]
    """From a position of the log to the topic for which its message was sent; None without one."""


AccessNeeds = Callable[[RequestFacts], Iterable[AccessRequest]]


class Requirement(NamedTuple):
    """Needs of the requests of one code."""

    needs: AccessNeeds
    fields: tuple[str, ...] | None
    """Header fields from which alone the needs follow; None where the body or the log counts."""


def topic_resources(topic: str) -> tuple[Resource, ...]:
    """The resources of a topic: a retry topic is its group's, one of popped messages also theirs.

    The older name `%RETRY%GROUP_TOPIC` does not tell where the group ends: it is one group's.
    """
    if not names.is_retry(topic):
        return (Resource(ResourceType.TOPIC, topic),)
    group = Resource(ResourceType.GROUP, names.group_of_retry(topic))
    _, plus, origin = topic.partition("+")
    return (group, Resource(ResourceType.TOPIC, origin)) if plus else (group,)


def on_topic(
    topic: str | None, actions: Actions, of_retry: Actions | None = None
) -> Iterator[AccessRequest]:
    """Access to a topic, with other actions for a retry topic; nothing without a name."""
    if topic:
        needed = of_retry or actions if names.is_retry(topic) else actions
        yield from (AccessRequest(resource, needed) for resource in topic_resources(topic))


def on_group(group: str | None, actions: Actions) -> Iterator[AccessRequest]:
    """Access to a group; nothing without a name."""
    if group:
        yield AccessRequest(Resource(ResourceType.GROUP, group), actions)


def topic_field(field: str, actions: Actions, of_retry: Actions | None = None) -> Requirement:
    """Access to the topic that a field names, if it is there."""
    return Requirement(lambda facts: on_topic(facts.fields.get(field), actions, of_retry), (field,))


def topics_field(field: str, separator: str, actions: Actions) -> Requirement:
    """Access to each topic of a list."""
    return _list_field(field, separator, lambda topic: on_topic(topic, actions))


def group_field(field: str, actions: Actions) -> Requirement:
    """Access to the group that a field names, if it is there."""
    return Requirement(lambda facts: on_group(facts.fields.get(field), actions), (field,))


def groups_field(field: str, separator: str, actions: Actions) -> Requirement:
    """Access to each group of a list."""
    return _list_field(field, separator, lambda group: on_group(group, actions))


def _list_field(
    field: str, separator: str, on_name: Callable[[str], Iterable[AccessRequest]]
) -> Requirement:
    def needs(facts: RequestFacts) -> Iterator[AccessRequest]:
        for name in dict.fromkeys(facts.fields.get(field, "").split(separator)):
            yield from on_name(name)

    return Requirement(needs, (field,))


def cluster_field(field: str, actions: Actions) -> Requirement:
    """Access to the cluster that a field names, else to the server's own."""

    def needs(facts: RequestFacts) -> Iterator[AccessRequest]:
        name = facts.fields.get(field) or facts.cluster
        yield AccessRequest(Resource(ResourceType.CLUSTER, name), actions)

    return Requirement(needs, (field,))


def own_cluster(actions: Actions) -> Requirement:
    """Access to the cluster that the server belongs to."""
    return Requirement(lambda facts: on_cluster(facts, actions), ())


def on_cluster(facts: RequestFacts, actions: Actions) -> Iterator[AccessRequest]:
    """Access to the cluster that the server belongs to."""
    yield AccessRequest(Resource(ResourceType.CLUSTER, facts.cluster), actions)


def all_of(*requirements: Requirement) -> Requirement:
    """All of these needs, in their order."""
    fields: tuple[str, ...] | None = ()
    for one in requirements:
        fields = None if fields is None or one.fields is None else fields + one.fields

    def needs(facts: RequestFacts) -> Iterator[AccessRequest]:
        for one in requirements:
            yield from one.needs(facts)

    return Requirement(needs, fields)


def group_and_topic(actions: Actions, group: str = "consumerGroup") -> Requirement:
    """Access to the group and the topic that two fields name."""
    return all_of(group_field(group, actions), topic_field("topic", actions))


def topic_and_group(actions: Actions) -> Requirement:
    """Access to a topic and a group; a refusal names the topic first, as by Apache's brokers."""
    return all_of(topic_field("topic", actions), group_field("consumerGroup", actions))


def group_and_popped_topic(actions: Actions) -> Requirement:
    """Access to the group and the topic of a popped message, which the topic that stores it tells.

    Only for requests that return no messages: others may share a retry topic with an older name.
    """

    def needs(facts: RequestFacts) -> Iterator[AccessRequest]:
        group = facts.fields.get("consumerGroup") or ""
        topic = facts.fields.get("topic") or ""
        yield from on_group(group, actions)
        yield from on_topic(names.retried_topic(group, topic) if group else topic, actions)

    return Requirement(needs, ("consumerGroup", "topic"))


def on_stored(
    facts: RequestFacts, position: int, actions: Actions, of_retry: Actions
) -> Iterator[AccessRequest]:
    """Access to the topic of a stored message; to the cluster if its topic is in doubt."""
    topic = facts.topic_at(position)
    if topic == "":
        yield from on_cluster(facts, (Action.UPDATE,))
    else:
        yield from on_topic(topic, actions, of_retry)


def stored_message(field: str, actions: Actions, of_retry: Actions) -> Requirement:
    """Access to the topic of the message at the position that a field gives."""

    def needs(facts: RequestFacts) -> Iterator[AccessRequest]:
        if not (text := facts.fields.get(field)):
            return
        if (position := integer_of(text)) is None:
            yield from on_cluster(facts, (Action.UPDATE,))  # whatever a handler makes of it
        elif position >= 0:
            yield from on_stored(facts, position, actions, of_retry)

    return Requirement(needs, None)


def stored_message_by_id(field: str, actions: Actions, of_retry: Actions) -> Requirement:
    """Access to the topic of the message whose id a field gives."""

    def needs(facts: RequestFacts) -> Iterator[AccessRequest]:
        try:
            _, position = parse_offset_message_id(facts.fields.get(field, ""))
        except RecordError:
            return
        if position >= 0:
            yield from on_stored(facts, position, actions, of_retry)

    return Requirement(needs, None)


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
