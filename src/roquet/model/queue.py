"""MessageQueue: the address of one queue (topic, broker, id)."""

from collections.abc import Iterable
from itertools import groupby

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """Address of one queue; sorts by topic, broker and id, as all members of a group must."""

    topic: str = ""
    broker_name: str = ""
    """Empty if a peer left a name out, as Java may."""
    queue_id: int = 0

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


def short_text(queues: Iterable[MessageQueue]) -> str:
    """Format queues for people: `orders@broker-a:0-3,6 orders@broker-b:0`."""
    groups = groupby(sorted(queues), key=lambda queue: (queue.topic, queue.broker_name))
    return " ".join(
        f"{topic}@{broker}:{_ranges([queue.queue_id for queue in queues_there])}"
        for (topic, broker), queues_there in groups
    )


def _ranges(ids: list[int]) -> str:
    runs = groupby(enumerate(ids), key=lambda item: item[1] - item[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(run) for _, run in runs)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
