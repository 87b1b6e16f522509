import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.sql92.number_regex import BOUND_MAX, number_pattern

NUMBERS = st.one_of(st.integers(1, 2_000), st.integers(1, BOUND_MAX))


def is_in(pattern: str, text: str) -> bool:
    return re.match(pattern, text) is not None


@given(NUMBERS, NUMBERS, NUMBERS)
def test_an_ordinary_number_is_in_the_pattern_as_it_is_in_the_bounds(
    one: int, other: int, number: int
) -> None:
    least, most = sorted((one, other))
    for near in (number, least - 1, least, most, most + 1):
        if near >= 1:
            assert is_in(number_pattern(least, most), str(near)) is (least <= near <= most)
            assert is_in(number_pattern(None, most), str(near)) is (near <= most)
            assert not number_pattern(least, None) or (
                is_in(number_pattern(least, None), str(near)) is (near >= least)
            )


@given(NUMBERS, NUMBERS)
def test_open_bounds_are_left_out(bound: int, number: int) -> None:
    assert is_in(number_pattern(bound, None, is_open=True), str(number)) is (number > bound)
    assert is_in(number_pattern(None, bound, is_open=True), str(number)) is (number < bound)


@given(
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.sampled_from(["{}", "{:.1f}", "{:e}", "0{}", "{:.0f}."]),
)
def test_every_decimal_number_within_the_bounds_is_in_the_pattern(
    bound: float, number: float, way: str
) -> None:
    text = way.format(number)
    for is_open in (False, True):
        if float(text) >= bound:
            assert is_in(number_pattern(bound, None, is_open=is_open) or "", text)
        if float(text) <= bound:
            assert is_in(number_pattern(None, bound, is_open=is_open), text)


@pytest.mark.parametrize("text", ["-5", "007", "+5", "", "0", "\u0665", "x"])
def test_unusually_written_numbers_match_every_pattern(text: str) -> None:
    assert is_in(number_pattern(100, 200), text + "\x02")
    assert is_in(number_pattern(100.5, 200.5), text + "\x02")


def test_a_value_ends_where_its_record_does() -> None:
    for end in ("", "\x02", "\x00"):
        assert is_in(number_pattern(42, 42), "42" + end)
    assert not is_in(number_pattern(42, 42), "421")
    assert not is_in(number_pattern(42, 42), "42a")


def test_some_bounds_say_nothing() -> None:
    assert number_pattern(None, None) == ""
    assert number_pattern(1, None) == ""
    assert number_pattern(-5, None) == ""
    assert number_pattern(1, 2.5) == ""
    assert number_pattern(BOUND_MAX + 1, None) == ""
    assert not is_in(number_pattern(None, 0), "1")
