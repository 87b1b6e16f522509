"""Feeds: rows of several queues in turns, about as they were stored; each queue in order."""

import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from roquet.spark.jobs.intervals import OffsetArray

K = TypeVar("K", bound=Hashable)

LEAD_MS_MAX: Final = 1_000
"""How far one queue may run ahead of the others: a turn is then worth a request."""


class _QueueCursor(Generic[K]):
    """One queue's batches, and when the rows of the first of them were stored."""

    def __init__(self, key: K, batches: Iterator[pa.RecordBatch]) -> None:
        self.key, self._batches = key, batches
        self._rows: pa.RecordBatch | None = None
        self._times: OffsetArray = np.empty(0, np.int64)

    def fill(self) -> bool:
        """Whether there are rows."""
        while self._rows is None or not len(self._rows):
            self._rows = next(self._batches, None)
            if self._rows is None:
                return False
            self._times = stored_ms(self._rows)
        return True

    @property
    def moment(self) -> int:
        return int(self._times[0])

    def take(self, until_ms: int | None) -> pa.RecordBatch:
        """The rows up to a time, one at least."""
        assert self._rows is not None
        count = len(self._rows)
        if until_ms is not None:
            count = max(int(np.searchsorted(self._times, until_ms, side="right")), 1)
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        self._times = self._times[count:]
        return taken


def stored_ms(rows: pa.RecordBatch) -> OffsetArray:
    """When rows were stored, in ms, never falling: within a queue the order is that of offsets."""
    if "stored_at" not in rows.schema.names:
        offsets: OffsetArray = rows.column("queue_offset").to_numpy().astype(np.int64)
        return offsets
    stored = rows.column("stored_at").cast(pa.timestamp("ms", "UTC"), safe=False)
    times: OffsetArray = np.maximum.accumulate(stored.cast(pa.int64()).fill_null(0).to_numpy())
    return times


def merge_by_time(
    queues: Mapping[K, Iterator[pa.RecordBatch]],
) -> Iterator[tuple[K, pa.RecordBatch]]:
    """Rows of one queue after the other, the earliest first."""
    feeds = [_QueueCursor(key, batches) for key, batches in queues.items()]
    heap = [(feed.moment, place) for place, feed in enumerate(feeds) if feed.fill()]
    heapq.heapify(heap)
    while heap:
        _, place = heapq.heappop(heap)
        feed = feeds[place]
        yield feed.key, feed.take(heap[0][0] + LEAD_MS_MAX if heap else None)
        if feed.fill():
            heapq.heappush(heap, (feed.moment, place))
