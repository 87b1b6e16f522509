"""Sets and counts of offsets as half-open ranges: consecutive offsets take one range.

`OffsetSet` says which offsets are in a set; `OffsetCounts` also says how often each one occurs, and
travels between tasks as JSON. All work is sorting and differences over whole numpy columns.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

OffsetArray = NDArray[np.int64]

_EMPTY: Final = np.empty(0, np.int64)
_OFFSET_MAX: Final = 2**62


class NumberRange(msgspec.Struct, frozen=True, order=True):
    """A half-open range of numbers [start, end)."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return str(self.start) if len(self) == 1 else f"{self.start}..{self.end - 1}"

    def within(self, start: int, end: int) -> "NumberRange":
        """The intersection with [start, end); it may be empty."""
        return NumberRange(max(self.start, start), min(self.end, end))


class OffsetSet:
    """A set of offsets of one queue, as sorted ranges that neither overlap nor touch."""

    def __init__(self, starts: OffsetArray = _EMPTY, ends: OffsetArray = _EMPTY) -> None:
        """Range i is [starts[i], ends[i])."""
        self.starts, self.ends = starts, ends

    @classmethod
    def of(cls, offsets: Any) -> "OffsetSet":
        """The set of these offsets, which may be unsorted and repeated."""
        at = np.unique(np.asarray(offsets, np.int64))
        merged = _merge_adjacent(_Columns(at, at + 1, np.ones_like(at)))
        return cls(merged.starts, merged.ends)

    def __len__(self) -> int:
        return int((self.ends - self.starts).sum())

    def __or__(self, other: "OffsetSet") -> "OffsetSet":
        """The union."""
        starts = np.concatenate((self.starts, other.starts))
        ends = np.concatenate((self.ends, other.ends))
        levels = _overlay(_Columns(starts, ends, np.ones_like(starts)))
        merged = _merge_adjacent(levels._replace(times=np.ones_like(levels.times)))
        return OffsetSet(merged.starts, merged.ends)

    def complement(self) -> "OffsetSet":
        """All other offsets, from 0 on."""
        starts, ends = np.append(0, self.ends), np.append(self.starts, _OFFSET_MAX)
        return OffsetSet(starts[starts < ends], ends[starts < ends])

    def holds(self, offsets: OffsetArray) -> NDArray[np.bool_]:
        """For each of these offsets, whether it is in the set."""
        if not len(self.starts):
            return np.zeros(len(offsets), np.bool_)
        places = np.searchsorted(self.starts, offsets, side="right") - 1
        is_held: NDArray[np.bool_] = (places >= 0) & (offsets < self.ends[np.maximum(places, 0)])
        return is_held

    @property
    def last(self) -> int:
        """The greatest offset; -1 for the empty set."""
        return int(self.ends[-1]) - 1 if len(self.ends) else -1


class OffsetCounts(msgspec.Struct, frozen=True):
    """How often each number occurs: sorted ranges, each of numbers that occur equally often.

    Range i is [starts[i], ends[i]), and each of its numbers occurs times[i] > 0 times.
    """

    starts: list[int] = []
    ends: list[int] = []
    times: list[int] = []

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def rows(self) -> int:
        """The sum of all counts."""
        return sum(len(span) * times for span, times in self.spans())

    def spans(self) -> Iterator[tuple[NumberRange, int]]:
        """Each range with its count."""
        for start, end, times in zip(self.starts, self.ends, self.times, strict=True):
            yield NumberRange(start, end), times


def count_offsets(numbers: OffsetArray) -> OffsetCounts:
    """Count numbers that come in any order."""
    at, times = np.unique(numbers, return_counts=True)
    return _counts(_Columns(at, at + 1, times))


def sum_counts(parts: Sequence[OffsetCounts]) -> OffsetCounts:
    """Add the counts of several parts, as if they had been counted together."""
    columns: list[list[int]] = [[], [], []]
    for part in parts:
        for column, more in zip(columns, (part.starts, part.ends, part.times), strict=True):
            column.extend(more)
    return _counts(_overlay(_Columns(*(np.array(column, np.int64) for column in columns))))


def gaps(counts: OffsetCounts, begin: int, end: int) -> list[NumberRange]:
    """The ranges within [begin, end) that are missing."""
    starts = np.array([*counts.starts, end], np.int64)
    ends = np.array([begin, *counts.ends], np.int64)
    low, high = np.maximum(ends, begin), np.minimum(starts, end)
    is_gap = low < high
    pairs = zip(low[is_gap].tolist(), high[is_gap].tolist(), strict=True)
    return [NumberRange(*pair) for pair in pairs]


def duplicates(counts: OffsetCounts) -> list[tuple[NumberRange, int]]:
    """The ranges that occur more than once, each with its count."""
    return [(span, times) for span, times in counts.spans() if times > 1]


def ranges_from(counts: OffsetCounts, begin: int) -> list[NumberRange]:
    """The ranges of numbers from `begin` on."""
    parts = [span.within(begin, span.end) for span, _ in counts.spans()]
    return [span for span in parts if len(span)]


class _Columns(NamedTuple):
    """Ranges as columns: [starts[i], ends[i]) occurs times[i] times."""

    starts: OffsetArray
    ends: OffsetArray
    times: OffsetArray


def _overlay(ranges: _Columns) -> _Columns:
    """Overlapping ranges, in any order, as sorted disjoint ones with their counts summed."""
    starts, ends, times = ranges
    if not len(starts):
        return ranges
    at, places = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    steps = np.zeros(len(at), np.int64)
    np.add.at(steps, places, np.concatenate([times, -times]))
    levels = np.cumsum(steps)[:-1]
    is_there = levels > 0
    return _Columns(at[:-1][is_there], at[1:][is_there], levels[is_there])


def _merge_adjacent(ranges: _Columns) -> _Columns:
    """Sorted disjoint ranges, with neighbours that touch and occur equally often made one."""
    starts, ends, times = ranges
    if not len(starts):
        return ranges
    is_cut = (starts[1:] != ends[:-1]) | (times[1:] != times[:-1])
    first = np.flatnonzero(np.concatenate([[True], is_cut]))
    last = np.flatnonzero(np.concatenate([is_cut, [True]]))
    return _Columns(starts[first], ends[last], times[first])


def _counts(ranges: _Columns) -> OffsetCounts:
    merged = _merge_adjacent(ranges)
    return OffsetCounts(merged.starts.tolist(), merged.ends.tolist(), merged.times.tolist())
