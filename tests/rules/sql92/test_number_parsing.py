import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.sql92.number_parsing import (
    DECIMAL_SIZE_MAX,
    INT_MAX,
    LONG_MAX,
    NotComparable,
    java_order_key,
    number_of,
    read_decimal,
    read_nan_as_infinity,
    whole_reader,
)
from roquet.rules.sql92.parse import parse
from roquet.rules.sql92.syntax_tree import (
    Between,
    DecimalLiteral,
    Negative,
    PropertyRef,
    TextLiteral,
    TruthLiteral,
    WholeLiteral,
)

read_int, read_long = whole_reader(INT_MAX), whole_reader(LONG_MAX)


@given(st.integers(-INT_MAX - 1, INT_MAX), st.sampled_from(["", "0", "00000000000000000000"]))
def test_a_whole_number_is_read_with_zeros_and_signs(number: int, zeros: str) -> None:
    sign = "-" if number < 0 else ""
    assert read_int(f"{sign}{zeros}{abs(number)}") == number
    if number >= 0:
        assert read_int(f"+{number}") == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2147483647", INT_MAX),
        ("-2147483648", -INT_MAX - 1),
        ("\u0665", 5),
        ("-\u0967\u0968", -12),
        ("0" * 9_000, 0),
    ],
)
def test_numbers_at_the_edge_are_read(text: str, number: int) -> None:
    assert read_int(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "-", "+", "5.0", " 5", "5 ", "1_000", "five", "--5", "2147483648", "-2147483649", "²",
     "9" * 9_000, "\U0001d7ce"],
    ids=lambda text: f"{text[:12]!a} {len(text)}",
)  # fmt: skip
def test_texts_that_java_cannot_read_as_an_int_are_not_comparable(text: str) -> None:
    with pytest.raises(NotComparable):
        read_int(text)


def test_longs_have_their_own_bounds() -> None:
    assert read_long("9223372036854775807") == LONG_MAX
    assert read_long("-9223372036854775808") == -LONG_MAX - 1
    assert read_long("2147483648") == 2**31
    for text in ("9223372036854775808", "-9223372036854775809", "10000000000000000000"):
        with pytest.raises(NotComparable):
            read_long(text)


@given(st.floats(allow_nan=False))
def test_a_decimal_number_is_read_as_it_is_written(number: float) -> None:
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, repr(number))
    assert read_decimal(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5), ("5.", 5), (".5", 0.5), ("+5.25", 5.25), (" \t7.5\n", 7.5), ("5f", 5),
        ("5.5D", 5.5), ("1e3", 1000), ("1E-2d", 0.01), ("0x1p3", 8), ("-0X.8P1", -1),
        ("0x1.8p1f", 3), ("1e999", math.inf), ("0x1p99999", math.inf),
    ],
)  # fmt: skip
def test_javas_ways_of_writing_are_known(text: str, number: float) -> None:
    assert read_decimal(text) == number


@pytest.mark.parametrize(
    "text",
    ["", ".", "e5", "1e", "five", "nan", "inf", "1_0.0", "0x1", "1.2.3", "\u0665.5", "5 5",
     "1" * (DECIMAL_SIZE_MAX + 1), "1" * 1_000 + "x"],
    ids=lambda text: f"{text[:12]!a} {len(text)}",
)  # fmt: skip
def test_texts_that_java_cannot_read_as_a_double_are_not_comparable(text: str) -> None:
    with pytest.raises(NotComparable):
        read_decimal(text)


def test_javas_order_has_nan_above_all_and_two_zeros() -> None:
    assert math.isnan(read_decimal("-NaN"))
    assert read_nan_as_infinity("NaN") == math.inf
    assert read_nan_as_infinity("2.5") == 2.5
    order = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    assert sorted([*order[3:], *order[:3]], key=java_order_key) == order
    assert java_order_key(-0.0) < java_order_key(0.0) < java_order_key(5e-324)
    assert java_order_key(math.inf) < java_order_key(math.nan) == java_order_key(math.nan)


def test_a_number_knows_how_texts_beside_it_are_read() -> None:
    small, large = number_of(WholeLiteral(5)), number_of(WholeLiteral(2**31))
    decimal = number_of(DecimalLiteral(0.5))
    assert small
    assert large
    assert decimal
    with pytest.raises(NotComparable):
        small.read("2147483648")
    assert large.read("2147483648") == large.value
    assert decimal.read("0.5") == decimal.value
    negated = number_of(Negative(Negative(Negative(WholeLiteral(2**31)))))
    assert negated
    assert (negated.value, negated.read("-2147483649")) == (-(2**31), -(2**31) - 1)


@pytest.mark.parametrize(
    "node", [PropertyRef("a"), TextLiteral("5"), TruthLiteral(None), Negative(TextLiteral("5"))]
)
def test_nodes_without_a_number(node: PropertyRef | TextLiteral | TruthLiteral | Negative) -> None:
    assert number_of(node) is None


def test_a_long_and_a_double_meet_as_doubles() -> None:
    node = parse("a BETWEEN 9007199254740993 AND 9007199254740992.0")  # which Java thinks equal
    assert isinstance(node, Between)
