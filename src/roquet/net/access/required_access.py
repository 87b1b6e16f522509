"""Required access: the resources that each request names, and the actions that it needs on them.

    fields, body ──▶ requirement of the code ──▶ [(resource, actions)], all of them to be allowed

A retry topic counts as its group. Requests that act on one stored message also need access to the
topic of that message, whatever topic they name. Sources: Apache RocketMQ 5.5.0; where its broker
checks nothing, the requirement is ours, and `UNCHECKED_BY_APACHE` lists the code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
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
from roquet.wire.codes import RequestCode as Code
from roquet.wire.fastjson.coercion import integer_of
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.request_body import decode_body

PUB: Final = (Action.PUB,)
SUB: Final = (Action.SUB,)
GET: Final = (Action.GET,)
CREATE: Final = (Action.CREATE,)
UPDATE: Final = (Action.UPDATE,)
DELETE: Final = (Action.DELETE,)
SUB_OR_GET: Final = (Action.SUB, Action.GET)
SUB_OR_UPDATE: Final = (Action.SUB, Action.UPDATE)
ROUTE: Final = (Action.PUB, Action.SUB, Action.GET)
CREATE_OR_UPDATE: Final = (Action.CREATE, Action.UPDATE)

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


Requirement = Callable[[RequestFacts], Iterable[AccessRequest]]


def topic_resource(topic: str) -> Resource:
    """The resource of a topic: a retry topic is its group's."""
    if names.is_retry(topic):
        return Resource(ResourceType.GROUP, topic.removeprefix(names.RETRY_PREFIX))
    return Resource(ResourceType.TOPIC, topic)


def _on_topic(topic: str | None, actions: Actions, of_retry: Actions) -> Iterator[AccessRequest]:
    if topic:
        resource = topic_resource(topic)
        is_topic = resource.kind is ResourceType.TOPIC
        yield AccessRequest(resource, actions if is_topic else of_retry)


def _on_group(group: str | None, actions: Actions) -> Iterator[AccessRequest]:
    if group:
        yield AccessRequest(Resource(ResourceType.GROUP, group), actions)


def _topic(field: str, actions: Actions, of_retry: Actions | None = None) -> Requirement:
    """Access to the topic that a field names, if it is there."""
    return lambda facts: _on_topic(facts.fields.get(field), actions, of_retry or actions)


def _topics(field: str, separator: str, actions: Actions) -> Requirement:
    def requirement(facts: RequestFacts) -> Iterator[AccessRequest]:
        for topic in facts.fields.get(field, "").split(separator):
            yield from _on_topic(topic, actions, actions)

    return requirement


def _group(field: str, actions: Actions) -> Requirement:
    """Access to the group that a field names, if it is there."""
    return lambda facts: _on_group(facts.fields.get(field), actions)


def _groups(field: str, separator: str, actions: Actions) -> Requirement:
    def requirement(facts: RequestFacts) -> Iterator[AccessRequest]:
        for group in facts.fields.get(field, "").split(separator):
            yield from _on_group(group, actions)

    return requirement


def _cluster(actions: Actions, field: str = "") -> Requirement:
    """Access to the cluster that a field names, else to the server's own."""

    def requirement(facts: RequestFacts) -> Iterator[AccessRequest]:
        name = facts.fields.get(field) or facts.cluster
        yield AccessRequest(Resource(ResourceType.CLUSTER, name), actions)

    return requirement


_READ_CLUSTER: Final = _cluster(GET)
_CHANGE_CLUSTER: Final = _cluster(UPDATE)


def _all_of(*requirements: Requirement) -> Requirement:
    def requirement(facts: RequestFacts) -> Iterator[AccessRequest]:
        for one in requirements:
            yield from one(facts)

    return requirement


def _group_and_topic(
    actions: Actions, group: str = "consumerGroup", topic: str = "topic"
) -> Requirement:
    return _all_of(_group(group, actions), _topic(topic, actions))


# Requests that name their resources in the body.


