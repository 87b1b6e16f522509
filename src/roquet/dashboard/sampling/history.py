"""History: lag and queue owners of one group over time, bounded."""

from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.admin.group_info import GroupInfo
from roquet.model.queue import MessageQueue

SAMPLES_MAX: Final = 360
"""Samples that a group keeps: an hour of them where one is made each ten seconds."""

QUEUES_MAX: Final = 1_024
"""Queues of a group that are kept one by one; of a larger group only the sum."""

SPANS_MAX: Final = 2_000
"""Times of ownership that a group keeps, the newest."""

UNKNOWN: Final = -1
"""Lag that no broker told, or of a queue that was not there at the time of a sample."""


class OwnerSpan(msgspec.Struct, kw_only=True):
    """The time in which a queue had one owner."""

    queue: MessageQueue
    owner: str
    """Client id; empty where none was seen."""
    start_ms: int
    end_ms: int
    """Time of the last sample that saw this owner."""


class GroupHistory:
    """Samples of one group, the oldest first. Times are in ms since the epoch."""

    def __init__(self) -> None:
        self.times: array[int] = array("q")
        self.lags: array[int] = array("q")
        """Lag of the whole group at each time; `UNKNOWN` where no broker told."""
        self._queues: dict[MessageQueue, array[int]] = {}
        self._spans: list[OwnerSpan] = []
        self._current: dict[MessageQueue, OwnerSpan] = {}

    def add(self, group: GroupInfo, now_ms: int) -> None:
        """Add a sample."""
        self.times.append(now_ms)
        self.lags.append(UNKNOWN if group.lag is None else group.lag)
        shown = group.queues if len(group.queues) <= QUEUES_MAX else []
        lags = {MessageQueue(q.topic, q.broker, q.queue_id): q.lag for q in shown}
        for queue in lags:
            self._queues.setdefault(queue, array("q"))
        for queue, known in self._queues.items():
            known.append(lags.get(queue, UNKNOWN))
        for one in shown:
            if one.owners is not None:
                key = MessageQueue(one.topic, one.broker, one.queue_id)
                self._add_owner(key, ", ".join(one.owners), now_ms)
        self._trim()

    def queue_lags(self, queue: MessageQueue) -> Sequence[int]:
        """Lags of a queue at the newest times; shorter than `times` for a queue that came later."""
        return self._queues.get(queue, array("q"))

    @property
    def spans(self) -> Sequence[OwnerSpan]:
        """Owners of all queues over time."""
        return self._spans

    def _add_owner(self, queue: MessageQueue, owner: str, now_ms: int) -> None:
        span = self._current.get(queue)
        if span is not None:
            span.end_ms = now_ms
            if span.owner == owner:
                return
        span = OwnerSpan(queue=queue, owner=owner, start_ms=now_ms, end_ms=now_ms)
        self._current[queue] = span
        self._spans.append(span)

    def _trim(self) -> None:
        extra = max(len(self.times) - SAMPLES_MAX, 0)
        del self.times[:extra], self.lags[:extra]
        for queue, lags in [*self._queues.items()]:
            del lags[: max(len(lags) - SAMPLES_MAX, 0)]
            if lags[-1] == UNKNOWN and lags.count(UNKNOWN) == len(lags):
                del self._queues[queue]
        first_ms = self.times[0]
        if len(self._spans) > SPANS_MAX or (self._spans and self._spans[0].end_ms < first_ms):
            self._spans = [s for s in self._spans[-SPANS_MAX:] if s.end_ms >= first_ms]
            for queue in [q for q, s in self._current.items() if s.end_ms < first_ms]:
                del self._current[queue]
