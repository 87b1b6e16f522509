"""Broker counts: what metrics count as it happens, since nothing else of the broker keeps it.

Everything else on a metrics page is computed from the store, the tables and the statistics when the
page is asked for. Without metrics only rare events are counted, and a send pays nothing.
"""

from typing import Final

from roquet.metrics.counts import Histogram, LabeledCounts, LabeledHistograms, LabeledTallies
from roquet.metrics.rocketmq_metrics import DELAY_S, FINISH_S, MESSAGE_SIZES

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAY: Final = "delay"
TRANSACTION: Final = "transaction"
"""Types of messages, as Apache's metrics call them."""

SINGLES_MAX: Final = 256
"""Sizes of messages that are counted together: in a fifth of the time that each alone takes."""

CHECKPOINT: Final = "CK"
ACKNOWLEDGEMENT: Final = "ACK"
"""Types of records in the revive topic, as Apache's metrics call them."""


class StoredMessages:
    """Messages stored of one topic and type: their number, bytes and sizes."""

    __slots__ = ("_count", "_size", "_sizes", "singles")

    def __init__(self) -> None:
        self._count = 0
        self._size = 0
        self._sizes = Histogram(MESSAGE_SIZES)
        self.singles: list[int] = []
        """Sizes of single messages that are counted together, soon: a send only appends one."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return self._count + len(self.singles)

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return self._size + sum(self.singles)

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

    def settle(self) -> None:
        """Count the single messages."""
        singles, self.singles = self.singles, []
        self._count += len(singles)
        self._size += sum(singles)
        self._sizes.observe_all(singles)


class BrokerCounts:
    """Counts of one broker since its start. Labels are in the order of the names below."""

    def __init__(self) -> None:
        self.stored: LabeledCounts[StoredMessages] = LabeledCounts(StoredMessages, 2)
        """By topic and message type; nothing while `counts_stored` is False."""
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

    @property
    def overflow(self) -> int:
        """How often something was counted as `other`."""
        tables: tuple[LabeledCounts[object], ...] = tuple(
            table for table in vars(self).values() if isinstance(table, LabeledCounts)
        )
        return sum(table.overflow for table in tables)

    def note_stored(self, topic: str, kind: str, size: int) -> None:
        """Count a stored message; those of retry and dead-letter topics do not count."""
        if self.counts_stored and topic[0] != "%":
            stored = self.stored.of(topic, kind)
            stored.singles.append(size)
            if len(stored.singles) >= SINGLES_MAX:
                stored.settle()

    def note_batch(self, topic: str, kind: str, count: int, size: int) -> None:
        """Count the messages of a stored batch."""
        if self.counts_stored:
            self.stored.of(topic, kind).add_batch(count, size)
