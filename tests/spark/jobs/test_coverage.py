"""Runs of numbers: what is there, what is not, and what is there more than once."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.jobs.coverage import Runs, Span, beyond, doubles, gaps, runs_of, summed

NUMBERS = st.lists(st.integers(0, 40), max_size=60)


def of(*numbers: int) -> Runs:
    return runs_of(np.array(numbers, np.int64))


def counted(runs: Runs) -> Counter[int]:
    return Counter({n: times for span, times in runs.spans() for n in range(span.start, span.end)})


def test_neighbours_that_are_there_equally_often_are_one_run() -> None:
    assert of(7, 3, 4, 5, 4) == Runs([3, 4, 5, 7], [4, 5, 6, 8], [1, 2, 1, 1])
    assert of(1, 2, 3) == Runs([1], [4], [1])
    assert of() == Runs()


@given(NUMBERS)
def test_runs_say_how_often_each_number_is_there(numbers: list[int]) -> None:
    runs = of(*numbers)
    assert counted(runs) == Counter(numbers)
    assert runs.rows == len(numbers)


@given(st.lists(NUMBERS, max_size=5))
def test_runs_of_several_places_count_together(parts: list[list[int]]) -> None:
    every = [n for part in parts for n in part]
    assert summed([of(*part) for part in parts]) == of(*every), "as if they had been one place"


@given(NUMBERS, st.integers(0, 45), st.integers(0, 45))
def test_gaps_are_all_that_is_not_there_between_two_numbers(
    numbers: list[int], begin: int, end: int
) -> None:
    found = [n for span in gaps(of(*numbers), begin, end) for n in range(span.start, span.end)]
    assert found == [n for n in range(begin, end) if n not in numbers]


def test_doubles_are_what_is_there_twice() -> None:
    assert doubles(of(1, 2, 2, 3, 3, 3)) == [(Span(2, 3), 2), (Span(3, 4), 3)]


def test_what_is_beyond_a_number_begins_there_at_the_earliest() -> None:
    assert beyond(of(1, 2, 3, 4, 8), 3) == [Span(3, 5), Span(8, 9)]
    assert beyond(of(1, 2), 3) == []


def test_a_span_is_written_with_its_last_number() -> None:
    assert (str(Span(5, 6)), str(Span(5, 9))) == ("5", "5..8")


def test_a_million_numbers_are_a_run() -> None:
    rng = np.random.default_rng(1)
    assert runs_of(rng.permutation(1_000_000).astype(np.int64)) == Runs([0], [1_000_000], [1])
