"""Topic and group configuration."""

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


class DeleteTopic(Call[Reply], frozen=True, kw_only=True):
    """Delete a topic from a broker, with its messages and its groups' progress."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


class GetTopics(Call[Reply], frozen=True, kw_only=True):
    """All topics of a broker; the reply's body is a TopicTable."""

    code: ClassVar = RequestCode.GET_ALL_TOPIC_CONFIG


class GetTopic(Call[Reply], frozen=True, kw_only=True):
    """One topic's settings; the reply's body is a TopicConfig."""

    code: ClassVar = RequestCode.GET_TOPIC_CONFIG

    topic: str


class CreateGroup(Call[Reply], frozen=True, kw_only=True):
    """Create a consumer group, or change its settings; the body is a SubscriptionGroup."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class DeleteGroup(Call[Reply], frozen=True, kw_only=True):
    """Delete a consumer group, and its progress when asked to."""

    code: ClassVar = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group_name: str
    clean_offset: bool = False


class GetGroups(Call[Reply], frozen=True, kw_only=True):
    """All consumer groups of a broker; the reply's body is a GroupTable."""

    code: ClassVar = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


class GetGroup(Call[Reply], frozen=True, kw_only=True):
    """One group's settings; the reply's body is a SubscriptionGroup."""

    code: ClassVar = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str
