"""Lanes: which queue of the destination takes the messages of which queue; pure.

All messages of a queue go to one queue, the same in every run: what was in order stays so, also
the messages of an order key, which lie in one queue. Where the destination has a queue of the same
broker and number, that is the one; a copy of a topic to one of the same form has its form.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence

from roquet.model.errors import UsageError
from roquet.spark.queue_offsets import QueueKey


def destination_queue(source: QueueKey, queues: Sequence[QueueKey]) -> QueueKey:
    """The queue that takes the messages of another one."""
    if not queues:
        raise UsageError("the destination has no queue that may be written to")
    topic, broker, queue_id = source
    for queue in queues:
        if queue[1:] == (broker, queue_id):
            return queue
    # Neighbours go to neighbours, and another broker's begin elsewhere.
    place = zlib.crc32(f"{topic}/{broker}".encode()) + queue_id
    return sorted(queues)[place % len(queues)]


def map_queues(sources: Iterable[QueueKey], queues: Sequence[QueueKey]) -> dict[QueueKey, QueueKey]:
    """The same for each of the sources."""
    return {source: destination_queue(source, queues) for source in sorted(sources)}


def split_among_tasks(
    rows: Mapping[QueueKey, int], ways: Mapping[QueueKey, QueueKey], tasks: int
) -> list[list[QueueKey]]:
    """The sources dealt to at most so many tasks of about the same work.

    Those that go to one queue are dealt together: nobody else sends there meanwhile.
    """
    groups: dict[QueueKey, list[QueueKey]] = {}
    for source in sorted(rows):
        groups.setdefault(ways[source], []).append(source)
    weights = {queue: sum(rows[source] for source in found) for queue, found in groups.items()}
    hands: list[list[QueueKey]] = [[] for _ in range(max(1, min(tasks, len(groups))))]
    loads = [0] * len(hands)
    for queue in sorted(groups, key=lambda queue: (-weights[queue], queue)):
        hand = loads.index(min(loads))
        hands[hand] += groups[queue]
        loads[hand] += weights[queue]
    return [sorted(hand) for hand in hands if hand]


def task_rates(rate: float | None, rows: Sequence[int]) -> list[float | None]:
    """The rate of each task, so that all end at about the same time."""
    if rate is None:
        return [None] * len(rows)
    total = sum(rows) or 1
    return [max(rate * count / total, rate / (1000 * len(rows))) for count in rows]
