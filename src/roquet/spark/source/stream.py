"""Stream reader: consecutive ranges, each replayable from its offsets alone.

Spark keeps the offsets in its checkpoint, and nothing else decides what a batch holds: reading a
range again, after a crash for example, gives the same messages.

Queues of a broker that is away do not advance while the others do; `OffsetWatcher` notices its
return. A run that ends (AvailableNow) fails instead of leaving them out.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from roquet.lake import queue_offsets
from roquet.lake.queue_offsets import QueueKey, QueueOffsets, TopicIds
from roquet.log_records import logger
from roquet.model.errors import ConnectFailed, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark import offset_spec
from roquet.spark.cluster.cluster_client import ClusterClient, Pause, sleep_ms
from roquet.spark.cluster.latest_offsets import ObservedOffsets, OffsetWatcher
from roquet.spark.cluster.progress_publisher import ProgressPublisher
from roquet.spark.options import SourceOptions, matching
from roquet.spark.source import plan, trigger_limits
from roquet.spark.source.tasks import ReadTask, check_read, filter_text, plan_tasks, read_task
from roquet.spark.worker_process import entry_point

if TYPE_CHECKING:
    import pyarrow as pa

log = logger(__name__)

IDLE_MS: Final = 500
"""How long `latestOffset` waits for new messages; Spark would call it 80 times a second."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; `read` runs in workers, on a copy that uses settings alone."""

    _advice = (
        "failOnDataLoss=false continues at the beginning of the new one, or choose a new"
        " checkpointLocation"
    )
    """The advice in errors about a recreated topic; the archive job has its own."""

    def __init__(
        self, settings: SourceOptions, columns: Sequence[str], pause: Pause = sleep_ms
    ) -> None:
        self._settings = settings
        self._columns = tuple(columns)
        self._limits = trigger_limits.TriggerLimits.of(settings)
        self._cluster = ClusterClient(settings, pause=pause, leaders_only=True)
        self._watcher = OffsetWatcher(settings, pause)
        group = settings.publish_progress
        self._publisher = ProgressPublisher(settings, group) if group else None
        self._is_checked = False
        self._latest: QueueOffsets = {}
        self._away_s: dict[str, int] = {}
        self._target: QueueOffsets | None = None
        self._first: dict[str, Any] | None = None
        self._last_batch_ms: int | None = None
        self._quiet_since_ms = SYSTEM_CLOCK.monotonic_ms()
        self._lost = set[QueueKey]()
        self._ids_before: TopicIds = {}
        self._ids: TopicIds = {}
        """Topic ids at the start and at the end of the batch that is planned."""

    @entry_point()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a new query; Spark asks twice and must get the same answer."""
        if self._first is None:
            bounds, edge = self._cluster.bounds(), self._settings.starting_offsets
            check_read(self._cluster)
            first = offset_spec.starting_offsets(
                edge, bounds.earliest, bounds.latest, self._cluster
            )
            self._first = queue_offsets.checkpoint(first, bounds.topic_ids)
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One limit of a batch; Spark cannot combine several."""
        limits = self._limits
        if limits.rows_max:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.rows_min) if limits.rows_min else ReadAllAvailable()

    @entry_point()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the latest offsets as the end of this run; fails while a broker is away."""
        observed = self._watcher.observe_all({})
        for topic, error in observed.unfound.items():
            raise ConnectFailed(f"topic {topic!r} is not found: {error}") from error
        if observed.away_ms:
            self._cluster.report_loss(_left_out_text(observed.away_ms))
        self._target = observed.latest

    @entry_point()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself when there is nothing new."""
        before = queue_offsets.offsets_of_checkpoint(start, self._is_read)
        if not self._is_checked:
            log.info("%s", filter_text(self._settings, None))
            if self._publisher:
                self._publisher.check()
        self._is_checked = True
        limits = (
            trigger_limits.TriggerLimits() if isinstance(limit, ReadAllAvailable) else self._limits
        )
        self._ids_before = queue_offsets.topic_ids_of_checkpoint(start)
        self._complete_target(before)
        # A run that ends gives brokers time to return.
        wait_ms = IDLE_MS if self._target is None else self._settings.timeout_ms
        deadline = SYSTEM_CLOCK.monotonic_ms() + wait_ms
        while (end := self._end_after(before, limits)) == before:
            unread = self._unread(before)
            if (self._target is not None and not unread) or SYSTEM_CLOCK.monotonic_ms() >= deadline:
                self._report_left_out(unread)
                return start
            idle_ms = SYSTEM_CLOCK.monotonic_ms() - self._quiet_since_ms
            self._cluster.pause(trigger_limits.pause_ms(idle_ms))
        self._last_batch_ms = self._quiet_since_ms = SYSTEM_CLOCK.monotonic_ms()
        return queue_offsets.checkpoint(end, self._ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Latest offsets and absent brokers, for the query's progress."""
        return queue_offsets.latest_to_json(self._latest, self._away_s) if self._latest else None

    @entry_point()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One batch, distributed over tasks."""
        return self.tasks(start, end)

    def tasks(
        self, start: dict[str, Any], end: dict[str, Any], cores: int | None = None
    ) -> Sequence[ReadTask]:
        """One batch, distributed over tasks for so many cores."""
        before, after = (
            queue_offsets.offsets_of_checkpoint(saved, self._is_read) for saved in (start, end)
        )
        ranges = plan.with_topic_ids(
            queue_offsets.ranges(before, after), queue_offsets.topic_ids_of_checkpoint(end)
        )
        cluster = self._watcher.cluster
        return plan_tasks(self._settings, ranges, cluster.addresses, cluster.replicas, cores)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of one task."""
        return read_task(self._settings, self._columns, partition)

    @entry_point()
    def commit(self, end: dict[str, Any]) -> None:
        """Publish progress: Spark has finished the batches before `end`, and says so one later."""
        if self._publisher:
            self._publisher.publish(
                queue_offsets.from_json(end), queue_offsets.topic_ids_of_checkpoint(end)
            )

    # -- where a batch ends ------------------------------------------------------------------

    def _end_after(
        self, before: QueueOffsets, limits: trigger_limits.TriggerLimits
    ) -> QueueOffsets:
        """The end of the next batch; queues of absent brokers do not advance."""
        observed = self._watcher.observe(before)
        self._latest = {**self._latest, **observed.latest}
        self._away_s = {broker: ms // 1000 for broker, ms in observed.away_ms.items()}
        anew = plan.recreated_queues(
            before, observed.earliest, self._ids_before, observed.topic_ids
        )
        self._report_losses(before, observed, anew)
        latest = plan.cap_at(observed.latest, self._target, before)
        begins = plan.new_queue_starts(before, observed.earliest, latest)
        begins |= {queue: observed.earliest[queue] for queue in anew & latest.keys()}
        behind = {queue[:2] for queue in anew - begins.keys()}
        now = {
            place: topic_id for place, topic_id in observed.topic_ids.items() if place not in behind
        }
        self._ids = self._ids_before | now
        known = {queue: last for queue, last in latest.items() if queue not in begins}
        return {**before, **self._within(limits, before, known), **begins}

    def _within(
        self, limits: trigger_limits.TriggerLimits, before: QueueOffsets, latest: QueueOffsets
    ) -> QueueOffsets:
        """End offsets within the limits; empty when it is too early for a batch."""
        unread = queue_offsets.ranges(before, latest)
        rows = sum(map(len, unread))
        last_ms = self._last_batch_ms
        waited_ms = None if last_ms is None else SYSTEM_CLOCK.monotonic_ms() - last_ms
        if self._target is None and limits.holds_back(rows, waited_ms):
            return {}
        rows_max = limits.rows_max or rows
        if limits.bytes_max and unread:
            rows_max = min(rows_max, self._rows_within(limits.bytes_max, before, latest))
        return plan.limit_rows(before, latest, rows_max)

    def _rows_within(self, bytes_max: int, before: QueueOffsets, latest: QueueOffsets) -> int:
        """The rows that fit into so many bytes, by samples at the batch's start and end."""
        unread = queue_offsets.ranges(before, latest)
        sampled = trigger_limits.longest_ranges(unread)
        sizes = {
            offset_range.queue: self._watcher.mean_size(offset_range.queue, offset_range.start)
            for offset_range in sampled
        }
        first = {queue: size for queue, size in sizes.items() if size}
        rows = trigger_limits.rows_within(bytes_max, unread, first)
        ends = plan.limit_rows(before, latest, rows)
        last = {queue: self._watcher.mean_size(queue, max(ends[queue] - 1, 0)) for queue in first}
        both = {queue: (size + (last[queue] or size)) / 2 for queue, size in first.items()}
        return trigger_limits.rows_within(bytes_max, unread, both)

    # -- what is amiss -----------------------------------------------------------------------

    def _report_losses(
        self, before: QueueOffsets, observed: ObservedOffsets, anew: set[QueueKey]
    ) -> None:
        """Raise DataLost for lost messages; with failOnDataLoss=false, warn once about each."""
        for what in plan.recreation_texts(anew, before, observed.topic_ids):
            self._cluster.report_loss(f"{what}; its unread messages are gone", advice=self._advice)
        before = {queue: offset for queue, offset in before.items() if queue not in anew}
        lost = plan.lost_queues(before, observed.latest, observed.away_ms, observed.hidden)
        for queue, what in lost:
            if queue not in self._lost:
                self._cluster.report_loss(what)
            self._lost.add(queue)
        if self._settings.fail_on_data_loss:  # otherwise the task that meets the gap reports it
            for what in plan.deleted_texts(before, observed.earliest):
                self._cluster.report_loss(what)

    def _unread(self, before: QueueOffsets) -> set[QueueKey]:
        """The queues that are below the target of a run that ends."""
        target = self._target or {}
        return {q for q, last in target.items() if before.get(q, -1) < last} - self._lost

    def _complete_target(self, before: QueueOffsets) -> None:
        """Add queues to a run's target that were read before and that it lacks."""
        target = self._target
        if target is None or not (missing := before.keys() - target.keys() - self._lost):
            return
        observed = self._watcher.observe_all(before)
        target |= {queue: last for queue, last in observed.latest.items() if queue in missing}
        gone = missing - target.keys()
        away = {queue for queue in gone if queue[1] in observed.away_ms}
        left = {queue: before[queue] for queue in gone - away}
        for queue, what in plan.lost_queues(left, {}, hidden=observed.hidden):
            self._lost.add(queue)
            self._cluster.report_loss(what)
        self._report_left_out(away)

    def _report_left_out(self, queues: Collection[QueueKey]) -> None:
        """Report queues that a run would end without as lost."""
        if left := set(queues) - self._lost:
            self._lost |= left
            self._cluster.report_loss(_left_out_text({broker for _, broker, _ in left}))

    def _is_read(self, topic: str) -> bool:
        pattern = self._settings.topic_pattern
        if pattern is None:
            return topic in self._settings.topics
        return bool(matching(pattern, [topic], ()))


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream that cannot begin, and raises the reason when Spark first asks it.

    An error raised by `streamReader` itself would be hidden by one of Spark's own, which then
    closes a reader that is not there.
    """

    def __init__(self, reason: RoquetError) -> None:
        self._reason = reason

    @entry_point()
    def _refuse(self, *_args: Any, **_named: Any) -> Any:
        raise self._reason

    getDefaultReadLimit = initialOffset = latestOffset = _refuse  # noqa: N815
    prepareForTriggerAvailableNow = partitions = read = _refuse  # noqa: N815


def _left_out_text(brokers: Iterable[str]) -> str:
    names = ", ".join(map(repr, sorted(brokers)))
    return f"broker {names} is away: this run would end without its messages"
