"""Offsets: query, update, min, max, by time."""

from typing import ClassVar

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode


class OffsetReply(Reply, frozen=True, kw_only=True):
    """One offset."""

    offset: Long
    topic_id: str | None = None
    """Id of the topic (rules.topic_id); ours only."""


class TimeReply(Reply, frozen=True, kw_only=True):
    """One time, in ms since the epoch; -1 if there is none."""

    timestamp: Long


class QueryOffset(Call[OffsetReply], frozen=True, kw_only=True):
    """A group's progress in one queue; QUERY_NOT_FOUND if it has none."""

    code: ClassVar = RequestCode.QUERY_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class UpdateOffset(Call[Reply], frozen=True, kw_only=True):
    """A group's new progress in one queue: the offset of the next message to handle."""

    code: ClassVar = RequestCode.UPDATE_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    topic_id: str | None = None
    """Ours only: refused if the topic was deleted and created again since."""


class MaxOffset(Call[OffsetReply], frozen=True, kw_only=True):
    """Offset that the next message of a queue will get."""

    code: ClassVar = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: Int
    committed: bool = True


class MinOffset(Call[OffsetReply], frozen=True, kw_only=True):
    """Offset of the first message that a queue still holds."""

    code: ClassVar = RequestCode.GET_MIN_OFFSET

    topic: str
    queue_id: Int


class OffsetByTime(Call[OffsetReply], frozen=True, kw_only=True):
    """Offset of the first message stored at a time or later."""

    code: ClassVar = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None
    """The first of several with equal times ("lower", the default) or the last ("upper"), in any
    case."""


class EarliestTime(Call[TimeReply], frozen=True, kw_only=True):
    """Store time of the first message that a queue still holds."""

    code: ClassVar = RequestCode.GET_EARLIEST_MSG_STORETIME

    topic: str
    queue_id: Int
