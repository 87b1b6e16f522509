"""Streaming reader: ranges that follow one another, each replayable from its offsets alone.

Spark keeps the offsets in its checkpoint, and nothing else decides what a batch holds: a range
that is read again, after a crash for example, gives the same messages.

Queues of a broker that is away stay where they are, the others go on; `OffsetWatcher` says when
it is back. Only a run that is to end (AvailableNow) may not leave them out, and fails.
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

from roquet.log_records import logger
from roquet.model.errors import ConnectFailed
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark import offset_spec, queue_offsets
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.latest_offsets import ObservedOffsets, OffsetWatcher
from roquet.spark.cluster.progress_publisher import ProgressPublisher
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import QueueKey, QueueOffsets, TopicIds
from roquet.spark.source import plan, preflight, trigger_limits
from roquet.spark.source.tasks import plan_tasks, read_task
from roquet.spark.topic_pattern import matching

if TYPE_CHECKING:
    import pyarrow as pa

log = logger(__name__)

IDLE_MS: Final = 500
"""How long Spark is kept when there is nothing new; it would ask again 80 times a second."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; `read` runs in workers, on a copy that knows only settings."""

    _advice = (
        "failOnDataLoss=false goes on at the beginning of the new one, or choose a new"
        " checkpointLocation"
    )
    """What to do when a topic was deleted and made anew."""

    def __init__(self, settings: SourceOptions, columns: Sequence[str]) -> None:
        self._settings = settings
        self._columns = tuple(columns)
        self._limits = trigger_limits.TriggerLimits.of(settings)
        self._cluster = ClusterClient(settings, leaders_only=True)
        self._watch = OffsetWatcher(settings)
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
        """Of the topics at the two ends of the batch that is planned."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins; Spark asks twice and must hear the same."""
        if self._first is None:
            bounds, edge = self._cluster.bounds(), self._settings.starting_offsets
            preflight.check_read(self._cluster)
            first = offset_spec.starting_offsets(
                edge, bounds.earliest, bounds.latest, self._cluster
            )
            self._first = queue_offsets.checkpoint(first, bounds.topic_ids)
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the user allows for one batch; of several limits, which Spark cannot join, one."""
        limits = self._limits
        if limits.rows_max:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.rows_min) if limits.rows_min else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing newer than what is there now is read, and nothing less."""
        look = self._watch.whole({})
        for topic, error in look.unfound.items():
            raise ConnectFailed(f"topic {topic!r} is not found: {error}") from error
        if look.away_ms:
            self._cluster.report_loss(_left_out_text(look.away_ms))
        self._target = look.latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; the start itself when there is nothing new."""
        before = queue_offsets.offsets_of_checkpoint(start, self._is_read)
        self._check_group()
        limits = (
            trigger_limits.TriggerLimits() if isinstance(limit, ReadAllAvailable) else self._limits
        )
        self._ids_before = queue_offsets.topic_ids_of_checkpoint(start)
        self._find_left_out(before)
        deadline = SYSTEM_CLOCK.monotonic_ms() + self._waits_ms
        while (end := self._end_after(before, limits)) == before:
            unread = self._unread(before)
            if (self._target is not None and not unread) or SYSTEM_CLOCK.monotonic_ms() >= deadline:
                self._leave_nothing_out(unread)
                return start
            idle_ms = SYSTEM_CLOCK.monotonic_ms() - self._quiet_since_ms
            self._cluster.pause(trigger_limits.pause_ms(idle_ms))
        self._last_batch_ms = self._quiet_since_ms = SYSTEM_CLOCK.monotonic_ms()
        return queue_offsets.checkpoint(end, self._ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the queues reach, for the query's progress, and which brokers are away."""
        return queue_offsets.latest_to_json(self._latest, self._away_s) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One batch, dealt to tasks."""
        before, after = (
            queue_offsets.offsets_of_checkpoint(kept, self._is_read) for kept in (start, end)
        )
        pieces = plan.with_topic_ids(
            queue_offsets.ranges(before, after), queue_offsets.topic_ids_of_checkpoint(end)
        )
        return plan_tasks(self._settings, pieces, self._watch.addresses)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of one task."""
        return read_task(self._settings, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has done with what lies before; it says so one batch later."""
        if self._publisher:
            self._publisher.publish(
                queue_offsets.from_json(end), queue_offsets.topic_ids_of_checkpoint(end)
            )

    # -- where a batch ends ------------------------------------------------------------------

    def _end_after(
        self, before: QueueOffsets, limits: trigger_limits.TriggerLimits
    ) -> QueueOffsets:
        """How far each queue is to be read: those of brokers that are away stay where they are."""
        look = self._watch.look(before)
        self._note(look)
        anew = plan.recreated_queues(before, look.earliest, self._ids_before, look.topic_ids)
        self._report_losses(before, look, anew)
        latest = plan.cap_at(look.latest, self._target, before)
        begins = plan.new_queue_starts(before, look.earliest, latest)
        begins |= {queue: look.earliest[queue] for queue in anew & latest.keys()}
        behind = {queue[:2] for queue in anew - begins.keys()}
        now = {place: one for place, one in look.topic_ids.items() if place not in behind}
        self._ids = self._ids_before | now
        known = {queue: last for queue, last in latest.items() if queue not in begins}
        return {**before, **self._within(limits, before, known), **begins}

    def _within(
        self, limits: trigger_limits.TriggerLimits, before: QueueOffsets, latest: QueueOffsets
    ) -> QueueOffsets:
        """The ends that the limits allow; no further than before when it is too early."""
        pieces = queue_offsets.ranges(before, latest)
        rows = sum(map(len, pieces))
        last_ms = self._last_batch_ms
        waited_ms = None if last_ms is None else SYSTEM_CLOCK.monotonic_ms() - last_ms
        if self._target is None and limits.holds_back(rows, waited_ms):
            return {}
        rows_max = limits.rows_max or rows
        if limits.bytes_max and pieces:
            rows_max = min(rows_max, self._rows_within(limits.bytes_max, before, latest))
        return plan.limit_rows(before, latest, rows_max)

    def _rows_within(self, bytes_max: int, before: QueueOffsets, latest: QueueOffsets) -> int:
        """The rows that so many bytes hold: by messages where a batch begins and where it ends."""
        pieces = queue_offsets.ranges(before, latest)
        asked = trigger_limits.longest_ranges(pieces)
        sizes = {piece.queue: self._watch.size(piece.queue, piece.start) for piece in asked}
        first = {queue: size for queue, size in sizes.items() if size}
        rows = trigger_limits.rows_within(bytes_max, pieces, first)
        ends = plan.limit_rows(before, latest, rows)
        last = {queue: self._watch.size(queue, max(ends[queue] - 1, 0)) for queue in first}
        both = {queue: (size + (last[queue] or size)) / 2 for queue, size in first.items()}
        return trigger_limits.rows_within(bytes_max, pieces, both)

    # -- what is amiss -----------------------------------------------------------------------

    def _note(self, look: ObservedOffsets) -> None:
        self._latest = {**self._latest, **look.latest}
        self._away_s = {broker: ms // 1000 for broker, ms in look.away_ms.items()}

    def _report_losses(
        self, before: QueueOffsets, look: ObservedOffsets, anew: set[QueueKey]
    ) -> None:
        """An error for what is gone; a warning, once, where the user allows it."""
        for what in plan.recreation_texts(anew, before, look.topic_ids):
            self._cluster.report_loss(
                f"{what}; what was not read of it is gone", advice=self._advice
            )
        before = {queue: offset for queue, offset in before.items() if queue not in anew}
        for queue, what in plan.lost_queues(before, look.latest, look.away_ms):
            if queue not in self._lost:
                self._cluster.report_loss(what)
            self._lost.add(queue)
        if self._settings.fail_on_data_loss:  # else the task that meets the gap says so
            for what in plan.deleted_texts(before, look.earliest):
                self._cluster.report_loss(what)

    def _unread(self, before: QueueOffsets) -> set[QueueKey]:
        """The queues that a run that is to end has not read up to its target."""
        target = self._target or {}
        return {q for q, last in target.items() if before.get(q, -1) < last} - self._lost

    def _find_left_out(self, before: QueueOffsets) -> None:
        """Wait for queues that were read before and that a run's target lacks."""
        target = self._target
        if target is None or not (missing := before.keys() - target.keys() - self._lost):
            return
        look = self._watch.whole(before)
        target |= {queue: last for queue, last in look.latest.items() if queue in missing}
        gone = missing - target.keys()
        away = {queue for queue in gone if queue[1] in look.away_ms}
        for queue, what in plan.lost_queues({queue: before[queue] for queue in gone - away}, {}):
            self._lost.add(queue)
            self._cluster.report_loss(what)
        self._leave_nothing_out(away)

    def _leave_nothing_out(self, queues: Collection[QueueKey]) -> None:
        """An error, where the user does not allow it, if a run would end without messages."""
        if left := set(queues) - self._lost:
            self._lost |= left
            self._cluster.report_loss(_left_out_text({broker for _, broker, _ in left}))

    def _is_read(self, topic: str) -> bool:
        pattern = self._settings.topic_pattern
        if pattern is None:
            return topic in self._settings.topics
        return bool(matching(pattern, [topic], ()))

    @property
    def _waits_ms(self) -> int:
        """How long a batch is waited for: a run that is to end gives a broker time to come back."""
        return IDLE_MS if self._target is None else self._settings.timeout_ms

    def _check_group(self) -> None:
        if self._publisher and not self._is_checked:
            self._publisher.check()
        self._is_checked = True


def _left_out_text(brokers: Iterable[str]) -> str:
    names = ", ".join(map(repr, sorted(brokers)))
    return f"broker {names} is away: this run, which is to end, would leave out its messages"
