"""Runs of numbers: what is there, what is not, and what is there more than once."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.jobs.offset_counts import (
    NumberRange,
    OffsetCounts,
    count_offsets,
    duplicates,
    gaps,
    intervals_from,
    sum_counts,
)

NUMBERS = st.lists(st.integers(0, 40), max_size=60)


def of(*numbers: int) -> OffsetCounts:
    return count_offsets(np.array(numbers, np.int64))


def counted(runs: OffsetCounts) -> Counter[int]:
    return Counter({n: times for span, times in runs.spans() for n in range(span.start, span.end)})


def test_neighbours_that_are_there_equally_often_are_one_run() -> None:
    assert of(7, 3, 4, 5, 4) == OffsetCounts([3, 4, 5, 7], [4, 5, 6, 8], [1, 2, 1, 1])
    assert of(1, 2, 3) == OffsetCounts([1], [4], [1])
    assert of() == OffsetCounts()


@given(NUMBERS)
def test_runs_say_how_often_each_number_is_there(numbers: list[int]) -> None:
    runs = of(*numbers)
    assert counted(runs) == Counter(numbers)
    assert runs.rows == len(numbers)


@given(st.lists(NUMBERS, max_size=5))
def test_runs_of_several_places_count_together(parts: list[list[int]]) -> None:
    every = [n for part in parts for n in part]
    assert sum_counts([of(*part) for part in parts]) == of(*every), "as if they had been one place"


@given(NUMBERS, st.integers(0, 45), st.integers(0, 45))
def test_gaps_are_all_that_is_not_there_between_two_numbers(
    numbers: list[int], begin: int, end: int
) -> None:
    found = [n for span in gaps(of(*numbers), begin, end) for n in range(span.start, span.end)]
    assert found == [n for n in range(begin, end) if n not in numbers]


def test_doubles_are_what_is_there_twice() -> None:
    assert duplicates(of(1, 2, 2, 3, 3, 3)) == [(NumberRange(2, 3), 2), (NumberRange(3, 4), 3)]


def test_what_is_beyond_a_number_begins_there_at_the_earliest() -> None:
    assert intervals_from(of(1, 2, 3, 4, 8), 3) == [NumberRange(3, 5), NumberRange(8, 9)]
    assert intervals_from(of(1, 2), 3) == []


def test_a_span_is_written_with_its_last_number() -> None:
    assert (str(NumberRange(5, 6)), str(NumberRange(5, 9))) == ("5", "5..8")


def test_a_million_numbers_are_a_run() -> None:
    rng = np.random.default_rng(1)
    assert count_offsets(rng.permutation(1_000_000).astype(np.int64)) == OffsetCounts(
        [0], [1_000_000], [1]
    )
