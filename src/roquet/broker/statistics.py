"""Statistics: messages stored and delivered by topic and group, per minute, hour and day.

    every 10 s   minute │ 0 s │ 10 s │ … │ 60 s │      a sample is (times, messages, bytes) so far;
    every 10 min hour   │ 0 m │ 10 m │ … │ 60 m │      the newest less the oldest is the sum of a
    every hour   day    │ 0 h │  1 h │ … │ 24 h │      span, as in the genuine StatsItem

Nothing is counted on the path of a send: services.sampling counts stored messages in the queues.
A pull counts once, however many messages it returns.
"""

from array import array
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from roquet.wire.calls.admin.stats import StatsData, StatsItem

SAMPLE_MS: Final = 10_000
"""Between two samples, as in the genuine broker."""

PER_HOUR_SAMPLE: Final = 60
PER_DAY_SAMPLE: Final = 360
"""How many samples of a minute pass between two of an hour, and of a day."""

MINUTE_LENGTH: Final = 7
HOUR_LENGTH: Final = 7
DAY_LENGTH: Final = 25
"""Samples that are kept of each span, its first and its last among them."""

COUNTERS_COUNT: Final = 1_000
"""Counters that are sampled before others have their turn: about half a millisecond."""

KEYS_MAX: Final = 10_000
"""Keys of one kind, a kilobyte each: further keys count only for the whole broker."""

TIMES, COUNT, SIZE = range(3)
"""Places in a sample."""

WIDTH: Final = 3
"""Numbers of a sample."""

KINDS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {
        "TOPIC_PUT_NUMS": ("puts", COUNT),
        "TOPIC_PUT_SIZE": ("puts", SIZE),
        "GROUP_GET_NUMS": ("gets", COUNT),
        "GROUP_GET_SIZE": ("gets", SIZE),
        "SNDBCK_PUT_NUMS": ("returns", COUNT),
    }
)
"""Apache's names of statistics by key: our table, and the number of its counters."""

LATENCY: Final = "GROUP_GET_LATENCY"
"""Ms in which a pull read its messages: always 0, since they are slices of a memory map."""

TopicGroup: TypeAlias = tuple[str, str]
"""Topic and group: "topic@group" in Apache's keys."""

K = TypeVar("K")


class StatsCounter:
    """The counts of one key since the start, and samples of them."""

    __slots__ = ("count", "day", "hour", "minute", "pulled", "size", "times")

    def __init__(self) -> None:
        self.times = self.count = self.size = 0
        self.minute, self.hour, self.day = array("q"), array("q"), array("q")
        self.pulled: dict[int, int] = {}
        """Queue id → the offset after the last pulled message."""

    def add(self, times: int, count: int, size: int) -> None:
        """Add to the counts."""
        self.times += times
        self.count += count
        self.size += size

    def sample(self, samples: "array[int]", length: int) -> None:
        """Take a sample; before the first one the counts were 0."""
        if not samples:
            samples.extend((0, 0, 0))
        samples.extend((self.times, self.count, self.size))
        if len(samples) > length * WIDTH:
            del samples[:WIDTH]

    @property
    def is_idle(self) -> bool:
        """Whether the counts have not changed for a day."""
        return len(self.day) == DAY_LENGTH * WIDTH and self.day[TIMES] == self.times


class DailyTotals(msgspec.Struct):
    """Messages of topics other than system topics: at the last two midnights, and now."""

    yesterday_morning: int = 0
    today_morning: int = 0
    now: int = 0

    def next_day(self) -> None:
        """Move to the next day."""
        self.yesterday_morning, self.today_morning = self.today_morning, self.now


