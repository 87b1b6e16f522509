"""Topics and groups: create, change, delete, read."""

from typing import ClassVar

from roquet.wire.call import Call, Int, Reply
from roquet.wire.codes import RequestCode


class CreateTopic(Call[Reply], frozen=True, kw_only=True):
    """Create a topic, or change its settings."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_TOPIC

    topic: str
    default_topic: str = ""
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class CreateTopics(Call[Reply], frozen=True, kw_only=True):
    """Create topics, or change their settings; the body is a TopicConfigs."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST


class DeleteTopic(Call[Reply], frozen=True, kw_only=True):
    """Delete a topic from a broker, with its messages and its groups' progress."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


class TopicsReply(Reply, frozen=True, kw_only=True):
    """Number of all topics, from newer brokers: a page holds some of them."""

    total_topic_num: Int | None = None


class GetTopics(Call[TopicsReply], frozen=True, kw_only=True):
    """Get all topics of a broker, or a page of them; the reply's body is a TopicTable."""

    code: ClassVar = RequestCode.GET_ALL_TOPIC_CONFIG

    topic_seq: Int | None = None
    """Number of the page's first topic, in the order of names."""
    max_topic_num: Int | None = None
    data_version: str | None = None
    """Version of the table, in JSON, of the previous pages."""


class GetTopic(Call[Reply], frozen=True, kw_only=True):
    """Get one topic's settings; the reply's body is a TopicConfig."""

    code: ClassVar = RequestCode.GET_TOPIC_CONFIG

    topic: str


class CreateGroup(Call[Reply], frozen=True, kw_only=True):
    """Create a consumer group, or change its settings; the body is a SubscriptionGroup."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class CreateGroups(Call[Reply], frozen=True, kw_only=True):
    """Create consumer groups, or change their settings; the body is a SubscriptionGroups."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


class DeleteGroup(Call[Reply], frozen=True, kw_only=True):
    """Delete a consumer group, and its progress if asked for."""

    code: ClassVar = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group_name: str
    clean_offset: bool = False


class GroupsReply(Reply, frozen=True, kw_only=True):
    """Number of all groups, from newer brokers: a page holds some of them."""

    total_group_num: Int | None = None


class GetGroups(Call[GroupsReply], frozen=True, kw_only=True):
    """Get all consumer groups of a broker, or a page of them; the reply's body is a GroupTable."""

    code: ClassVar = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: Int | None = None
    """Number of the page's first group, in the order of names."""
    max_group_num: Int | None = None
    data_version: str | None = None
    """Version of the table, in JSON, of the previous pages."""


class GetGroup(Call[Reply], frozen=True, kw_only=True):
    """Get one group's settings; the reply's body is a SubscriptionGroup."""

    code: ClassVar = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


class ForbidGroup(Call[Reply], frozen=True, kw_only=True):
    """Forbid a group to read a topic, allow it, or query that; the body is a GroupForbidden.

    The header says everything: a request's body with the same content is ignored.
    """

    code: ClassVar = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    group: str
    topic: str
    readable: bool | None = None
    """None changes nothing."""
