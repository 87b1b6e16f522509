"""Glance: the pull for a few messages of a queue, whatever they are, to learn something of them."""

from roquet.model.flags import PullFlag
from roquet.model.subscription import ALL, TAG
from roquet.spark.queue_offsets import QueueKey
from roquet.wire.calls.pull import Pull


def probe_call(
    group: str, queue: QueueKey, at: int, count: int, size_max: int | None = None
) -> Pull:
    """So many messages from an offset on, or of so many bytes; nobody waits for them."""
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
