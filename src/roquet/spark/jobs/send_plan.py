"""Send plan: the destination of each source queue, the queues of each task, and its rate. Pure.

All messages of a source queue go to one destination queue, the same in every run. So messages stay
in order, also those of one order key, because they are in one queue. Where the destination has a
queue with the same broker name and number, the source maps to it, so a copy of a topic to one of
the same shape has the same distribution.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence

from roquet.lake.queue_offsets import QueueKey
from roquet.model.errors import UsageError


def destination_queue(source: QueueKey, queues: Sequence[QueueKey]) -> QueueKey:
    """The queue that receives the messages of a source; UsageError when there are no queues."""
    if not queues:
        raise UsageError("the destination has no queue that may be written to")
    topic, broker, queue_id = source
    for queue in queues:
        if queue[1:] == (broker, queue_id):
            return queue
    # Consecutive queues map to consecutive queues, from a start that depends on the broker.
    place = zlib.crc32(f"{topic}/{broker}".encode()) + queue_id
    return sorted(queues)[place % len(queues)]


def map_queues(sources: Iterable[QueueKey], queues: Sequence[QueueKey]) -> dict[QueueKey, QueueKey]:
    """The destination queue of each source."""
    return {source: destination_queue(source, queues) for source in sorted(sources)}


def split_among_tasks(
    rows: Mapping[QueueKey, int], queue_map: Mapping[QueueKey, QueueKey], tasks: int
) -> list[list[QueueKey]]:
    """Deal the sources to at most `tasks` tasks with about equally many rows each.

    Sources with the same destination queue go to the same task, which alone sends to that queue.
    """
    groups: dict[QueueKey, list[QueueKey]] = {}
    for source in sorted(rows):
        groups.setdefault(queue_map[source], []).append(source)
    weights = {queue: sum(rows[source] for source in own) for queue, own in groups.items()}
    plans: list[list[QueueKey]] = [[] for _ in range(max(1, min(tasks, len(groups))))]
    loads = [0] * len(plans)
    for queue in sorted(groups, key=lambda queue: (-weights[queue], queue)):
        least = loads.index(min(loads))
        plans[least] += groups[queue]
        loads[least] += weights[queue]
    return [sorted(plan) for plan in plans if plan]


def task_rates(rate: float | None, rows: Sequence[int]) -> list[float | None]:
    """Divide a rate by the rows of each task, so that all tasks end at about the same time."""
    if rate is None:
        return [None] * len(rows)
    total = sum(rows) or 1
    return [max(rate * count / total, rate / (1000 * len(rows))) for count in rows]
