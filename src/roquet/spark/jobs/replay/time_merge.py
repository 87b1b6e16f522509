"""Time merge: rows of several queues, merged roughly by the time they were stored.

Within a queue rows stay in the order of their offsets.
"""

import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from roquet.lake.intervals import OffsetArray

K = TypeVar("K", bound=Hashable)

LEAD_MS_MAX: Final = 1_000
"""How far one queue may get ahead of the others, so that each step has rows for a whole request."""


class _QueueCursor(Generic[K]):
    """A position in the batches of one queue."""

    def __init__(self, key: K, batches: Iterator[pa.RecordBatch]) -> None:
        self.key, self._batches = key, batches
        self._rows: pa.RecordBatch | None = None
        self._times: OffsetArray = np.empty(0, np.int64)

    def fill(self) -> bool:
        """Load the next batch when the current one is used up; False at the end."""
        while self._rows is None or not len(self._rows):
            self._rows = next(self._batches, None)
            if self._rows is None:
                return False
            self._times = stored_ms(self._rows)
        return True

    @property
    def next_ms(self) -> int:
        return int(self._times[0])

    def take(self, until_ms: int | None) -> pa.RecordBatch:
        """Take the loaded rows up to and including a time, at least one; None takes all."""
        assert self._rows is not None
        count = len(self._rows)
        if until_ms is not None:
            count = max(int(np.searchsorted(self._times, until_ms, side="right")), 1)
        rows, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        self._times = self._times[count:]
        return rows


def stored_ms(rows: pa.RecordBatch) -> OffsetArray:
    """When rows were stored, in ms since 1970, made non-decreasing to follow the offsets.

    Rows without the column `stored_at` have their offsets instead.
    """
    if "stored_at" not in rows.schema.names:
        offsets: OffsetArray = rows.column("queue_offset").to_numpy().astype(np.int64)
        return offsets
    stored = rows.column("stored_at").cast(pa.timestamp("ms", "UTC"), safe=False)
    times: OffsetArray = np.maximum.accumulate(stored.cast(pa.int64()).fill_null(0).to_numpy())
    return times


def merge_by_time(
    queues: Mapping[K, Iterator[pa.RecordBatch]],
) -> Iterator[tuple[K, pa.RecordBatch]]:
    """Rows of one queue at a time, of the one whose next row was stored earliest."""
    cursors = [_QueueCursor(key, batches) for key, batches in queues.items()]
    heap = [(cursor.next_ms, place) for place, cursor in enumerate(cursors) if cursor.fill()]
    heapq.heapify(heap)
    while heap:
        _, place = heapq.heappop(heap)
        cursor = cursors[place]
        yield cursor.key, cursor.take(heap[0][0] + LEAD_MS_MAX if heap else None)
        if cursor.fill():
            heapq.heappush(heap, (cursor.next_ms, place))
