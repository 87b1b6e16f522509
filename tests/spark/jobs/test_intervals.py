"""A set of offsets as ranges is the set."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.jobs.intervals import OffsetSet

offsets = st.lists(st.integers(0, 60), max_size=40)


def held(runs: OffsetSet) -> set[int]:
    return set(np.flatnonzero(runs.holds(np.arange(70))).tolist())


@given(offsets)
def test_it_holds_what_it_was_made_of(given: list[int]) -> None:
    runs = OffsetSet.of(given)
    assert held(runs) == set(given)
    assert len(runs) == len(set(given))
    assert runs.last == max(given, default=-1)
    assert (runs.starts[1:] > runs.ends[:-1]).all(), "ranges do not touch"


@given(offsets, offsets)
def test_two_sets_are_joined(one: list[int], other: list[int]) -> None:
    both = OffsetSet.of(one) | OffsetSet.of(other)
    assert held(both) == set(one) | set(other)
    assert (both.starts[1:] > both.ends[:-1]).all()


def test_offsets_that_follow_one_another_are_one_range() -> None:
    runs = OffsetSet.of(np.arange(1_000_000))
    assert (len(runs.starts), len(runs)) == (1, 1_000_000)
