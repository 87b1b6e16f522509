"""Broker counts: what metrics count as it happens, since nothing else of the broker keeps it.

Everything else on a metrics page is computed from the store, the tables and the statistics when the
page is asked for. Without metrics only rare events are counted, and a send pays nothing.
"""

from collections.abc import Collection
from typing import Final

from roquet.metrics.counts import Histogram, LabeledCounts, LabeledHistograms, LabeledTallies
from roquet.metrics.rocketmq_metrics import DELAY_S, FINISH_S, MESSAGE_SIZES

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAY: Final = "delay"
PRIORITY: Final = "priority"
TRANSACTION: Final = "transaction"
"""Types of messages, as Apache's metrics call them."""

SIZES_MAX: Final = 1_024
"""Different sizes of single messages that are counted apart, before they go into the buckets."""

CHECKPOINT: Final = "CK"
ACKNOWLEDGEMENT: Final = "ACK"
"""Types of records in the revive topic, as Apache's metrics call them."""


class StoredMessages:
    """Messages stored of one topic and type: their number, bytes and sizes."""

    __slots__ = ("_count", "_size", "_sizes", "by_size")

    def __init__(self) -> None:
        self._count = 0
        self._size = 0
        self._sizes = Histogram(MESSAGE_SIZES)
        self.by_size: dict[int, int] = {}
        """Single messages by their size, until `settle`: a send only counts one up."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return self._count + sum(self.by_size.values())

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return self._size + sum(size * count for size, count in self.by_size.items())

    @property
    def sizes(self) -> Histogram:
        """Sizes of messages; a batch is one value, its average."""
        self.settle()
        return self._sizes

    def add_batch(self, count: int, size: int) -> None:
        """Count the messages of a batch."""
        self._count += count
        self._size += size
        self._sizes.observe(size // count)

    def add_new_size(self, size: int) -> None:
        """Count a single message of a size that `by_size` does not have."""
        if len(self.by_size) >= SIZES_MAX:
            self.settle()
        self.by_size[size] = 1

    def settle(self) -> None:
        """Put the single messages into the buckets."""
        for size, count in self.by_size.items():
            self._count += count
            self._size += size * count
            self._sizes.observe_equal(size, count)
        self.by_size.clear()


class BrokerCounts:
    """Counts of one broker since its start. Labels are in the order of the names below."""

    def __init__(self) -> None:
        self.stored: LabeledCounts[StoredMessages] = LabeledCounts(StoredMessages, 2)
        """By topic and message type; nothing while `counts_stored` is False."""
        self.normal_sizes: dict[str, dict[int, int]] = {}
        """Single NORMAL messages by their size, by topic: those of `stored` that have a counter of
        their own. A send counts one up where its size is known."""
        self.counts_stored = False
        self.dead_letters = LabeledTallies(2)
        """By group and topic."""
        self.commits = LabeledTallies(1)
        """Half messages, by topic."""
        self.rollbacks = LabeledTallies(1)
        """Half messages, by topic."""
        self.commit_s = LabeledHistograms(FINISH_S, 1)
        """Seconds from a half message to its commit, by topic."""
        self.timer_enqueued = LabeledTallies(1)
        """Messages put on the timer wheel, by topic."""
        self.timer_dequeued = LabeledTallies(1)
        """Messages that the timer delivered, by topic."""
        self.delay_s = LabeledHistograms(DELAY_S, 1)
        """Seconds that messages wait, by topic."""
        self.revive_notes = LabeledTallies(3)
        """Records of pops, by topic, group and CHECKPOINT or ACKNOWLEDGEMENT."""
        self.redelivered = LabeledTallies(2)
        """Popped messages given out again, by topic and group."""
        self.retention_unread = LabeledTallies(2)
        """Messages that retention deleted unread, by group, empty for none, and topic."""
        self.unlisted = 0
        """How often a page showed something that is counted elsewhere as `other`."""

    @property
    def overflow(self) -> int:
        """How often something was counted as `other`."""
        tables: tuple[LabeledCounts[object], ...] = tuple(
            table for table in vars(self).values() if isinstance(table, LabeledCounts)
        )
        return self.unlisted + sum(table.overflow for table in tables)

    def forget(self, topics: Collection[str] = (), group: str | None = None) -> None:
        """Remove the counters of deleted topics, or of a deleted group: others need the room."""
        for by_topic in (
            self.stored, self.commits, self.rollbacks, self.commit_s, self.timer_enqueued,
            self.timer_dequeued, self.delay_s,
        ):  # fmt: skip
            by_topic.forget(lambda labels: labels[0] in topics)
        for topic in topics:
            self.normal_sizes.pop(topic, None)
        for by_group in (self.dead_letters, self.retention_unread):
            by_group.forget(lambda labels: labels[0] == group or labels[1] in topics)
        for by_both in (self.revive_notes, self.redelivered):
            by_both.forget(lambda labels: labels[0] in topics or labels[1] == group)

    def note_stored(self, topic: str, kind: str, size: int) -> None:
        """Count a stored message; those of retry and dead-letter topics do not count."""
        if self.counts_stored and topic[0] != "%":
            self.add_stored(topic, kind, size)

    def add_stored(self, topic: str, kind: str, size: int) -> None:
        """Count a stored message, as `note_stored` does where it counts."""
        stored = self.stored.of(topic, kind)
        by_size = stored.by_size
        if size in by_size:
            by_size[size] += 1
        else:
            stored.add_new_size(size)
        if kind == NORMAL and (topic, kind) in self.stored.by_labels:
            self.normal_sizes[topic] = by_size

    def note_batch(self, topic: str, kind: str, count: int, size: int) -> None:
        """Count the messages of a stored batch."""
        if self.counts_stored:
            self.stored.of(topic, kind).add_batch(count, size)
