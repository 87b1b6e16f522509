"""Tasks of a replay: each sends the rows of its source queues, in order within each queue.

Rows of several queues are merged roughly by the time they were stored.
"""

import heapq
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from roquet.lake.intervals import OffsetArray, OffsetSet
from roquet.lake.queue_offsets import QueueKey, QueueOffsets, to_json
from roquet.lake.task_set import TaskResult
from roquet.rules.rate_limit import RateLimit
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.exactly_once_sender import ExactlyOnceSender
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, read_rows, row_times
from roquet.spark.jobs.resend_rows import resend_items
from roquet.spark.options import SourceOptions
from roquet.spark.sink.task import unique_key_maker

K = TypeVar("K", bound=Hashable)

LEAD_MS_MAX: Final = 1_000
"""How far one queue may get ahead of the others, so that each step has rows for a whole request."""


class _QueueCursor(Generic[K]):
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
    times: OffsetArray = np.maximum.accumulate(row_times(rows))
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


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The source queues that one task sends, and its rate."""

    sources: tuple[QueueRows, ...]
    rate: float | None = None
    """Messages per second; None for no limit."""

    @property
    def rows(self) -> int:
        """The number of messages to send."""
        return sum(queue_rows.rows for queue_rows in self.sources)


class ReplayTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that send the rows of tables to a topic."""

    settings: SourceOptions
    """Settings of the destination."""
    plans: Sequence[TaskPlan]
    queue_map: Mapping[QueueKey, QueueKey]
    since: QueueOffsets
    """Ends of the destination's queues when the rows were planned."""
    already_sent: Mapping[QueueKey, OffsetSet]
    """By source, the rows that the destination had copies of by then."""
    row_filter: RowFilter = RowFilter()

    def __len__(self) -> int:
        return len(self.plans)

    def run(self, number: int) -> TaskResult:
        """Send the rows of one plan; a repeated attempt sends those that are missing."""
        plan = self.plans[number]
        # A replica may lack copies that its master has, which would be sent twice.
        cluster = ClusterClient(self.settings, leaders_only=True)
        sources = {queue_rows.source: queue_rows for queue_rows in plan.sources}
        queue_map = {source: self.queue_map[source] for source in sources}
        sender = ExactlyOnceSender(cluster, queue_map, self.since, RateLimit(plan.rate))
        sender.begin()
        make_ids, rows = unique_key_maker(), Counter[QueueKey]()
        batches = {
            source: read_rows(
                queue_rows, self.row_filter, self.already_sent.get(source, OffsetSet())
            )
            for source, queue_rows in sources.items()
        }
        count = 0
        for source, batch in merge_by_time(batches):
            items = resend_items(batch, source[0], make_ids(count, len(batch)))
            sender.send(source, batch.column("queue_offset"), items)
            rows[source] += len(batch)
            count += len(batch)
        return TaskResult(rows=to_json(dict(rows)), doubled=sender.doubled)
