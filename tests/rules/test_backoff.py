"""Pauses between attempts double, up to a longest pause."""

import math
from datetime import timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.backoff import CHOSEN_PAUSE_S_MAX, backoff_ms, chosen_pause_ms

PAUSES_MS = st.integers(1, 10_000)
COUNTS = st.integers(2, 40)


def test_each_pause_is_twice_the_one_before() -> None:
    assert list(islice(backoff_ms(100), 4)) == [100, 200, 400, 800]


def test_the_longest_pause_repeats() -> None:
    assert list(islice(backoff_ms(100, 300), 5)) == [100, 200, 300, 300, 300]


def test_a_first_pause_over_the_longest_is_cut() -> None:
    assert list(islice(backoff_ms(100, 30), 3)) == [30, 30, 30]


@given(PAUSES_MS, PAUSES_MS, COUNTS)
def test_a_bound_changes_only_the_pauses_over_it(first_ms: int, max_ms: int, count: int) -> None:
    unbounded = islice(backoff_ms(first_ms), count)
    assert list(islice(backoff_ms(first_ms, max_ms), count)) == [
        min(pause_ms, max_ms) for pause_ms in unbounded
    ]


@given(PAUSES_MS, st.none() | PAUSES_MS, COUNTS)
def test_pauses_never_get_shorter_nor_more_than_double(
    first_ms: int, max_ms: int | None, count: int
) -> None:
    pauses = list(islice(backoff_ms(first_ms, max_ms), count))
    assert all(one <= following <= 2 * one for one, following in pairwise(pauses))


def test_two_backoffs_are_independent() -> None:
    one, other = backoff_ms(100), backoff_ms(100)
    assert [next(one), next(one), next(other)] == [100, 200, 100]


@given(st.floats(0, CHOSEN_PAUSE_S_MAX))
def test_a_chosen_pause_may_be_seconds_or_a_timedelta(seconds: float) -> None:
    assert chosen_pause_ms(seconds) == round(seconds * 1_000)
    delta = timedelta(milliseconds=round(seconds * 1_000))
    assert chosen_pause_ms(delta) == round(seconds * 1_000)


@pytest.mark.parametrize(
    "chosen",
    [-1, -0.001, math.nan, math.inf, CHOSEN_PAUSE_S_MAX + 1, True, None, "5", timedelta(days=2),
     timedelta(seconds=-1), 10**400],
    ids=repr,
)  # fmt: skip
def test_what_is_no_pause_is_not_taken_for_one(chosen: object) -> None:
    assert chosen_pause_ms(chosen) is None
