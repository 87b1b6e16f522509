"""Unindexed buffer: the newest records that the key index lacks, column by column.

The writer adds records, the dispatcher takes them. Records of a plain batch are one run: their keys
are hashed already. Records with long properties are left out, and the oldest are dropped when the
index is late: the dispatcher reads both from the log again.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import add, ne
from typing import Final

import msgspec

BUFFERED_MAX: Final = 65_536
"""Records buffered: some tenths of a second, about 20 MiB for records of ordinary size."""

PROPERTIES_SIZE_MAX: Final = 512
"""Bytes: records with longer properties are read again instead, so that the buffer takes 48 MiB at
most."""

RecordFacts = tuple[list[int], list[int], list[bytes], list[bytes], list[int]]
"""Positions, sizes, topics, properties and store times of records, in the log's order."""


class HashedRun(msgspec.Struct, frozen=True, gc=False):
    """Adjacent records of one store time, whose keys are hashed."""

    position: int
    """Of the first record."""
    size: int
    """Bytes of all records."""
    count: int
    """Records."""
    hashes: bytes
    """Numbers of four bytes in this machine's order: of each key."""
    positions: bytes
    """Numbers of eight bytes in this machine's order: where the record of each key begins."""
    stored_ms: int


class UnindexedBuffer:
    """The newest records of the log."""

    __slots__ = (
        "_columns", "_hashed", "_hashed_count", "_positions", "_sizes", "_texts", "_times",
        "_topics",
    )  # fmt: skip

    def __init__(self) -> None:
        self._columns: RecordFacts = [], [], [], [], []
        self._positions, self._sizes, self._topics, self._texts, self._times = self._columns
        self._hashed = deque[HashedRun]()
        self._hashed_count = 0
        """Records of these runs."""

    def __len__(self) -> int:
        return len(self._positions) + self._hashed_count

    @property
    def begin(self) -> int:
        """The position of the first record; -1 when there is none."""
        if self._hashed and not (self._positions and self._positions[0] < self._hashed[0].position):
            return self._hashed[0].position
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
        if len(self._positions) + self._hashed_count > BUFFERED_MAX:
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
        if len(self._positions) + self._hashed_count > BUFFERED_MAX:
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
        if len(self._positions) + self._hashed_count > BUFFERED_MAX:
            self._forget()

    def add_hashed(self, run: HashedRun) -> None:
        """Buffer a run that was written last."""
        self._hashed.append(run)
        self._hashed_count += run.count
        if len(self) > BUFFERED_MAX:
            self._forget()

    def take_hashed(self, position: int) -> HashedRun | None:
        """Remove and return the run that begins at a position if it is the first; else None."""
        if not self._hashed or self._hashed[0].position != position:
            return None
        run = self._hashed.popleft()
        self._hashed_count -= run.count
        return run

    def first(self, count_max: int) -> RecordFacts:
        """Up to `count_max` of the first records outside of runs, as far as they are adjacent."""
        count = self._run(min(count_max, len(self._positions)))
        positions, sizes, topics, texts, times = self._columns
        return positions[:count], sizes[:count], topics[:count], texts[:count], times[:count]

    def drop(self, count: int) -> None:
        """Drop the first records that are in no run."""
        for column in self._columns:
            del column[:count]

    def drop_before(self, position: int) -> None:
        """Drop the records in front of a position, and the run that it is in."""
        if count := bisect_left(self._positions, position):
            self.drop(count)
        while self._hashed and self._hashed[0].position < position:
            self.take_hashed(self._hashed[0].position)

    def _run(self, count: int) -> int:
        """How many of the first records are adjacent, without a gap."""
        positions, sizes = self._positions[:count], self._sizes[:count]
        is_gap = list(map(ne, map(add, positions, sizes), positions[1:]))
        return is_gap.index(True) + 1 if True in is_gap else count

    def _forget(self) -> None:
        """Drop the oldest records in bulk: one at a time would move all others each time."""
        unwanted = BUFFERED_MAX // 16 + len(self) - BUFFERED_MAX
        while unwanted > 0:
            if (run := self.take_hashed(self.begin)) is not None:
                unwanted -= run.count
                continue
            stop = self._hashed[0].position if self._hashed else self._positions[-1] + 1
            count = min(unwanted, bisect_left(self._positions, stop))
            self.drop(count)
            unwanted -= count