def _heartbeat(facts: RequestFacts) -> Iterator[AccessRequest]:
    for consumer in decode_body(facts.body, HeartbeatData).consumer_data_set:
        yield from _on_group(consumer.group_name, SUB)
        for subscription in consumer.subscription_data_set:
            if subscription.topic != names.retry_topic(consumer.group_name):
                yield from _on_topic(subscription.topic, SUB, SUB)


def _subscription(facts: RequestFacts) -> Iterator[AccessRequest]:
    if facts.body:
        body = decode_body(facts.body, CheckClientBody)
        yield from _on_group(body.group, SUB)
        if body.subscription_data is not None:
            yield from _on_topic(body.subscription_data.topic, SUB, SUB)


def _locks(facts: RequestFacts) -> Iterator[AccessRequest]:
    body = decode_body(facts.body, LockBody)
    yield from _on_group(body.consumer_group, SUB)
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield from _on_topic(topic, SUB, SUB)


def _batch_ack(facts: RequestFacts) -> Iterator[AccessRequest]:
    for group, topic in dict.fromkeys((a.group, a.topic) for a in decode_acks(facts.body).acks):
        yield from _on_group(group, SUB)
        yield from _on_topic(topic, SUB, SUB)


def _new_topics(facts: RequestFacts) -> Iterator[AccessRequest]:
    for topic in decode_body(facts.body, TopicConfigs).topic_config_list:
        yield from _on_topic(topic.topic_name, CREATE, CREATE)


def _new_group(facts: RequestFacts) -> Iterator[AccessRequest]:
    yield from _on_group(decode_body(facts.body, SubscriptionGroup).group_name, CREATE_OR_UPDATE)


def _new_groups(facts: RequestFacts) -> Iterator[AccessRequest]:
    for group in decode_body(facts.body, SubscriptionGroups).group_config_list:
        yield from _on_group(group.group_name, CREATE_OR_UPDATE)


def _assignment(facts: RequestFacts) -> Iterator[AccessRequest]:
    body = decode_body(facts.body, AssignmentQuery)
    yield from _on_group(body.consumer_group, SUB)
    yield from _on_topic(body.topic, SUB, SUB)


def _request_mode(facts: RequestFacts) -> Iterator[AccessRequest]:
    body = decode_body(facts.body, RequestMode)
    yield from _on_group(body.consumer_group, UPDATE)
    yield from _on_topic(body.topic, UPDATE, UPDATE)


# Requests that act on one stored message.


def _stored(field: str, actions: Actions) -> Requirement:
    """Access to the topic of the message at the position that a field gives."""

    def requirement(facts: RequestFacts) -> Iterator[AccessRequest]:
        if not (text := facts.fields.get(field)):
            return
        if (position := integer_of(text)) is None:
            yield from _CHANGE_CLUSTER(facts)  # whatever a handler makes of it
        elif position >= 0:
            yield from _on_topic(facts.topic_at(position), actions, SUB)

    return requirement


def _stored_by_id(field: str, actions: Actions) -> Requirement:
    """Access to the topic of the message whose id a field gives."""

    def requirement(facts: RequestFacts) -> Iterator[AccessRequest]:
        try:
            _, position = parse_offset_message_id(facts.fields.get(field, ""))
        except RecordError:
            return
        if position >= 0:
            yield from _on_topic(facts.topic_at(position), actions, SUB)

    return requirement


def _route(facts: RequestFacts) -> Iterator[AccessRequest]:
    """Access to the topic of a route; every producer may ask who creates unknown topics."""
    topic = facts.fields.get("topic")
    if topic != names.AUTO_CREATE_TOPIC:
        yield from _on_topic(topic, ROUTE, SUB_OR_GET)


_SEND: Final = _topic("topic", PUB, SUB)
_SEND_SHORT: Final = _topic("b", PUB, SUB)
_CONSUME: Final = _group_and_topic(SUB)
_TOPIC_GET: Final = _topic("topic", GET)

