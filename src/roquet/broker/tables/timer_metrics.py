"""Timings: how many messages wait for their delivery time, by the topic they are for."""

from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.wire.calls.timer import TimerMetricsBody, TopicTimerCount


class TimerMetrics(SavedTable[TimerMetricsBody]):
    """Counts by topic: config/timermetrics. After a crash they may be a little off."""

    kind = TimerMetricsBody

    def __init__(self, file: TableFile | None) -> None:
        self._found: dict[str, TopicTimerCount] = {}
        self.leaps: tuple[tuple[int, int], ...] = ()
        """How the clock leapt ahead and was not set back yet: from which time to which."""
        super().__init__(file)

    def get(self, topic: str) -> int:
        """How many wait for a topic."""
        return max(0, self._count(topic))

    @property
    def total(self) -> int:
        """How many wait for any topic."""
        return sum(max(0, found.count) for found in self._found.values())

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """So many more, or fewer: for a while there may be more taken back than wait."""
        self._found[topic] = TopicTimerCount(count=self._count(topic) + count, time_stamp=now_ms)
        self.unsaved = True

    def leapt(self, leaps: tuple[tuple[int, int], ...]) -> None:
        """Keep these leaps of the clock: the next process may be the one that sees it set back."""
        if leaps != self.leaps:
            self.leaps = leaps
            self.unsaved = True

    def _count(self, topic: str) -> int:
        found = self._found.get(topic)
        return found.count if found else 0

    def take(self, found: TimerMetricsBody) -> None:
        """Hold what the file said."""
        self.version = found.data_version
        self._found = dict(found.timing_count)
        self.leaps = found.clock_leaps or ()

    def content(self) -> TimerMetricsBody:
        """What the file should say."""
        return TimerMetricsBody(
            timing_count=dict(self._found),
            data_version=self.version,
            clock_leaps=self.leaps or None,
        )
