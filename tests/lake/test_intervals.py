"""Sets and counts of offsets as ranges behave as sets and counters of single offsets."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.intervals import (
    NumberRange,
    OffsetCounts,
    OffsetSet,
    count_offsets,
    duplicates,
    gaps,
    ranges_from,
    sum_counts,
)

OFFSETS = st.lists(st.integers(0, 60), max_size=40)
NUMBERS = st.lists(st.integers(0, 40), max_size=60)


def members(offsets: OffsetSet) -> set[int]:
    return set(np.flatnonzero(offsets.holds(np.arange(70))).tolist())


def counts_of(*numbers: int) -> OffsetCounts:
    return count_offsets(np.array(numbers, np.int64))


def counter_of(counts: OffsetCounts) -> Counter[int]:
    return Counter(
        {n: times for span, times in counts.spans() for n in range(span.start, span.end)}
    )


@given(OFFSETS)
def test_a_set_holds_the_offsets_it_was_made_of(offsets: list[int]) -> None:
    made = OffsetSet.of(offsets)
    assert members(made) == set(offsets)
    assert len(made) == len(set(offsets))
    assert made.last == max(offsets, default=-1)
    assert (made.starts[1:] > made.ends[:-1]).all(), "ranges do not touch"


@given(OFFSETS, OFFSETS)
def test_a_union_holds_the_offsets_of_both_sets(one: list[int], other: list[int]) -> None:
    both = OffsetSet.of(one) | OffsetSet.of(other)
    assert members(both) == set(one) | set(other)
    assert (both.starts[1:] > both.ends[:-1]).all()


def test_consecutive_offsets_are_one_range() -> None:
    offsets = OffsetSet.of(np.arange(1_000_000))
    assert (len(offsets.starts), len(offsets)) == (1, 1_000_000)


def test_neighbours_that_occur_equally_often_are_one_range() -> None:
    assert counts_of(7, 3, 4, 5, 4) == OffsetCounts([3, 4, 5, 7], [4, 5, 6, 8], [1, 2, 1, 1])
    assert counts_of(1, 2, 3) == OffsetCounts([1], [4], [1])
    assert counts_of() == OffsetCounts()


@given(NUMBERS)
def test_counts_are_the_occurrences_of_each_number(numbers: list[int]) -> None:
    counts = counts_of(*numbers)
    assert counter_of(counts) == Counter(numbers)
    assert counts.rows == len(numbers)


@given(st.lists(NUMBERS, max_size=5))
def test_summed_counts_are_those_of_one_part(parts: list[list[int]]) -> None:
    every = [n for part in parts for n in part]
    assert sum_counts([counts_of(*part) for part in parts]) == counts_of(*every)


@given(NUMBERS, st.integers(0, 45), st.integers(0, 45))
def test_gaps_are_the_missing_numbers_between_two_bounds(
    numbers: list[int], begin: int, end: int
) -> None:
    spans = gaps(counts_of(*numbers), begin, end)
    missing = [n for span in spans for n in range(span.start, span.end)]
    assert missing == [n for n in range(begin, end) if n not in numbers]


def test_duplicates_are_numbers_that_occur_more_than_once() -> None:
    assert duplicates(counts_of(1, 2, 2, 3, 3, 3)) == [
        (NumberRange(2, 3), 2),
        (NumberRange(3, 4), 3),
    ]


def test_ranges_from_a_number_begin_there_at_the_earliest() -> None:
    assert ranges_from(counts_of(1, 2, 3, 4, 8), 3) == [NumberRange(3, 5), NumberRange(8, 9)]
    assert ranges_from(counts_of(1, 2), 3) == []


def test_a_range_is_written_with_its_last_number() -> None:
    assert (str(NumberRange(5, 6)), str(NumberRange(5, 9))) == ("5", "5..8")


def test_a_million_consecutive_numbers_are_one_range() -> None:
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(1_000_000).astype(np.int64)
    assert count_offsets(shuffled) == OffsetCounts([0], [1_000_000], [1])


@given(st.sets(st.integers(0, 30)))
def test_a_complement_holds_what_the_set_does_not(held: set[int]) -> None:
    at = np.arange(40)
    others = OffsetSet.of(list(held)).complement()
    assert set(at[others.holds(at)].tolist()) == set(range(40)) - held
