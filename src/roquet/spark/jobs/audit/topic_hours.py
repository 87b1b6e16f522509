"""Topic hours: the messages of each hour in a topic.

They are not read: a broker knows the offset of the first message at a time. Hours without messages
are recognized by equal offsets around them, so a quiet week costs a few calls.
"""

from collections.abc import Callable, Iterator

from roquet.lake.audit.findings import HOUR_MS
from roquet.lake.queue_offsets import QueueKey
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.wire.calls.offset import EarliestTime


def hour_starts(
    cluster: ClusterClient, queue: QueueKey, span: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    """Pairs of each hour since 1970 that has messages, and the offset of its first message.

    `span` is the half-open range of offsets in the queue.
    """
    if span[0] >= span[1]:
        return ()
    topic, broker, queue_id = queue
    oldest_ms = cluster.ask(broker, EarliestTime(topic=topic, queue_id=queue_id)).timestamp
    first = max(oldest_ms, 0) // HOUR_MS
    last = cluster.now_ms() // HOUR_MS + 1

    def at(hour: int) -> int:
        return cluster.first_since(queue, span, hour * HOUR_MS)

    return tuple(search_hours(at, (first, span[0]), (max(last, first + 1), span[1])))


def search_hours(
    at: Callable[[int], int], low: tuple[int, int], high: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Search the hours in which offsets rise by bisection; yields (hour, first offset) pairs.

    `low` and `high` are such pairs, too, and bound the search to [low, high). `at` returns the
    offset of the first message since the begin of an hour.
    """
    if low[1] >= high[1]:
        return
    if low[0] + 1 >= high[0]:
        yield low
        return
    hour = (low[0] + high[0]) // 2
    middle = hour, min(max(at(hour), low[1]), high[1])
    yield from search_hours(at, low, middle)
    yield from search_hours(at, middle, high)
