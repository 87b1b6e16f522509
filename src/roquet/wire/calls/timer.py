"""Taking a message back before its time, and how far the wheel of delivery times is."""

from typing import ClassVar

import msgspec

from roquet.model.topic import DataVersion
from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class RecallReply(Reply, frozen=True, kw_only=True):
    """Which message was taken back."""

    msg_id: str = ""
    """The producer's id of it."""
    region: str = msgspec.field(default="DefaultRegion", name="MSG_REGION")


class Recall(Call[RecallReply], frozen=True, kw_only=True):
    """Takes a message back that waits for its delivery time."""

    code: ClassVar = RequestCode.RECALL_MESSAGE
    reply: ClassVar = RecallReply

    producer_group: str | None = None
    topic: str
    recall_handle: str
    broker_name: str | None = msgspec.field(default=None, name="bname")


class GetTimerCheckpoint(Call[Reply], frozen=True, kw_only=True):
    """How far the wheel was read and written; the reply's body is the checkpoint's 56 bytes."""

    code: ClassVar = RequestCode.GET_TIMER_CHECK_POINT


class GetTimerMetrics(Call[Reply], frozen=True, kw_only=True):
    """How many messages wait for which topic; the reply's body is a TimerMetrics."""

    code: ClassVar = RequestCode.GET_TIMER_METRICS


class TopicTimerCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many messages wait for one topic, and when that last changed."""

    count: int = 0
    time_stamp: int = 0


class TimerMetricsBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The same by topic: what the genuine TimerMetrics says, on the wire and in its file."""

    timing_count: dict[str, TopicTimerCount] = {}
    data_version: DataVersion = DataVersion()
    clock_leaps: tuple[tuple[int, int], ...] | None = None
    """Ours alone: how the clock leapt ahead and was not set back yet, as times before and after."""
