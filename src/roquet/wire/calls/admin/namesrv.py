"""Calls of operators to a name server: write permission, lists of topics, settings."""

from typing import ClassVar

import msgspec

from roquet.wire.call import Call, Int, Reply
from roquet.wire.codes import RequestCode


class WipeWritePermissionReply(Reply, frozen=True, kw_only=True):
    """Number of topics that can no longer be written on the broker."""

    wipe_topic_count: Int


class WipeWritePermission(Call[WipeWritePermissionReply], frozen=True, kw_only=True):
    """Remove the write permission of a broker, until it registers new topics or gets it back."""

    code: ClassVar = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker_name: str


class AddWritePermissionReply(Reply, frozen=True, kw_only=True):
    """Number of topics that can be written on the broker again."""

    add_topic_count: Int


class AddWritePermission(Call[AddWritePermissionReply], frozen=True, kw_only=True):
    """Give a broker its write permission back."""

    code: ClassVar = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker_name: str


class ForgetTopic(Call[Reply], frozen=True, kw_only=True):
    """Delete a topic from the routes: in one cluster, or everywhere."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


class RegisterTopic(Call[Reply], frozen=True, kw_only=True):
    """Add a topic to the routes of some brokers; the body is a TopicRoute."""

    code: ClassVar = RequestCode.REGISTER_TOPIC_IN_NAMESRV

    topic: str


class TopicsOfCluster(Call[Reply], frozen=True, kw_only=True):
    """Get the topics of a cluster's brokers; the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str


class SystemTopics(Call[Reply], frozen=True, kw_only=True):
    """Get the topics named after clusters and brokers; the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


class UnitTopics(Call[Reply], frozen=True, kw_only=True):
    """Get the topics of one unit (a site of several); the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_UNIT_TOPIC_LIST


class UnitSubscribedTopics(Call[Reply], frozen=True, kw_only=True):
    """Get the topics that groups of a unit subscribe to."""

    code: ClassVar = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


class OthersSubscribedTopics(Call[Reply], frozen=True, kw_only=True):
    """Get the topics outside units that groups of a unit subscribe to."""

    code: ClassVar = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


class UpdateNameServerSettings(Call[Reply], frozen=True, kw_only=True):
    """Change settings; the body is the text of a properties file."""

    code: ClassVar = RequestCode.UPDATE_NAMESRV_CONFIG


class GetNameServerSettings(Call[Reply], frozen=True, kw_only=True):
    """Get all settings; the reply's body is the text of a properties file."""

    code: ClassVar = RequestCode.GET_NAMESRV_CONFIG


class GetBrokerMembers(Call[Reply], frozen=True, kw_only=True):
    """Get the brokers of one name; the reply's body is a BrokerMembersBody."""

    code: ClassVar = RequestCode.GET_BROKER_MEMBER_GROUP

    cluster_name: str
    broker_name: str


class BrokerMembers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Addresses of one broker name, by id (Java's BrokerMemberGroup)."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class BrokerMembersBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Envelope of BrokerMembers (Java's GetBrokerMemberGroupResponseBody)."""

    broker_member_group: BrokerMembers | None = None
