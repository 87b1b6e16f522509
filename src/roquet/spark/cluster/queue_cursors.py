"""Fronts: how far the queues of a read have come, and which of them may be read together.

Records of many queues lie mixed in a broker's log. A broker that is ours gives a run of them as it
lies, so a pull is for one queue, the leading one, and may bring the next messages of others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roquet.arrow.records import RecordColumns
from roquet.spark.queue_offsets import OffsetRange

TOGETHER_MAX: Final = 64
"""Queues that are read together, as many as a broker looks through."""

TOGETHER_ROWS_MIN: Final = 10_000
"""Messages that are worth it: of few, most of what comes might be behind the end."""

SINGLE_QUEUE_BLOCKS: Final = 32
"""Blocks of leading queues alone, after a pull that brought little of the others."""

Bools = NDArray[np.bool_]


class QueueCursor:
    """Where the reading of one piece is."""

    __slots__ = ("at", "piece", "position")

    def __init__(self, piece: OffsetRange) -> None:
        self.piece = piece
        self.at = piece.start
        """The next offset; behind the piece's end when more than the piece has come."""
        self.position = -1
        """In the log, of the last message that came."""

    @property
    def left(self) -> int:
        """Messages that have not come."""
        return max(self.piece.end - self.at, 0)

    def take(self, rows: NDArray[np.intp], offsets: NDArray[np.int64]) -> NDArray[np.intp]:
        """Go on over those of its messages that follow without a gap; gives the rows in it."""
        first = int(np.searchsorted(offsets, self.at))
        ahead = offsets[first:]
        follows = ahead == np.arange(self.at, self.at + len(ahead))
        count = len(ahead) if follows.all() else int(follows.argmin())
        kept = min(count, self.left)
        self.at += count
        return rows[first : first + kept]


class QueueCursors:
    """The pieces of different queues of one broker."""

    def __init__(self, pieces: Iterable[OffsetRange]) -> None:
        self._fronts = [QueueCursor(piece) for piece in pieces]
        self._pause = 0

    def leading(self) -> QueueCursor | None:
        """The one that must get on: of those with messages left the last one in the log."""
        unread = (front for front in self._fronts if front.left)
        return min(unread, key=lambda front: front.position, default=None)

    def alongside(self, leading: QueueCursor) -> Mapping[int, int]:
        """The others' offsets, when it is worth to have them too.

        Those at their end are among them: their messages lie between the others'.
        """
        unread = [front.left for front in self._fronts if front.left]
        if self._pause or not len(self._fronts) < 2 * len(unread) or len(unread) < 2:
            return {}
        if sum(unread) < TOGETHER_ROWS_MIN:
            return {}
        return {front.piece.queue_id: front.at for front in self._fronts if front is not leading}

    def went_alone(self) -> None:
        """A block of the leading one was read alone."""
        self._pause = max(self._pause - 1, 0)

    def keep_apart(self) -> None:
        """For some time the others need not come."""
        self._pause = SINGLE_QUEUE_BLOCKS

    def take(self, records: RecordColumns) -> Bools:
        """Go on over the messages that came, mixed; gives those that were still wanted."""
        queue_ids, offsets = records.queue_ids, records.queue_offsets
        positions = records.positions
        wanted = np.zeros(len(offsets), np.bool_)
        own = 0
        for front in self._fronts:
            rows = np.flatnonzero(queue_ids == front.piece.queue_id)
            own = max(own, len(rows))
            if len(rows):
                wanted[front.take(rows, offsets[rows])] = True
                front.position = int(positions[rows[-1]])
        if own == len(offsets) or 2 * np.count_nonzero(wanted) < len(offsets):
            self.keep_apart()
        return wanted


def group_ranges(pieces: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Pieces that may be read together: of one topic and broker, and of different queues."""
    found: dict[tuple[str, str, int], list[OffsetRange]] = {}
    for piece in pieces:
        number = 0
        while not _may_join(piece, found.setdefault((piece.topic, piece.broker, number), [])):
            number += 1
        found[piece.topic, piece.broker, number].append(piece)
    return list(found.values())


def _may_join(piece: OffsetRange, group: list[OffsetRange]) -> bool:
    return len(group) < TOGETHER_MAX and all(piece.queue_id != one.queue_id for one in group)
