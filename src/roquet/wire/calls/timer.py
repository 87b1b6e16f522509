"""Timer messages: cancel one, and the state of the timer wheel."""

from typing import ClassVar

import msgspec

from roquet.model.topic import DataVersion
from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class RecallReply(Reply, frozen=True, kw_only=True):
    """The cancelled message."""

    msg_id: str = ""
    """Its producer's message id."""
    region: str = msgspec.field(default="DefaultRegion", name="MSG_REGION")


class Recall(Call[RecallReply], frozen=True, kw_only=True):
    """Cancel a message that waits for its delivery time."""

    code: ClassVar = RequestCode.RECALL_MESSAGE

    producer_group: str | None = None
    topic: str
    recall_handle: str
    broker_name: str | None = msgspec.field(default=None, name="bname")


class GetTimerCheckpoint(Call[Reply], frozen=True, kw_only=True):
    """Progress of the timer wheel; the reply's body is the checkpoint's 56 bytes."""

    code: ClassVar = RequestCode.GET_TIMER_CHECK_POINT


class GetTimerMetrics(Call[Reply], frozen=True, kw_only=True):
    """Number of waiting timer messages by topic; the reply's body is a TimerMetricsBody."""

    code: ClassVar = RequestCode.GET_TIMER_METRICS


class TopicTimerCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Number of one topic's waiting timer messages, and the time of its last change."""

    count: int = 0
    time_stamp: int = 0


class TimerMetricsBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Waiting timer messages by topic (Java's TimerMetrics), on the wire and in its file."""

    timing_count: dict[str, TopicTimerCount] = {}
    data_version: DataVersion = DataVersion()
    clock_leaps: tuple[tuple[int, int], ...] | None = None
    """Ours only: jumps of the clock that were not set back yet, as times before and after."""
