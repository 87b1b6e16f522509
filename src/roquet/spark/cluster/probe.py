"""Probe: an unfiltered pull for a few messages of a queue, to learn their times or sizes."""

from roquet.lake.queue_offsets import QueueKey
from roquet.model.flags import PullFlag
from roquet.model.subscription import ALL, TAG
from roquet.wire.calls.pull import Pull


def probe_call(
    group: str, queue: QueueKey, at: int, count: int, size_max: int | None = None
) -> Pull:
    """A pull of up to `count` messages from `at` on, or `size_max` bytes, without long polling."""
    topic, _, queue_id = queue
    return Pull(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=at,
        max_msg_nums=count,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=ALL,
        sub_version=0,
        expression_type=TAG,
        max_msg_bytes=size_max,
    )