class Statistics:
    """All counters of one broker. Times are wall-clock ms."""

    def __init__(self, now_ms: int, system_topics: frozenset[str] = frozenset()) -> None:
        self.boot_ms = now_ms
        self._system = system_topics
        self._ticks = 0
        self._day = _day_of(now_ms)
        self._minute_at = deque([now_ms], MINUTE_LENGTH)
        self._hour_at = deque([now_ms], HOUR_LENGTH)
        self._day_at = deque([now_ms], DAY_LENGTH)
        """Times of the samples."""
        self.puts: dict[str, StatsCounter] = {}
        self.gets: dict[TopicGroup, StatsCounter] = {}
        self.returns: dict[TopicGroup, StatsCounter] = {}
        """Messages that groups sent back."""
        self.broker_puts, self.broker_gets = StatsCounter(), StatsCounter()
        self.misses = StatsCounter()
        self.put_total, self.get_total = DailyTotals(), DailyTotals()
        self.other_puts, self.other_gets = StatsCounter(), StatsCounter()
        self.other_returns = StatsCounter()
        """Counters of the keys that there was no room for."""

    # -- count -------------------------------------------------------------------------------

    def put(self, topic: str, count: int, size: int) -> None:
        """Count stored messages, each as one operation: how many sends there were is unknown."""
        self._of(self.puts, topic, self.other_puts).add(count, count, size)
        self.broker_puts.add(count, count, size)
        if topic not in self._system:
            self.put_total.now += count

    def got(self, topic: str, group: str, count: int, size: int) -> StatsCounter:
        """Count messages that a group got of a topic in one operation."""
        tally = self.gets.get((topic, group))
        if tally is None:
            tally = self._of(self.gets, (topic, group), self.other_gets)
        tally.times += 1
        tally.count += count
        tally.size += size
        whole = self.broker_gets
        whole.times += 1
        whole.count += count
        whole.size += size
        if topic not in self._system:
            self.get_total.now += count
        return tally

    def missed(self) -> None:
        """Count a pull that found nothing new."""
        self.misses.times += 1

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message that a group sent back."""
        self._of(self.returns, (topic, group), self.other_returns).add(1, 1, 0)

    def pulled(self, topic: str, group: str, queue_id: int) -> int:
        """The offset after the last message that a group pulled from a queue.

        0 before the first.
        """
        tally = self.gets.get((topic, group))
        return tally.pulled.get(queue_id, 0) if tally else 0

    def forget(self, topics: Collection[str] = (), group: str | None = None) -> None:
        """Remove the counters of deleted topics, or of a deleted group."""
        for topic in topics:
            self.puts.pop(topic, None)
        for table in (self.gets, self.returns):
            for pair in [p for p in table if p[0] in topics or p[1] == group]:
                del table[pair]

    def _of(self, table: dict[K, StatsCounter], key: K, other: StatsCounter) -> StatsCounter:
        """The counter of a key, created if the table has room; else that of all others."""
        counter = table.get(key)
        if counter is None:
            if len(table) >= KEYS_MAX:
                return other
            counter = table[key] = StatsCounter()
        return counter

    # -- samples -----------------------------------------------------------------------------

    def tick(self, now_ms: int) -> Iterator[None]:
        """Take a sample of all counters, some at a time; called every ten seconds."""
        self._ticks += 1
        is_hours, is_days = not self._ticks % PER_HOUR_SAMPLE, not self._ticks % PER_DAY_SAMPLE
        self._minute_at.append(now_ms)
        if is_hours:
            self._hour_at.append(now_ms)
        if is_days:
            self._day_at.append(now_ms)
            self._forget_idle()
        for number, tally in enumerate(self._tallies(), 1):
            if number % COUNTERS_COUNT == 0:
                yield
            tally.sample(tally.minute, MINUTE_LENGTH)
            if is_hours:
                tally.sample(tally.hour, HOUR_LENGTH)
            if is_days:
                tally.sample(tally.day, DAY_LENGTH)
        if (day := _day_of(now_ms)) != self._day:
            self._day = day
            self.put_total.next_day()
            self.get_total.next_day()

    @property
    def _tables(self) -> tuple[dict[Any, StatsCounter], ...]:
        return self.puts, self.gets, self.returns

    def _tallies(self) -> list[StatsCounter]:
        counters = [tally for table in self._tables for tally in table.values()]
        return [*counters, self.broker_puts, self.broker_gets, self.misses]

    def _forget_idle(self) -> None:
        for table in self._tables:
            for key in [key for key, tally in table.items() if tally.is_idle]:
                del table[key]

    # -- read --------------------------------------------------------------------------------

    def view(self, name: str, key: str) -> StatsData | None:
        """The statistics of one of Apache's names and keys; None without a counter."""
        if name == LATENCY:
            pair = key.partition("@")[2].partition("@")
            return self.spans(StatsCounter(), COUNT) if (pair[0], pair[2]) in self.gets else None
        place, number = KINDS.get(name, ("", COUNT))
        if not place:
            return None
        topic, _, group = key.partition("@")
        tally = getattr(self, place).get(topic if place == "puts" else (topic, group))
        return None if tally is None else self.spans(tally, number)

    def spans(self, tally: StatsCounter, number: int) -> StatsData:
        """The sums of one number of a counter, by minute, hour and day."""
        return StatsData(
            stats_minute=_sums(tally.minute, self._minute_at, number),
            stats_hour=_sums(tally.hour, self._hour_at, number),
            stats_day=_sums(tally.day, self._day_at, number),
        )

    def consume_tps(self, topic: str, group: str) -> float:
        """Messages a second that a group got of a topic in the last minute."""
        tally = self.gets.get((topic, group))
        return _sums(tally.minute, self._minute_at, COUNT).tps if tally else 0.0

    def put_tps(self, topic: str) -> float:
        """Messages a second that were stored in a topic in the last minute."""
        tally = self.puts.get(topic)
        return _sums(tally.minute, self._minute_at, COUNT).tps if tally else 0.0

    def rates(self, tally: StatsCounter, number: int) -> tuple[float, float, float]:
        """Rates a second in the last ten seconds, minute and ten minutes."""
        return (
            _sums(tally.minute[-2 * WIDTH :], self._minute_at, number).tps,
            _sums(tally.minute, self._minute_at, number).tps,
            _sums(tally.hour[-2 * WIDTH :], self._hour_at, number).tps,
        )


def _sums(samples: "array[int]", times_ms: "deque[int]", number: int) -> StatsItem:
    count = len(samples) // WIDTH
    if not count:
        return StatsItem()
    total = samples[-WIDTH + number] - samples[number]
    times = samples[-WIDTH + TIMES] - samples[TIMES]
    span_ms = times_ms[-1] - times_ms[-count]
    return StatsItem(
        sum=total,
        tps=total * 1000 / span_ms if span_ms > 0 else 0.0,
        avgpt=total / times if times > 0 else 0.0,
    )


def _day_of(now_ms: int) -> date:
    """The day in the machine's time zone."""
    return datetime.fromtimestamp(now_ms // 1000, tz=UTC).astimezone().date()
