"""Counts: histograms, and counters by label values with a limit of their number.

Who counts does not know how it is shown. Label values come from clients, who may send any: beyond
SERIES_MAX combinations further ones are counted together, as `other`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

SERIES_MAX: Final = 10_000
"""Combinations of label values of one metric; further ones are counted together."""

VALUE_LENGTH_MAX: Final = 255
"""Characters of a label's value: no topic and no group has more."""

OTHER: Final = "other"
"""Value of every label in the series of all further combinations."""

LabelValues = tuple[str, ...]
"""One value for each label of a metric, in its order."""

T = TypeVar("T")


class Histogram:
    """Counts of values by size."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Values in each bucket; the last one has those above all bounds."""
        self.sum: float = 0

    @property
    def count(self) -> int:
        """Number of all values."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count one value; one that equals a bound belongs below it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def observe_equal(self, value: float, count: int) -> None:
        """Count a value several times."""
        self.counts[bisect_left(self._bounds, value)] += count
        self.sum += value * count


class Tally:
    """A number that is counted up."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class LabeledCounts(Generic[T]):
    """One counter for each combination of label values, made when it is first needed."""

    __slots__ = ("_make", "_series_max", "_width", "by_labels", "overflow")

    def __init__(self, make: Callable[[], T], width: int, series_max: int = SERIES_MAX) -> None:
        """Counters that `make` makes, by `width` label values."""
        self.by_labels: dict[LabelValues, T] = {}
        """Those that were needed; `of` makes the others."""
        self._make = make
        self._width = width
        self._series_max = series_max
        self.overflow = 0
        """How often a counter was asked for that there was no room for."""

    def of(self, *values: str) -> T:
        """The counter of a combination; beyond the limit that of all others."""
        found = self.by_labels.get(values)
        return self._new(values) if found is None else found

    def items(self) -> Iterator[tuple[LabelValues, T]]:
        """All combinations and their counters, as they are now."""
        return iter(list(self.by_labels.items()))

    def forget(self, is_gone: Callable[[LabelValues], bool]) -> None:
        """Remove the counters of combinations whose topic or group was deleted."""
        for values in [values for values in self.by_labels if is_gone(values)]:
            del self.by_labels[values]

    def _new(self, values: LabelValues) -> T:
        if len(self.by_labels) >= self._series_max or any(
            len(value) > VALUE_LENGTH_MAX for value in values
        ):
            self.overflow += 1
            values = (OTHER,) * self._width
            if (other := self.by_labels.get(values)) is not None:
                return other
        made = self.by_labels[values] = self._make()
        return made


class LabeledTallies(LabeledCounts[Tally]):
    """Numbers that are counted up, by label values."""

    __slots__ = ()

    def __init__(self, width: int, series_max: int = SERIES_MAX) -> None:
        super().__init__(Tally, width, series_max)

    def add(self, *values: str, count: float = 1) -> None:
        """Count up the number of a combination."""
        self.of(*values).value += count


class LabeledHistograms(LabeledCounts[Histogram]):
    """Histograms of the same bounds, by label values."""

    __slots__ = ()

    def __init__(self, bounds: Sequence[float], width: int) -> None:
        super().__init__(lambda: Histogram(bounds), width)

    def observe(self, *values: str, value: float) -> None:
        """Count one value in the histogram of a combination."""
        self.of(*values).observe(value)
