"""A group's members and its progress in all queues.

Our own commands ask for more than RocketMQ's protocol has: with a header field that other brokers
ignore, and fields of the answer that other tools ignore.
"""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class GetConnections(Call[Reply], frozen=True, kw_only=True):
    """Get the members of a consumer group; the reply's body is a ConsumerConnection."""

    code: ClassVar = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str
    with_subscriptions: bool | None = None
    """Ours: include each member's subscriptions."""


class GetConsumeStats(Call[Reply], frozen=True, kw_only=True):
    """Get a group's progress in the queues of a broker; the reply's body is a ConsumeStats."""

    code: ClassVar = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    """If absent or empty: all topics in which the group has progress."""
    topic_list: str | None = None
    """Several topics, separated by semicolons."""
    with_owners: bool | None = None
    """Ours: include the members that work on each queue, as far as the broker sees."""
