"""Pieces: which bytes of the log hold the records of a read.

    entries   a  b  c     d  e        a record begins where the one before it ends: one piece
    log      ─██─██─██─░░─██─██─░░─   (░ of other queues)
    pieces    └──────┘    └───┘

Nothing here goes through the entries in a loop of its own: a large read has thousands of them.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, compress
from operator import add, ne

IntColumn = Sequence[int]


class LogExtents:
    """Bytes of the log, first and behind the last; records one behind the other are one piece."""

    __slots__ = ("count", "size", "starts", "stops")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.count = 0
        self.size = 0
        """Bytes of all of them."""

    def fitting(self, sizes: IntColumn, count_max: int, size_max: int) -> int:
        """How many of these records may come behind what is there; the very first one always."""
        fit = min(len(sizes), count_max)
        if self.size + sum(sizes) > size_max:
            fit = min(fit, bisect_right(list(accumulate(sizes)), size_max - self.size))
        return fit or int(not self.count and len(sizes) > 0)

    def take_whole(self, start: int, stop: int, count: int) -> None:
        """Put so many records that are one piece behind what is there."""
        if self.stops and self.stops[-1] == start:
            self.stops[-1] = stop
        else:
            self.starts.append(start)
            self.stops.append(stop)
        self.count += count
        self.size += stop - start

    def take(self, positions: IntColumn, sizes: IntColumn) -> None:
        """Put records behind what is there."""
        starts, stops = merge_adjacent(positions, sizes)
        if self.stops and self.stops[-1] == starts[0]:
            del self.stops[-1], starts[0]
        self.starts += starts
        self.stops += stops
        self.count += len(sizes)
        self.size += sum(sizes)


def merge_adjacent(positions: IntColumn, sizes: IntColumn) -> tuple[list[int], list[int]]:
    """Where the pieces of these records begin and where they end."""
    ends = list(map(add, positions, sizes))
    following = positions[1:]
    gaps = list(map(ne, following, ends))
    if True not in gaps:
        return [positions[0]], ends[-1:]
    return [positions[0], *compress(following, gaps)], [*compress(ends, gaps), ends[-1]]


def select_rows(picks: Sequence[bool], *columns: IntColumn) -> list[tuple[int, ...]]:
    """Of each column what is picked."""
    return [tuple(compress(column, picks)) for column in columns]
