"""Sending: what one task of a replay does: read rows of its queues in order, send them on."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.exactly_once_sender import ExactlyOnceSender
from roquet.spark.jobs.intervals import OffsetSet
from roquet.spark.jobs.rate_limit import RowRateLimit
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, read_rows
from roquet.spark.jobs.replay.time_merge import merge_by_time
from roquet.spark.jobs.resend_rows import resend_items
from roquet.spark.jobs.task_set import TaskResult
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import QueueKey, QueueOffsets, to_json
from roquet.spark.sink.task import unique_key_maker


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has to send."""

    stretches: tuple[QueueRows, ...]
    rate: float | None = None
    """Messages a second."""

    @property
    def rows(self) -> int:
        """How many messages."""
        return sum(stretch.rows for stretch in self.stretches)


class ReplayTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of tables to be sent to a topic."""

    settings: SourceOptions
    """Of the destination."""
    hands: Sequence[TaskPlan]
    ways: Mapping[QueueKey, QueueKey]
    since: QueueOffsets
    """Where the destination's queues were when the rows were planned."""
    there: Mapping[QueueKey, OffsetSet]
    """What was there by then."""
    choice: RowFilter = RowFilter()

    def __len__(self) -> int:
        return len(self.hands)

    def do(self, number: int) -> TaskResult:
        """One task of it; done again, it sends what is not there yet."""
        hand = self.hands[number]
        cluster = ClusterClient(self.settings)
        sources = {stretch.source: stretch for stretch in hand.stretches}
        ways = {source: self.ways[source] for source in sources}
        courier = ExactlyOnceSender(
            cluster, ways, self.since, RowRateLimit(hand.rate, cluster.pause)
        )
        courier.begin()
        make, rows = unique_key_maker(), Counter[QueueKey]()
        feeds = {
            source: read_rows(stretch, self.choice, self.there.get(source, OffsetSet()))
            for source, stretch in sources.items()
        }
        made = 0
        for source, batch in merge_by_time(feeds):
            texts = resend_items(batch, source[0], make(made, len(batch)))
            courier.send(source, batch.column("queue_offset"), texts)
            rows[source] += len(batch)
            made += len(batch)
        return TaskResult(rows=to_json(dict(rows)), doubled=courier.doubled)
