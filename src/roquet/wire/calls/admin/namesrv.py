"""What operators ask of a name server: write permission, its lists of topics, its settings."""

from typing import ClassVar

import msgspec

from roquet.wire.call import Call, Int, Reply
from roquet.wire.codes import RequestCode


class WipeWritePermissionReply(Reply, frozen=True, kw_only=True):
    """How many topics cannot be written on the broker any more."""

    wipe_topic_count: Int


class WipeWritePermission(Call[WipeWritePermissionReply], frozen=True, kw_only=True):
    """Let nobody write to a broker, until it registers other topics, or is given it back."""

    code: ClassVar = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    reply: ClassVar = WipeWritePermissionReply

    broker_name: str


class AddWritePermissionReply(Reply, frozen=True, kw_only=True):
    """How many topics can be written on the broker again."""

    add_topic_count: Int


class AddWritePermission(Call[AddWritePermissionReply], frozen=True, kw_only=True):
    """Let everybody write to a broker again."""

    code: ClassVar = RequestCode.ADD_WRITE_PERM_OF_BROKER
    reply: ClassVar = AddWritePermissionReply

    broker_name: str


class ForgetTopic(Call[Reply], frozen=True, kw_only=True):
    """Forget where a topic lives: in one cluster, or everywhere."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


class RegisterTopic(Call[Reply], frozen=True, kw_only=True):
    """Believe that a topic lives on some brokers; the body is a TopicRoute."""

    code: ClassVar = RequestCode.REGISTER_TOPIC_IN_NAMESRV

    topic: str


class TopicsOfCluster(Call[Reply], frozen=True, kw_only=True):
    """The topics of a cluster's brokers; the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str


class SystemTopics(Call[Reply], frozen=True, kw_only=True):
    """The topics named after clusters and brokers; the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


class UnitTopics(Call[Reply], frozen=True, kw_only=True):
    """The topics of one unit (a site of several); the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_UNIT_TOPIC_LIST


class UnitSubscribedTopics(Call[Reply], frozen=True, kw_only=True):
    """The topics that groups of a unit listen to."""

    code: ClassVar = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


class OthersSubscribedTopics(Call[Reply], frozen=True, kw_only=True):
    """The topics of no unit that groups of a unit listen to."""

    code: ClassVar = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


class UpdateNameServerSettings(Call[Reply], frozen=True, kw_only=True):
    """Change settings; the body is the text of a properties file."""

    code: ClassVar = RequestCode.UPDATE_NAMESRV_CONFIG


class GetNameServerSettings(Call[Reply], frozen=True, kw_only=True):
    """All settings; the reply's body is the text of a properties file."""

    code: ClassVar = RequestCode.GET_NAMESRV_CONFIG


class GetBrokerMembers(Call[Reply], frozen=True, kw_only=True):
    """The brokers of one name; the reply's body is a BrokerMembersBody."""

    code: ClassVar = RequestCode.GET_BROKER_MEMBER_GROUP

    cluster_name: str
    broker_name: str


class BrokerMembers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The addresses of one broker name, by id (Java's BrokerMemberGroup)."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class BrokerMembersBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer's body (Java's GetBrokerMemberGroupResponseBody)."""

    broker_member_group: BrokerMembers | None = None
