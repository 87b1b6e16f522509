"""History: rates, lag, dead letters and queue owners over the last hour, bounded."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from typing import Final

import msgspec

from roquet.admin.group_info import GroupInfo
from roquet.model.queue import MessageQueue

HISTORY_MS: Final = 3_600_000
"""Age from which on samples are forgotten."""

SAMPLES_MAX: Final = 361
"""Samples that a history keeps: an hour of them where one is made each ten seconds."""

TOPICS_MAX: Final = 5_000
"""Topics whose rates are kept over time; of more only the newest sample."""

QUEUES_MAX: Final = 1_024
"""Queues of a group that are kept one by one; of a larger group only the sum."""

SPANS_MAX: Final = 2_000
"""Times of ownership that a group keeps, the newest."""

UNKNOWN: Final = -1
"""A value that no broker told, or of a queue that was not there at the time of a sample."""


def expired(times: Sequence[int]) -> int:
    """Number of the oldest samples that are too old or too many; `times` rise, in ms."""
    too_old = bisect_left(times, times[-1] - HISTORY_MS) if times else 0
    return max(too_old, len(times) - SAMPLES_MAX)


def growth(values: Sequence[float]) -> float:
    """Growth of a count since the first known value, at least 0."""
    known = [value for value in values if value >= 0]
    return max(known[-1] - known[0], 0) if known else 0


def shift(times: MutableSequence[int], ms: int) -> None:
    """Move times after the clock was set by `ms`."""
    for n, time in enumerate(times):
        times[n] = time + ms


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
        self.letters: array[int] = array("q")
        """Dead letters at each time, those sent again among them; `UNKNOWN` likewise."""
        self._queues: dict[MessageQueue, array[int]] = {}
        self._spans: list[OwnerSpan] = []
        self._current: dict[MessageQueue, OwnerSpan] = {}

    def add(self, group: GroupInfo, now_ms: int) -> None:
        """Add a sample."""
        self.times.append(now_ms)
        self.lags.append(UNKNOWN if group.lag is None else group.lag)
        self.letters.append(UNKNOWN if group.dead_letters is None else group.dead_letters)
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

    def shift(self, ms: int) -> None:
        """Move all times after the clock was set by `ms`."""
        shift(self.times, ms)
        for span in self._spans:
            span.start_ms += ms
            span.end_ms += ms

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
        extra = expired(self.times)
        del self.times[:extra], self.lags[:extra], self.letters[:extra]
        for queue, lags in [*self._queues.items()]:
            del lags[: max(len(lags) - len(self.times), 0)]
            if lags[-1] == UNKNOWN and lags.count(UNKNOWN) == len(lags):
                del self._queues[queue]
        first_ms = self.times[0]
        if len(self._spans) > SPANS_MAX or (self._spans and self._spans[0].end_ms < first_ms):
            self._spans = [s for s in self._spans[-SPANS_MAX:] if s.end_ms >= first_ms]
            for queue in [q for q, s in self._current.items() if s.end_ms < first_ms]:
                del self._current[queue]


class ClusterTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over a cluster at one time; None is what no broker told."""

    in_per_s: float | None
    out_per_s: float | None
    lag: float | None


class ClusterHistory:
    """Totals of a cluster and rates of its topics over time, the oldest first."""

    def __init__(self) -> None:
        self.times: array[int] = array("q")
        """Times of all values, in ms since the epoch; each list has `UNKNOWN` for None."""
        self.ins: array[float] = array("d")
        """Messages in a second."""
        self.outs: array[float] = array("d")
        """Messages out a second."""
        self.lags: array[float] = array("d")
        self._topics: dict[str, array[float]] = {}

    def add(self, now_ms: int, totals: ClusterTotals, topics: Mapping[str, float | None]) -> None:
        """Add a sample: the totals, and messages in a second of each topic."""
        self.times.append(now_ms)
        for values, value in (
            (self.ins, totals.in_per_s),
            (self.outs, totals.out_per_s),
            (self.lags, totals.lag),
        ):
            values.append(UNKNOWN if value is None else value)
        for name in topics:
            if len(self._topics) < TOPICS_MAX:
                self._topics.setdefault(name, array("f"))
        for name, rates in self._topics.items():
            rate = topics.get(name)
            rates.append(UNKNOWN if rate is None else rate)
        extra = expired(self.times)
        for kept in (self.times, self.ins, self.outs, self.lags):
            del kept[:extra]
        for rates in self._topics.values():
            del rates[: max(len(rates) - len(self.times), 0)]

    def topic_rates(self, topic: str) -> Sequence[float]:
        """Messages in a second of a topic at the newest times; empty for an unknown one."""
        return self._topics.get(topic, array("f"))

    def forget_topics(self, left: Iterable[str]) -> None:
        """Forget topics that are not among those `left`."""
        for name in self._topics.keys() - set(left):
            del self._topics[name]

    def shift(self, ms: int) -> None:
        """Move all times after the clock was set by `ms`."""
        shift(self.times, ms)
