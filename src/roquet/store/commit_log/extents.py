"""Log extents: the byte ranges of the log that hold the records of a read.

entries   a  b  c     d  e        a record that begins where the one before ends: one extent
log      ─██─██─██─░░─██─██─░░─   (░ of other queues)
extents   └──────┘    └───┘
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, compress
from operator import add, ne

IntColumn = Sequence[int]


class LogExtents:
    """Half-open ranges [start, stop) of the log; adjacent records share one."""

    __slots__ = ("count", "size", "starts", "stops")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.count = 0
        self.size = 0
        """Bytes of all extents."""

    def fitting_count(self, sizes: IntColumn, count_max: int, size_max: int) -> int:
        """How many of these records may be added within the limits; the very first one always."""
        fit = min(len(sizes), count_max)
        if self.size + sum(sizes) > size_max:
            fit = min(fit, bisect_right(list(accumulate(sizes)), size_max - self.size))
        return fit or int(not self.count and len(sizes) > 0)

    def add_records(self, positions: IntColumn, sizes: IntColumn) -> None:
        """Add records by position and size."""
        self.add(*merge_adjacent(positions, sizes), len(sizes), sum(sizes))

    def add(self, starts: list[int], stops: list[int], count: int, size: int) -> None:
        """Add ranges that hold `count` records of `size` bytes."""
        if self.stops and self.stops[-1] == starts[0]:
            self.stops[-1] = stops[0]
            starts, stops = starts[1:], stops[1:]
        self.starts += starts
        self.stops += stops
        self.count += count
        self.size += size


def merge_adjacent(positions: IntColumn, sizes: IntColumn) -> tuple[list[int], list[int]]:
    """Starts and stops of the ranges that adjacent records form."""
    ends = list(map(add, positions, sizes))
    following = positions[1:]
    gaps = list(map(ne, following, ends))
    if True not in gaps:
        return [positions[0]], ends[-1:]
    return [positions[0], *compress(following, gaps)], [*compress(ends, gaps), ends[-1]]


def select_rows(picks: Sequence[bool], *columns: IntColumn) -> list[tuple[int, ...]]:
    """The picked rows of each column."""
    return [tuple(compress(column, picks)) for column in columns]
