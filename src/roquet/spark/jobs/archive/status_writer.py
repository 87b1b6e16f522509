"""Status writer: notes beside a table how far its job is, for operators and schedulers.

It waits for no broker: one that does not answer is named in the status. A status that cannot be
written, as without any broker, ends no job.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from roquet.admin.brokers import decoded_settings, retention_s
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.queue_offsets import OffsetRange, QueueKey, QueueOffsets, to_json, unread
from roquet.lake.status import POINTS_MAX, JobStatus, LagPoint, find_status, write_status
from roquet.lake.table import TableState
from roquet.log_records import logger
from roquet.model.errors import CallError, RoquetError
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.cluster.time_search import stored_times
from roquet.wire.calls.admin.settings import GetSettings

log = logger(__name__)

INTERVAL_MS: Final = 10_000
"""Least time between two statuses of one run."""

QUEUES_MAX: Final = 64
"""Queues that are asked for the time of their first waiting message, those with most of them."""


class StatusWriter:
    """Writes the status of one table, at most every INTERVAL_MS."""

    def __init__(self, job: str, topic: str, root: TableLocation, cluster: ClusterClient) -> None:
        self._job, self._topic, self._root, self._cluster = job, topic, root, cluster
        self._last: JobStatus | None = None
        self._is_read = False
        self._tried_ms: int | None = None
        """When a status was last to be written; a broker that is away is not waited for again."""
        self._retention_s: float | None = None

    def update(self, state: TableState, *, is_end: bool = False) -> None:
        """Write the status after a commit or a look; `is_end` writes it in any case."""
        now_ms = self._cluster.now_ms()
        try:
            if not self._is_read:
                self._last = find_status(self._root, self._topic)
                self._retention_s = self._retention(state.offsets)
                self._is_read = True
            last = self._last
            times_ms = (self._tried_ms, None if last is None else last.now.at_ms)
            is_early = any(ms is not None and 0 <= now_ms - ms < INTERVAL_MS for ms in times_ms)
            if is_early and not is_end:
                return
            self._tried_ms = now_ms
            status = self._status(state, now_ms, last)
            write_status(self._root, status)
            self._last = status
        except (OSError, RoquetError) as error:
            log.warning("the status of the table was not written: %s", error)

    def _status(self, state: TableState, now_ms: int, last: JobStatus | None) -> JobStatus:
        is_same = last is not None and last.number == state.number
        points = () if last is None else last.points
        away = list[str]()
        bounds = self._bounds(state.offsets, away)
        return JobStatus(
            job=self._job,
            topic=self._topic,
            number=state.number,
            committed_ms=last.committed_ms if last is not None and is_same else now_ms,
            offsets=to_json(state.offsets),
            points=(*points, self._point(state.offsets, bounds, now_ms))[-POINTS_MAX:],
            retention_s=self._retention_s,
            brokers_away=tuple(away),
        )

    def _point(self, offsets: QueueOffsets, bounds: OffsetBounds, now_ms: int) -> LagPoint:
        begins, ends = bounds.earliest, bounds.latest
        waiting = [
            OffsetRange(*queue, max(offset, begins[queue]), ends[queue])
            for queue, offset in offsets.items()
            if unread(offset, ends[queue], begins[queue])
        ]
        return LagPoint(
            at_ms=now_ms,
            committed=sum(offsets.values()),
            waiting=sum(map(len, waiting)),
            lost=sum(max(begins[queue] - offset, 0) for queue, offset in offsets.items()),
            oldest_ms=self._oldest_ms(waiting),
        )

    def _bounds(self, offsets: QueueOffsets, away: list[str]) -> OffsetBounds:
        """The bounds of the table's queues; raises CallError when no broker answers.

        Queues of brokers that do not, which are added to `away`, begin and end at their offsets.
        """
        ids: dict[tuple[str, str], list[int]] = {}
        for topic, broker, queue_id in offsets:
            ids.setdefault((topic, broker), []).append(queue_id)
        begins, ends = {**offsets}, {**offsets}
        for (topic, broker), queue_ids in ids.items():
            try:
                bounds = self._queue_bounds(topic, broker, queue_ids)
            except CallError as error:
                away.append(broker)
                if len(away) == len(ids):
                    raise
                log.debug("broker %s does not say how far its queues reach: %s", broker, error)
                continue
            for queue_id, (begin, end) in bounds.items():
                queue: QueueKey = (topic, broker, queue_id)
                begins[queue], ends[queue] = begin, end
        return OffsetBounds(begins, ends)

    def _queue_bounds(
        self, topic: str, broker: str, ids: Sequence[int]
    ) -> Mapping[int, tuple[int, int]]:
        try:
            return self._cluster.queue_bounds(topic, broker, ids)
        except CallError:  # once more: the connection may have ended, or the route is an old one
            return self._cluster.queue_bounds(topic, broker, ids)

    def _oldest_ms(self, waiting: Sequence[OffsetRange]) -> int | None:
        """When the first message that waits was stored."""
        cluster, times = self._cluster, list[int]()
        for each in sorted(waiting, key=len, reverse=True)[:QUEUES_MAX]:
            group = cluster.settings.group
            found, _ = stored_times(cluster.ask_once, group, each.queue, each.start, 1)
            times += found.values()
        return min(times, default=None)

    def _retention(self, offsets: QueueOffsets) -> float | None:
        """The least time for which a broker of the topic keeps messages, in seconds."""
        known = list[float]()
        for broker in sorted({broker for _, broker, _ in offsets}):
            try:
                settings = decoded_settings(self._cluster.ask_once(broker, GetSettings()))
            except CallError as error:
                log.debug("broker %s does not say how long it keeps messages: %s", broker, error)
                continue
            seconds = retention_s(settings)
            known += [] if seconds is None else [seconds]
        return min(known, default=None)
