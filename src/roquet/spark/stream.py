"""Streaming reader: ranges that follow one another, each replayable from its offsets alone.

Spark keeps the offsets in its checkpoint; nothing is kept here or committed to the broker, so a
range that is read again, after a crash for example, gives the same messages.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark import plan
from roquet.spark.cluster import Cluster
from roquet.spark.options import SourceOptions
from roquet.spark.plan import Offsets
from roquet.spark.tasks import read, tasks_for

if TYPE_CHECKING:
    import pyarrow as pa

IDLE_MS: Final = 500
"""How long Spark is kept when there is nothing new; it would ask again 80 times a second."""

IDLE_PAUSE_MS: Final = 100
"""Between two looks at the brokers meanwhile: what new messages wait for a batch at most."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; `read` runs in workers, on a copy that knows only settings."""

    def __init__(self, settings: SourceOptions, columns: Sequence[str]) -> None:
        self._settings = settings
        self._columns = tuple(columns)
        self._cluster = Cluster(settings)
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        self._first: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins; Spark asks twice and must hear the same."""
        if self._first is None:
            earliest, latest = self._cluster.earliest(), self._cluster.latest()
            edge = self._settings.starting_offsets
            self._first = plan.resolved(edge, earliest, latest, rest=earliest)
        return plan.to_json(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the user allows for one batch."""
        rows_max = self._settings.max_offsets_per_trigger
        return ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing newer than what is there now is read."""
        self._target = self._cluster.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; the start itself when there is nothing new."""
        before = plan.from_json(start)
        end = self._end_after(before)
        deadline = SYSTEM_CLOCK.monotonic_ms() + IDLE_MS
        while end == before and self._target is None and SYSTEM_CLOCK.monotonic_ms() < deadline:
            self._cluster.pause(IDLE_PAUSE_MS)
            end = self._end_after(before)
        if isinstance(limit, ReadMaxRows):
            end = plan.bounded(self._begins(before, end), end, limit.max_rows)
        return plan.to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the queues reach, for the query's progress."""
        return plan.to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One batch, dealt to tasks."""
        before, after = plan.from_json(start), plan.from_json(end)
        pieces = plan.ranges(self._begins(before, after), after)
        return tasks_for(self._settings, pieces, self._cluster.addresses)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of one task."""
        return read(self._settings, self._columns, partition)

    def _end_after(self, before: Offsets) -> Offsets:
        """How far each queue may be read: queues that are away stay where they are."""
        self._latest = self._cluster.latest()
        for loss in plan.losses(before, self._latest):
            self._cluster.lost(loss)
        end = plan.capped(self._latest, self._target, before)
        return {**before, **end}

    def _begins(self, before: Offsets, end: Offsets) -> Offsets:
        if all(before.get(queue, last + 1) <= last for queue, last in end.items()):
            return before
        return plan.restarted(before, end, self._cluster.earliest())
