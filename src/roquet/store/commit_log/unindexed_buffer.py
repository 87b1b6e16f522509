"""Unindexed buffer: the newest records that the key index lacks, column by column.

The writer adds records, the dispatcher takes them. Records with long properties are left out, and
the oldest are dropped when the index is late: the dispatcher reads both from the log again.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import add, ne
from typing import Final

BUFFERED_MAX: Final = 65_536
"""Records buffered: some tenths of a second, about 20 MiB for records of ordinary size."""

PROPERTIES_SIZE_MAX: Final = 512
"""Bytes: records with longer properties are read again instead, so that the buffer takes 48 MiB at
most."""

RecordFacts = tuple[list[int], list[int], list[bytes], list[bytes], list[int]]
"""Positions, sizes, topics, properties and store times of records, in the log's order."""


class UnindexedBuffer:
    """The newest records of the log."""

    __slots__ = ("_columns", "_positions", "_sizes", "_texts", "_times", "_topics")

    def __init__(self) -> None:
        self._columns: RecordFacts = [], [], [], [], []
        self._positions, self._sizes, self._topics, self._texts, self._times = self._columns

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def begin(self) -> int:
        """The position of the first record; -1 when there is none."""
        return self._positions[0] if self._positions else -1

    def add(self, position: int, size: int, topic: bytes, text: bytes, stored_ms: int) -> None:
        """Buffer the record that was written last."""
        if len(text) > PROPERTIES_SIZE_MAX:
            return
        self._positions.append(position)
        self._sizes.append(size)
        self._topics.append(topic)
        self._texts.append(text)
        self._times.append(stored_ms)
        if len(self._positions) > BUFFERED_MAX:
            self._forget()

    def add_run(
        self,
        positions: Sequence[int],
        sizes: Sequence[int],
        topic: bytes,
        texts: Sequence[bytes],
        stored_ms: int,
    ) -> None:
        """Buffer the records that were written last, all of one topic and store time."""
        if max(map(len, texts)) > PROPERTIES_SIZE_MAX:
            for position, size, text in zip(positions, sizes, texts, strict=True):
                self.add(position, size, topic, text, stored_ms)
            return
        count = len(positions)
        self._positions += positions
        self._sizes += sizes
        self._topics += [topic] * count
        self._texts += texts
        self._times += [stored_ms] * count
        if len(self._positions) > BUFFERED_MAX:
            self._forget()

    def add_columns(self, facts: RecordFacts) -> None:
        """Buffer records that follow each other, column by column."""
        if max(map(len, facts[3])) > PROPERTIES_SIZE_MAX:
            for row in zip(*facts, strict=True):
                self.add(*row)
            return
        positions, sizes, topics, texts, times = facts
        self._positions += positions
        self._sizes += sizes
        self._topics += topics
        self._texts += texts
        self._times += times
        if len(self._positions) > BUFFERED_MAX:
            self._forget()

    def first(self, count_max: int) -> RecordFacts:
        """Up to `count_max` of the first records, as far as they are adjacent."""
        count = self._run(min(count_max, len(self)))
        positions, sizes, topics, texts, times = self._columns
        return positions[:count], sizes[:count], topics[:count], texts[:count], times[:count]

    def drop(self, count: int) -> None:
        """Drop the first records."""
        for column in self._columns:
            del column[:count]

    def drop_before(self, position: int) -> None:
        """Drop the records in front of a position."""
        if count := bisect_left(self._positions, position):
            self.drop(count)

    def _run(self, count: int) -> int:
        """How many of the first records are adjacent, without a gap."""
        positions, sizes = self._positions[:count], self._sizes[:count]
        is_gap = list(map(ne, map(add, positions, sizes), positions[1:]))
        return is_gap.index(True) + 1 if True in is_gap else count

    def _forget(self) -> None:
        """Drop the oldest records in bulk: one at a time would move all others each time."""
        self.drop(len(self) - BUFFERED_MAX + BUFFERED_MAX // 16)
