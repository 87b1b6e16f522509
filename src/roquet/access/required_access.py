"""Required access: the resources that each request names, and the actions that it needs on them.

    fields, body ──▶ requirement of the code ──▶ [(resource, actions)], all of them to be allowed

Sources: Apache RocketMQ 5.5.0; where its broker checks nothing, the requirement is ours, and
`UNCHECKED_BY_APACHE` lists the code.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from roquet.access import requirement
from roquet.access.requirement import (
    CREATE,
    SUB,
    UPDATE,
    RequestFacts,
    Requirement,
    all_of,
    cluster_field,
    group_and_popped_topic,
    group_and_topic,
    group_field,
    groups_field,
    on_topic,
    own_cluster,
    stored_message,
    stored_message_by_id,
    topic_and_group,
    topic_field,
    topics_field,
)
from roquet.model import names
from roquet.model.access import Action
from roquet.rules.access.decision import AccessRequest
from roquet.wire.codes import RequestCode as Code

PUB: Final = (Action.PUB,)
GET: Final = (Action.GET,)
DELETE: Final = (Action.DELETE,)
SUB_OR_GET: Final = (Action.SUB, Action.GET)
SUB_OR_UPDATE: Final = (Action.SUB, Action.UPDATE)
ROUTE: Final = (Action.PUB, Action.SUB, Action.GET)


def _route(facts: RequestFacts) -> Iterator[AccessRequest]:
    """Access to the topic of a route; every producer may ask who creates unknown topics."""
    topic = facts.fields.get("topic")
    if topic != names.AUTO_CREATE_TOPIC:
        yield from on_topic(topic, ROUTE, SUB_OR_GET)


_READ_CLUSTER: Final = own_cluster(GET)
_CHANGE_CLUSTER: Final = own_cluster(UPDATE)
_SEND: Final = topic_field("topic", PUB, SUB)
_SEND_SHORT: Final = topic_field("b", PUB, SUB)
_CONSUME: Final = group_and_topic(SUB)
_POPPED: Final = group_and_popped_topic(SUB)
_TOPIC_GET: Final = topic_field("topic", GET)

REQUIRED: Final[Mapping[int, Requirement]] = MappingProxyType(
    {
        Code.SEND_MESSAGE: _SEND,
        Code.SEND_MESSAGE_V2: _SEND_SHORT,
        Code.SEND_BATCH_MESSAGE: _SEND_SHORT,
        Code.SEND_REPLY_MESSAGE: _SEND,
        Code.SEND_REPLY_MESSAGE_V2: _SEND_SHORT,
        Code.END_TRANSACTION: all_of(
            topic_field("topic", PUB), stored_message("commitLogOffset", PUB, SUB)
        ),
        Code.RECALL_MESSAGE: topic_field("topic", PUB),
        Code.CONSUMER_SEND_MSG_BACK: all_of(
            group_field("group", SUB), stored_message("offset", SUB, SUB)
        ),
        Code.PULL_MESSAGE: topic_and_group(SUB),
        Code.LITE_PULL_MESSAGE: _CONSUME,
        Code.QUERY_MESSAGE: topic_field("topic", SUB_OR_GET),
        Code.HEART_BEAT: Requirement(requirement.heartbeat, None),
        Code.UNREGISTER_CLIENT: group_field("consumerGroup", SUB),
        Code.GET_CONSUMER_LIST_BY_GROUP: group_field("consumerGroup", SUB_OR_GET),
        Code.CHECK_CLIENT_CONFIG: Requirement(requirement.subscription, None),
        Code.QUERY_CONSUMER_OFFSET: topic_and_group(SUB_OR_GET),
        Code.UPDATE_CONSUMER_OFFSET: topic_and_group(SUB_OR_UPDATE),
        Code.LOCK_BATCH_MQ: Requirement(requirement.locks, None),
        Code.UNLOCK_BATCH_MQ: Requirement(requirement.locks, None),
        Code.QUERY_ASSIGNMENT: Requirement(requirement.assignment, None),
        Code.SET_MESSAGE_REQUEST_MODE: Requirement(requirement.request_mode, None),
        Code.POP_MESSAGE: _CONSUME,
        Code.ACK_MESSAGE: _POPPED,
        Code.BATCH_ACK_MESSAGE: Requirement(requirement.batch_ack, None),
        Code.PEEK_MESSAGE: _CONSUME,
        Code.CHANGE_MESSAGE_INVISIBLETIME: _POPPED,
        Code.NOTIFICATION: _CONSUME,
        Code.POLLING_INFO: group_and_topic(GET),
        Code.SEARCH_OFFSET_BY_TIMESTAMP: _TOPIC_GET,
        Code.GET_MAX_OFFSET: _TOPIC_GET,
        Code.GET_MIN_OFFSET: _TOPIC_GET,
        Code.GET_EARLIEST_MSG_STORETIME: _TOPIC_GET,
        Code.VIEW_MESSAGE_BY_ID: all_of(_TOPIC_GET, stored_message("offset", GET, SUB)),
        Code.UPDATE_AND_CREATE_TOPIC: topic_field("topic", CREATE),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: Requirement(requirement.new_topics, None),
        Code.DELETE_TOPIC_IN_BROKER: topic_field("topic", DELETE),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Requirement(requirement.new_group, None),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Requirement(requirement.new_groups, None),
        Code.DELETE_SUBSCRIPTIONGROUP: group_field("groupName", DELETE),
        Code.GET_TOPIC_STATS_INFO: _TOPIC_GET,
        Code.GET_CONSUMER_CONNECTION_LIST: group_field("consumerGroup", GET),
        Code.GET_CONSUME_STATS: all_of(
            group_field("consumerGroup", GET),
            topics_field("topic", ";", GET),
            topics_field("topicList", ";", GET),
        ),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: group_and_topic(UPDATE, group="group"),
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: group_and_topic(GET, group="group"),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: _TOPIC_GET,
        Code.QUERY_CONSUME_TIME_SPAN: group_and_topic(GET, group="group"),
        Code.GET_CONSUMER_RUNNING_INFO: group_field("consumerGroup", GET),
        Code.QUERY_CORRECTION_OFFSET: all_of(
            groups_field("filterGroups", ",", GET), group_and_topic(GET, group="compareGroup")
        ),
        Code.CONSUME_MESSAGE_DIRECTLY: all_of(_CONSUME, stored_message_by_id("msgId", SUB, SUB)),
        Code.CLONE_GROUP_OFFSET: all_of(
            group_and_topic(UPDATE, group="destGroup"), group_field("srcGroup", GET)
        ),
        Code.QUERY_CONSUME_QUEUE: group_and_topic(GET),
        Code.RESUME_CHECK_HALF_MESSAGE: all_of(
            topic_field("topic", UPDATE), stored_message_by_id("msgId", UPDATE, SUB)
        ),
        Code.QUERY_TOPICS_BY_CONSUMER: group_field("group", GET),
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: group_and_topic(GET, group="group"),
        Code.GET_TOPIC_CONFIG: _TOPIC_GET,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: group_field("group", GET),
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN: group_and_topic(UPDATE, group="group"),
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
                Code.CONTROLLER_GET_METADATA_INFO,
                Code.CONTROLLER_GET_REPLICA_INFO,
                Code.CONTROLLER_GET_SYNC_STATE_DATA,
                Code.GET_CONTROLLER_CONFIG,
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
                Code.CONTROLLER_ALTER_SYNC_STATE_SET,
                Code.UPDATE_CONTROLLER_CONFIG,
            ),
            _CHANGE_CLUSTER,
        ),
        Code.GET_ROUTEINFO_BY_TOPIC: Requirement(_route, ("topic",)),
        Code.GET_TOPICS_BY_CLUSTER: cluster_field("cluster", GET),
        Code.GET_BROKER_MEMBER_GROUP: cluster_field("clusterName", GET),
        # Routes and elections are common to all clusters, so the server's own counts, too.
        Code.QUERY_DATA_VERSION: all_of(cluster_field("clusterName", GET), _READ_CLUSTER),
        **dict.fromkeys(
            (
                Code.REGISTER_BROKER,
                Code.UNREGISTER_BROKER,
                Code.BROKER_HEARTBEAT,
                Code.DELETE_TOPIC_IN_NAMESRV,
                Code.CONTROLLER_GET_NEXT_BROKER_ID,
                Code.CONTROLLER_APPLY_BROKER_ID,
                Code.CONTROLLER_ELECT_MASTER,
                Code.CONTROLLER_REGISTER_BROKER,
                Code.CLEAN_BROKER_DATA,
            ),
            all_of(cluster_field("clusterName", UPDATE), _CHANGE_CLUSTER),
        ),
    }
)
"""Needs of the requests of each code that a broker, a name server or a controller serves."""

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
"""Codes for which a signature is enough in Apache's servers, and here only by
`access_compatibility=codes`."""
