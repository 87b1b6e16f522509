"""A group's members and its progress in all queues: what operators ask.

Our own commands ask for more than the genuine protocol tells: a header field that other brokers
pass over, and fields of the answer that other tools pass over.
"""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class GetConnections(Call[Reply], frozen=True, kw_only=True):
    """Who is in a consumer group; the reply's body is a ConsumerConnection."""

    code: ClassVar = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str
    with_wishes: bool | None = None
    """Ours: tell of each member what it listens to."""


class GetConsumeStats(Call[Reply], frozen=True, kw_only=True):
    """A group's progress in the queues of a broker; the reply's body is a ConsumeStats."""

    code: ClassVar = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    """All topics of which the group has progress, when it is absent or empty."""
    topic_list: str | None = None
    """Several topics, with semicolons between them."""
    with_owners: bool | None = None
    """Ours: tell who works on which queue, as far as the broker sees."""
