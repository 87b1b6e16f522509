"""Consume rates: how fast a member pulls and handles each topic, for operators.

Pulls and failures are counted, single messages are not: a message that was pulled, did not fail and
is no longer in flight has been handled.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from roquet.wire.calls.admin.client_forwarding import TopicRates

SAMPLE_MS: Final = 10_000
"""Period between two samples, as in Java."""

WINDOW_MS: Final = 60_000
"""Window of the rates."""

HOUR_MS: Final = 3_600_000
"""Window of the failure count."""


class ConsumeCounts(NamedTuple):
    """Cumulative counts of a topic at one moment."""

    pulls: int = 0
    pull_ms: int = 0
    pulled: int = 0
    handled: int = 0
    failed: int = 0


class TopicCounters:
    """Counters of one topic."""

    __slots__ = ("failed", "gone", "pull_ms", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = self.pull_ms = self.pulled = self.failed = self.gone = 0

    def count_pull(self, count: int, took_ms: int) -> None:
        """Count a pull; the duration of an empty one is its wait, and is not counted."""
        if count:
            self.pulls += 1
            self.pull_ms += took_ms
            self.pulled += count

    def counts(self, in_flight: int) -> ConsumeCounts:
        """The counts, given the number of messages in flight."""
        handled = max(self.pulled - self.gone - in_flight, 0)
        return ConsumeCounts(self.pulls, self.pull_ms, self.pulled, handled, self.failed)


class ConsumeRates:
    """Counters of all topics, with samples of the last hour."""

    def __init__(self) -> None:
        self._tallies: dict[str, TopicCounters] = {}
        self._samples: deque[tuple[int, dict[str, ConsumeCounts]]] = deque()

    def of(self, topic: str) -> TopicCounters:
        """The counters of a topic."""
        return self._tallies.setdefault(topic, TopicCounters())

    def sample(self, now_ms: int, in_flight: Mapping[str, int]) -> None:
        """Take a sample, and drop those older than an hour."""
        self._samples.append((now_ms, self.counts(in_flight)))
        while self._samples[0][0] < now_ms - HOUR_MS:
            self._samples.popleft()

    def table(self, now_ms: int, in_flight: Mapping[str, int]) -> dict[str, TopicRates]:
        """The rates of the last minute and the failures of the last hour, by topic."""
        now = self.counts(in_flight)
        since_ms, before = self._sample_in_window(now_ms)
        _, hour_ago = self._samples[0] if self._samples else (now_ms, {})
        return {
            topic: _rates(
                before.get(topic, ConsumeCounts()),
                hour_ago.get(topic, ConsumeCounts()),
                counts,
                now_ms - since_ms,
            )
            for topic, counts in now.items()
        }

    def counts(self, in_flight: Mapping[str, int]) -> dict[str, ConsumeCounts]:
        """The counts of each topic, given its messages in flight; also called by other threads."""
        return {t: tally.counts(in_flight.get(t, 0)) for t, tally in list(self._tallies.items())}

    def _sample_in_window(self, now_ms: int) -> tuple[int, dict[str, ConsumeCounts]]:
        """The oldest sample within the window."""
        for at_ms, counts in self._samples:
            if at_ms >= now_ms - WINDOW_MS:
                return at_ms, counts
        return now_ms, {}


def _rates(
    before: ConsumeCounts, hour_ago: ConsumeCounts, now: ConsumeCounts, over_ms: int
) -> TopicRates:
    pulls = now.pulls - before.pulls
    seconds = over_ms / 1000
    return TopicRates(
        pull_ms=(now.pull_ms - before.pull_ms) / pulls if pulls else 0.0,
        pulled=_per_second(now.pulled - before.pulled, seconds),
        handled=_per_second(now.handled - before.handled, seconds),
        failed=_per_second(now.failed - before.failed, seconds),
        failed_in_all=now.failed - hour_ago.failed,
    )


def _per_second(count: int, seconds: float) -> float:
    return max(count, 0) / seconds if seconds > 0 else 0.0
