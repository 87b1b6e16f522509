"""Tasks of a replay: each reads the rows of its source queues in order and sends them."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from roquet.lake.intervals import OffsetSet
from roquet.lake.queue_offsets import QueueKey, QueueOffsets, to_json
from roquet.lake.task_set import TaskResult
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.exactly_once_sender import ExactlyOnceSender
from roquet.spark.jobs.rate_limit import RowRateLimit
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, read_rows
from roquet.spark.jobs.replay.time_merge import merge_by_time
from roquet.spark.jobs.resend_rows import resend_items
from roquet.spark.options import SourceOptions
from roquet.spark.sink.task import unique_key_maker


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
        rate_limit = RowRateLimit(plan.rate, cluster.pause)
        sender = ExactlyOnceSender(cluster, queue_map, self.since, rate_limit)
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
