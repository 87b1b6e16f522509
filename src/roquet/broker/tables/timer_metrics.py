"""TimerMetrics: messages that wait for their delivery time, counted by topic."""

from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.wire.calls.timer import TimerMetricsBody, TopicTimerCount


class TimerMetrics(SavedTable[TimerMetricsBody]):
    """Counts by topic: config/timermetrics. After a crash they may be a little off."""

    kind = TimerMetricsBody

    def __init__(self, file: TableFile | None) -> None:
        self._counts: dict[str, TopicTimerCount] = {}
        self.leaps: tuple[tuple[int, int], ...] = ()
        """Leaps of the clock that were not set back yet: (from, to) in wall-clock ms."""
        super().__init__(file)

    def get(self, topic: str) -> int:
        """Waiting messages of a topic."""
        return max(0, self._count(topic))

    @property
    def total(self) -> int:
        """Waiting messages of all topics."""
        return sum(max(0, metric.count) for metric in self._counts.values())

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """Add `count`, which may be negative; for a while more may be recalled than wait."""
        self._counts[topic] = TopicTimerCount(count=self._count(topic) + count, time_stamp=now_ms)
        self.unsaved = True

    def leapt(self, leaps: tuple[tuple[int, int], ...]) -> None:
        """Save these leaps of the clock: the next process may see it set back."""
        if leaps != self.leaps:
            self.leaps = leaps
            self.unsaved = True

    def copy(self, table: TimerMetricsBody) -> None:
        """Take the master's counts in place of the own ones; leaps of the own clock stay."""
        if self.version != table.data_version or self._counts != table.timing_count:
            self._counts = dict(table.timing_count)
            self.version = table.data_version
            self.unsaved = True

    def _count(self, topic: str) -> int:
        metric = self._counts.get(topic)
        return metric.count if metric else 0

    def take(self, table: TimerMetricsBody) -> None:
        """Take the content of the file."""
        self.version = table.data_version
        self._counts = dict(table.timing_count)
        self.leaps = table.clock_leaps or ()

    def content(self) -> TimerMetricsBody:
        """The content to save."""
        return TimerMetricsBody(
            timing_count=dict(self._counts),
            data_version=self.version,
            clock_leaps=self.leaps or None,
        )
