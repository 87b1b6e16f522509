"""Queue cursors: the position of a read in each queue, and the queues that one pull may cover.

The log of a broker holds records of many queues interleaved. A Roquet broker can return a part of
the log as it is, so a pull for one queue, the leading one, may bring the next messages of others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roquet.arrow.records import RecordColumns
from roquet.lake.queue_offsets import OffsetRange

TOGETHER_MAX: Final = 64
"""Most queues of one pull; the broker's limit."""

TOGETHER_ROWS_MIN: Final = 10_000
"""Fewest unread messages for a pull of several queues: with fewer, most of a reply may lie beyond
the ranges' ends."""

SINGLE_QUEUE_BLOCKS: Final = 32
"""Pulls of the leading queue alone after a pull that brought few messages of the others."""

Bools = NDArray[np.bool_]


class QueueCursor:
    """The reading position in one range."""

    __slots__ = ("at", "position", "range")

    def __init__(self, offset_range: OffsetRange) -> None:
        self.range = offset_range
        self.at = offset_range.start
        """The next offset; beyond the range's end when a reply held more."""
        self.position = -1
        """Log position of the last message; -1 before the first."""

    @property
    def left(self) -> int:
        """The number of unread messages in the range."""
        return max(self.range.end - self.at, 0)

    def advance(self, rows: NDArray[np.intp], offsets: NDArray[np.int64]) -> NDArray[np.intp]:
        """Move past the messages that follow without a gap; returns their rows within the range.

        `offsets` are the queue offsets of `rows`, ascending.
        """
        first = int(np.searchsorted(offsets, self.at))
        ahead = offsets[first:]
        follows = ahead == np.arange(self.at, self.at + len(ahead))
        count = len(ahead) if follows.all() else int(follows.argmin())
        kept = min(count, self.left)
        self.at += count
        return rows[first : first + kept]


class QueueCursors:
    """The cursors of ranges in different queues of one broker and topic."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._cursors = [QueueCursor(offset_range) for offset_range in ranges]
        self._single_pulls = 0

    def leading(self) -> QueueCursor | None:
        """The unfinished cursor with the lowest log position; None when all ranges are read."""
        unread = (cursor for cursor in self._cursors if cursor.left)
        return min(unread, key=lambda cursor: cursor.position, default=None)

    def other_offsets(self, leading: QueueCursor) -> Mapping[int, int]:
        """Next offsets by queue id of the other cursors; empty when one queue is pulled alone.

        Finished cursors are included: their messages lie among those of the others.
        """
        unread = [cursor.left for cursor in self._cursors if cursor.left]
        if self._single_pulls or not len(self._cursors) < 2 * len(unread) or len(unread) < 2:
            return {}
        if sum(unread) < TOGETHER_ROWS_MIN:
            return {}
        return {
            cursor.range.queue_id: cursor.at for cursor in self._cursors if cursor is not leading
        }

    def count_single_pull(self) -> None:
        """Note that the leading queue was pulled alone."""
        self._single_pulls = max(self._single_pulls - 1, 0)

    def pull_singly(self) -> None:
        """Pull the leading queue alone for the next `SINGLE_QUEUE_BLOCKS` pulls."""
        self._single_pulls = SINGLE_QUEUE_BLOCKS

    def advance(self, records: RecordColumns) -> Bools:
        """Move the cursors past interleaved records; a mask of the records within the ranges."""
        queue_ids, offsets = records.queue_ids, records.queue_offsets
        positions = records.positions
        mask = np.zeros(len(offsets), np.bool_)
        most_of_one_queue = 0
        for cursor in self._cursors:
            rows = np.flatnonzero(queue_ids == cursor.range.queue_id)
            most_of_one_queue = max(most_of_one_queue, len(rows))
            if len(rows):
                mask[cursor.advance(rows, offsets[rows])] = True
                cursor.position = int(positions[rows[-1]])
        if most_of_one_queue == len(offsets) or 2 * np.count_nonzero(mask) < len(offsets):
            self.pull_singly()
        return mask


def group_ranges(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Groups of ranges that one pull may cover: of one topic and broker, and of distinct queues."""
    groups: dict[tuple[str, str, int], list[OffsetRange]] = {}
    for offset_range in ranges:
        number = 0
        topic, broker, _ = offset_range.queue
        while not _may_join(offset_range, groups.setdefault((topic, broker, number), [])):
            number += 1
        groups[topic, broker, number].append(offset_range)
    return list(groups.values())


def _may_join(offset_range: OffsetRange, group: list[OffsetRange]) -> bool:
    queue_id = offset_range.queue_id
    return len(group) < TOGETHER_MAX and all(queue_id != member.queue_id for member in group)
