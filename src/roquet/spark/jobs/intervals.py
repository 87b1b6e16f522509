"""Runs: a set of offsets as ranges, since offsets mostly follow one another."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

OffsetArray = NDArray[np.int64]

_NONE: Final = np.empty(0, np.int64)


class OffsetSet:
    """Offsets of one queue: few numbers, however many offsets follow one another."""

    def __init__(self, starts: OffsetArray = _NONE, ends: OffsetArray = _NONE) -> None:
        """`ends` are excluded; ranges are sorted and do not touch."""
        self.starts, self.ends = starts, ends

    @classmethod
    def of(cls, offsets: Any) -> "OffsetSet":
        """The set of these offsets, in any order and as often as they come."""
        sorted_ = np.unique(np.asarray(offsets, np.int64))
        if not len(sorted_):
            return cls()
        cuts = np.flatnonzero(np.diff(sorted_) > 1)
        starts = sorted_[np.concatenate(([0], cuts + 1))]
        ends = sorted_[np.concatenate((cuts, [len(sorted_) - 1]))] + 1
        return cls(starts, ends)

    def __len__(self) -> int:
        return int((self.ends - self.starts).sum())

    def __or__(self, other: "OffsetSet") -> "OffsetSet":
        """What is in one of them, or in both."""
        starts = np.concatenate((self.starts, other.starts))
        ends = np.concatenate((self.ends, other.ends))
        if not len(starts):
            return OffsetSet()
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > ends[:-1]))
        last = np.concatenate((first[1:], [True]))
        return OffsetSet(starts[first], ends[last])

    def holds(self, offsets: OffsetArray) -> NDArray[np.bool_]:
        """Which of these offsets are in it."""
        places = np.searchsorted(self.starts, offsets, side="right") - 1
        if not len(self.starts):
            return np.zeros(len(offsets), np.bool_)
        found: NDArray[np.bool_] = (places >= 0) & (offsets < self.ends[np.maximum(places, 0)])
        return found

    @property
    def last(self) -> int:
        """The greatest offset; -1 when there is none."""
        return int(self.ends[-1]) - 1 if len(self.ends) else -1
