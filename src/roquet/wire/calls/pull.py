"""Pull, with its long-polling fields."""

from typing import ClassVar

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode, ResponseCode


class PullReply(Reply, frozen=True, kw_only=True):
    """Stored records without gaps, and the offset of the next pull."""

    suggest_which_broker_id: Long = 0
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class Pull(Call[PullReply], frozen=True, kw_only=True):
    """Get messages of one queue from an offset on."""

    code: ClassVar = RequestCode.PULL_MESSAGE
    accepts: ClassVar = frozenset(
        {
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        }
    )

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    """model.flags.PullFlag."""
    commit_offset: Long
    """Progress to commit with the request, if the flag says so."""
    suspend_timeout_millis: Long
    """How long the broker may hold the request while there is nothing new."""
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    topic_id: str | None = None
    """Ours only: refused if the topic was deleted and created again since."""


class LitePull(Pull, frozen=True, kw_only=True):
    """A pull by 5.x clients with assigned queues."""

    code: ClassVar = RequestCode.LITE_PULL_MESSAGE
