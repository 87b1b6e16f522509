import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.pull import (
    BYTES_DEFAULT,
    BYTES_MAX,
    COUNT_MAX,
    FOUND,
    WAIT,
    Corrected,
    Outcome,
    limits,
    outcome,
)

OFFSETS = st.integers(-5, 1000)


@pytest.mark.parametrize(
    ("asked", "minimum", "maximum", "expected"),
    [
        (0, 0, 10, FOUND),
        (9, 0, 10, FOUND),
        (10, 0, 10, WAIT),
        (0, 0, 0, WAIT),
        (3, 0, 0, Corrected(0, "NO_MESSAGE_IN_QUEUE")),
        (-1, 0, 0, Corrected(0, "NO_MESSAGE_IN_QUEUE")),
        (4, 5, 10, Corrected(5, "OFFSET_TOO_SMALL")),
        (-1, 0, 10, Corrected(0, "OFFSET_TOO_SMALL")),
        (11, 5, 10, Corrected(5, "OFFSET_OVERFLOW_BADLY")),
        (11, 0, 10, Corrected(0, "OFFSET_OVERFLOW_BADLY")),
        (7, 7, 7, WAIT),
        (6, 7, 7, Corrected(7, "OFFSET_TOO_SMALL")),
    ],
)
def test_an_offset_is_held_awaited_or_corrected(
    asked: int, minimum: int, maximum: int, expected: Outcome
) -> None:
    assert outcome(asked, minimum, maximum) == expected


@pytest.mark.parametrize(
    ("committed", "then"), [(None, 5), (4, 5), (5, 5), (8, 8), (10, 10), (11, 5), (12, 5)]
)
def test_a_reader_beyond_the_end_goes_on_at_its_groups_progress_or_at_the_beginning(
    committed: int | None, then: int
) -> None:
    assert outcome(12, 5, 10, committed) == Corrected(then, "OFFSET_OVERFLOW_BADLY")


@given(OFFSETS, st.integers(0, 500), st.integers(0, 500))
def test_a_corrected_offset_is_right_at_once(asked: int, minimum: int, length: int) -> None:
    maximum = minimum + length
    found = outcome(asked, minimum, maximum)
    if isinstance(found, Corrected):
        assert found.offset != asked
        assert outcome(found.offset, minimum, maximum) in (FOUND, WAIT)


def test_a_client_that_names_no_size_gets_the_genuine_one() -> None:
    assert limits(32, None) == (32, BYTES_DEFAULT)


def test_what_a_client_asks_for_is_granted_up_to_a_limit() -> None:
    assert limits(10_000, 4_000_000) == (10_000, 4_000_000)
    assert limits(10**9, 10**9) == (COUNT_MAX, BYTES_MAX)


def test_an_odd_wish_still_moves_on() -> None:
    assert limits(0, 0) == (1, BYTES_DEFAULT)
    assert limits(-3, -1) == (1, BYTES_DEFAULT)
