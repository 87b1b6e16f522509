"""Coverage: which whole numbers are there, and how often: runs of equal count, and their sums.

Offsets of millions of rows become a few runs in each task; sums of runs show gaps and doubles. All
of it is sorting and differences over whole columns.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class OffsetCounts(msgspec.Struct, frozen=True):
    """Stretches of numbers that are there equally often, in order; ends are excluded."""

    starts: list[int] = []
    ends: list[int] = []
    times: list[int] = []

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def rows(self) -> int:
        """How many numbers there are, doubles counted."""
        return sum(len(span) * times for span, times in self.spans())

    def spans(self) -> "Iterator[tuple[NumberRange, int]]":
        """Each stretch, and how often it is there."""
        for start, end, times in zip(self.starts, self.ends, self.times, strict=True):
            yield NumberRange(start, end), times


class NumberRange(msgspec.Struct, frozen=True, order=True):
    """Numbers from one on to before another."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return str(self.start) if len(self) == 1 else f"{self.start}..{self.end - 1}"

    def within(self, start: int, end: int) -> "NumberRange":
        """The part that lies between two numbers; it may be empty."""
        return NumberRange(max(self.start, start), min(self.end, end))


def count_offsets(numbers: Ints) -> OffsetCounts:
    """The runs of numbers that come in any order."""
    at, times = np.unique(numbers, return_counts=True)
    if not len(at):
        return OffsetCounts()
    return _merged(at, at + 1, times)


def sum_counts(parts: Sequence[OffsetCounts]) -> OffsetCounts:
    """Runs of several places as one; where they meet, they count together."""
    starts, ends, times = _columns(parts)
    if not len(starts):
        return OffsetCounts()
    at, places = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    steps = np.zeros(len(at), np.int64)
    np.add.at(steps, places, np.concatenate([times, -times]))
    levels = np.cumsum(steps)[:-1]
    is_there = levels > 0
    return _merged(at[:-1][is_there], at[1:][is_there], levels[is_there])


def gaps(runs: OffsetCounts, begin: int, end: int) -> list[NumberRange]:
    """What is missing between two numbers."""
    starts = np.array([*runs.starts, end], np.int64)
    ends = np.array([begin, *runs.ends], np.int64)
    low, high = np.maximum(ends, begin), np.minimum(starts, end)
    is_gap = low < high
    return [
        NumberRange(*pair) for pair in zip(low[is_gap].tolist(), high[is_gap].tolist(), strict=True)
    ]


def duplicates(runs: OffsetCounts) -> list[tuple[NumberRange, int]]:
    """What is there more than once, and how often."""
    return [(span, times) for span, times in runs.spans() if times > 1]


def intervals_from(runs: OffsetCounts, end: int) -> list[NumberRange]:
    """What is there from a number on."""
    parts = [span.within(end, span.end) for span, _ in runs.spans()]
    return [span for span in parts if len(span)]


def _columns(parts: Sequence[OffsetCounts]) -> tuple[Ints, Ints, Ints]:
    joined: list[list[int]] = [[], [], []]
    for part in parts:
        for column, more in zip(joined, (part.starts, part.ends, part.times), strict=True):
            column.extend(more)
    starts, ends, times = (np.array(column, np.int64) for column in joined)
    return starts, ends, times


def _merged(starts: Ints, ends: Ints, times: Ints) -> OffsetCounts:
    """Neighbours that are there equally often become one."""
    is_cut = (starts[1:] != ends[:-1]) | (times[1:] != times[:-1])
    first = np.flatnonzero(np.concatenate([[True], is_cut]))
    last = np.flatnonzero(np.concatenate([is_cut, [True]]))
    return OffsetCounts(starts[first].tolist(), ends[last].tolist(), times[first].tolist())