REQUIRED: Final[Mapping[int, Requirement]] = MappingProxyType(
    {
        Code.SEND_MESSAGE: _SEND,
        Code.SEND_MESSAGE_V2: _SEND_SHORT,
        Code.SEND_BATCH_MESSAGE: _SEND_SHORT,
        Code.SEND_REPLY_MESSAGE: _SEND,
        Code.SEND_REPLY_MESSAGE_V2: _SEND_SHORT,
        Code.END_TRANSACTION: _all_of(_topic("topic", PUB), _stored("commitLogOffset", PUB)),
        Code.RECALL_MESSAGE: _topic("topic", PUB),
        Code.CONSUMER_SEND_MSG_BACK: _all_of(_group("group", SUB), _stored("offset", SUB)),
        Code.PULL_MESSAGE: _CONSUME,
        Code.LITE_PULL_MESSAGE: _CONSUME,
        Code.QUERY_MESSAGE: _topic("topic", SUB_OR_GET),
        Code.HEART_BEAT: _heartbeat,
        Code.UNREGISTER_CLIENT: _group("consumerGroup", SUB),
        Code.GET_CONSUMER_LIST_BY_GROUP: _group("consumerGroup", SUB_OR_GET),
        Code.CHECK_CLIENT_CONFIG: _subscription,
        Code.QUERY_CONSUMER_OFFSET: _group_and_topic(SUB_OR_GET),
        Code.UPDATE_CONSUMER_OFFSET: _group_and_topic(SUB_OR_UPDATE),
        Code.LOCK_BATCH_MQ: _locks,
        Code.UNLOCK_BATCH_MQ: _locks,
        Code.QUERY_ASSIGNMENT: _assignment,
        Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
        Code.POP_MESSAGE: _CONSUME,
        Code.ACK_MESSAGE: _CONSUME,
        Code.BATCH_ACK_MESSAGE: _batch_ack,
        Code.PEEK_MESSAGE: _CONSUME,
        Code.CHANGE_MESSAGE_INVISIBLETIME: _CONSUME,
        Code.NOTIFICATION: _CONSUME,
        Code.POLLING_INFO: _group_and_topic(GET),
        Code.SEARCH_OFFSET_BY_TIMESTAMP: _TOPIC_GET,
        Code.GET_MAX_OFFSET: _TOPIC_GET,
        Code.GET_MIN_OFFSET: _TOPIC_GET,
        Code.GET_EARLIEST_MSG_STORETIME: _TOPIC_GET,
        Code.VIEW_MESSAGE_BY_ID: _all_of(_TOPIC_GET, _stored("offset", GET)),
        Code.UPDATE_AND_CREATE_TOPIC: _topic("topic", CREATE),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: _new_topics,
        Code.DELETE_TOPIC_IN_BROKER: _topic("topic", DELETE),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _new_groups,
        Code.DELETE_SUBSCRIPTIONGROUP: _group("groupName", DELETE),
        Code.GET_TOPIC_STATS_INFO: _TOPIC_GET,
        Code.GET_CONSUMER_CONNECTION_LIST: _group("consumerGroup", GET),
        Code.GET_CONSUME_STATS: _all_of(_group_and_topic(GET), _topics("topicList", ";", GET)),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: _group_and_topic(UPDATE, group="group"),
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _group_and_topic(GET, group="group"),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: _TOPIC_GET,
        Code.QUERY_CONSUME_TIME_SPAN: _group_and_topic(GET, group="group"),
        Code.GET_CONSUMER_RUNNING_INFO: _group("consumerGroup", GET),
        Code.QUERY_CORRECTION_OFFSET: _all_of(
            _groups("filterGroups", ",", GET), _group_and_topic(GET, group="compareGroup")
        ),
        Code.CONSUME_MESSAGE_DIRECTLY: _all_of(_CONSUME, _stored_by_id("msgId", SUB)),
        Code.CLONE_GROUP_OFFSET: _all_of(
            _group_and_topic(UPDATE, group="destGroup"), _group("srcGroup", GET)
        ),
        Code.QUERY_CONSUME_QUEUE: _group_and_topic(GET),
        Code.RESUME_CHECK_HALF_MESSAGE: _all_of(
            _topic("topic", UPDATE), _stored_by_id("msgId", UPDATE)
        ),
        Code.QUERY_TOPICS_BY_CONSUMER: _group("group", GET),
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _group_and_topic(GET, group="group"),
        Code.GET_TOPIC_CONFIG: _TOPIC_GET,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: _group("group", GET),
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _group_and_topic(UPDATE, group="group"),
        **dict.fromkeys(
            (
                Code.GET_ALL_TOPIC_CONFIG,
                Code.GET_BROKER_CONFIG,
                Code.GET_BROKER_RUNTIME_INFO,
                Code.GET_ALL_CONSUMER_OFFSET,
                Code.GET_ALL_DELAY_OFFSET,
                Code.GET_TIMER_CHECK_POINT,
                Code.GET_TIMER_METRICS,
                Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                Code.GET_PRODUCER_CONNECTION_LIST,
                Code.GET_ALL_PRODUCER_INFO,
                Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
                Code.VIEW_BROKER_STATS_DATA,
                Code.GET_BROKER_CONSUME_STATS,
                Code.GET_ALL_MESSAGE_REQUEST_MODE,
                Code.GET_BROKER_HA_STATUS,
                Code.GET_BROKER_EPOCH_CACHE,
                Code.GET_COLD_DATA_FLOW_CTR_INFO,
                Code.AUTH_GET_USER,
                Code.AUTH_LIST_USER,
                Code.AUTH_GET_ACL,
                Code.AUTH_LIST_ACL,
                Code.GET_KV_CONFIG,
                Code.GET_KVLIST_BY_NAMESPACE,
                Code.GET_BROKER_CLUSTER_INFO,
                Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
                Code.GET_UNIT_TOPIC_LIST,
                Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
                Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                Code.GET_NAMESRV_CONFIG,
            ),
            _READ_CLUSTER,
        ),
        **dict.fromkeys(
            (
                Code.UPDATE_BROKER_CONFIG,
                Code.CLEAN_EXPIRED_CONSUMEQUEUE,
                Code.CLEAN_UNUSED_TOPIC,
                Code.DELETE_EXPIRED_COMMITLOG,
                Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
                Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
                Code.SET_COMMITLOG_READ_MODE,
                Code.EXCHANGE_BROKER_HA_INFO,
                Code.NOTIFY_BROKER_ROLE_CHANGED,
                Code.AUTH_CREATE_USER,
                Code.AUTH_UPDATE_USER,
                Code.AUTH_DELETE_USER,
                Code.AUTH_CREATE_ACL,
                Code.AUTH_UPDATE_ACL,
                Code.AUTH_DELETE_ACL,
                Code.PUT_KV_CONFIG,
                Code.DELETE_KV_CONFIG,
                Code.WIPE_WRITE_PERM_OF_BROKER,
                Code.ADD_WRITE_PERM_OF_BROKER,
                Code.REGISTER_TOPIC_IN_NAMESRV,
                Code.UPDATE_NAMESRV_CONFIG,
            ),
            _CHANGE_CLUSTER,
        ),
        Code.GET_ROUTEINFO_BY_TOPIC: _route,
        Code.GET_TOPICS_BY_CLUSTER: _cluster(GET, "cluster"),
        Code.GET_BROKER_MEMBER_GROUP: _cluster(GET, "clusterName"),
        Code.QUERY_DATA_VERSION: _cluster(GET, "clusterName"),
        Code.REGISTER_BROKER: _cluster(UPDATE, "clusterName"),
        Code.UNREGISTER_BROKER: _cluster(UPDATE, "clusterName"),
        Code.BROKER_HEARTBEAT: _cluster(UPDATE, "clusterName"),
        Code.DELETE_TOPIC_IN_NAMESRV: _cluster(UPDATE, "clusterName"),
    }
)
"""Needs of the requests of each code, for every code that a broker or a name server serves."""

UNCHECKED_BY_APACHE: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.UPDATE_BROKER_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.CHECK_CLIENT_CONFIG,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.LITE_PULL_MESSAGE,
        Code.QUERY_ASSIGNMENT,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.GET_COLD_DATA_FLOW_CTR_INFO,
        Code.SET_COMMITLOG_READ_MODE,
        Code.BATCH_ACK_MESSAGE,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.GET_NAMESRV_CONFIG,
    }
)
"""Codes for which a signature is enough at Apache's servers, and here only by
`access_compatibility`."""
