"""MessageQueue: the address of one queue (topic, broker, id)."""

from collections.abc import Iterable
from itertools import groupby

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The address of one queue; sorted by topic, broker, id, as every member of a group must."""

    topic: str = ""
    broker_name: str = ""
    """Empty where a peer left a name out, as Java may."""
    queue_id: int = 0

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


def short_text(queues: Iterable[MessageQueue]) -> str:
    """Queues as a short text for people: `orders@broker-a:0-3,6 orders@broker-b:0`."""
    groups = groupby(sorted(queues), key=lambda queue: (queue.topic, queue.broker_name))
    return " ".join(
        f"{topic}@{broker}:{_ranges([queue.queue_id for queue in held])}"
        for (topic, broker), held in groups
    )


def _ranges(ids: list[int]) -> str:
    runs = groupby(enumerate(ids), key=lambda place: place[1] - place[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(run) for _, run in runs)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
