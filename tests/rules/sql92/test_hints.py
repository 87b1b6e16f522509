import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.sql92 import matcher, of_mapping, parse
from roquet.rules.sql92.hints import PATTERNS_SIZE_MAX, SIGNS_MAX, Sign, signs
from roquet.rules.sql92.tokens import ExpressionError
from roquet.rules.sql92.tree import Text


def shown(expression: str, **properties: str) -> bool:
    """Whether a message shows one of the signs, or there are none to be shown."""
    found = signs(parse(expression))
    text = "\x02" + "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    return found is None or any(
        re.search(f"\x02{re.escape(sign.name)}\x01(?:{sign.pattern})", text) for sign in found
    )


@given(st.data())
def test_every_message_that_matches_shows_a_sign(
    expressions: st.SearchStrategy[str],
    messages: st.SearchStrategy[dict[str, str]],
    data: st.DataObject,
) -> None:
    expression, given_ = data.draw(expressions), data.draw(messages)
    message = {name: v for name, v in given_.items() if v and not {"\0", "\1", "\2"} & set(v)}
    try:
        node = parse(expression)
    except ExpressionError:
        return
    if matcher(node, of_mapping)(message):
        assert shown(expression, **message)


NUMBERS = st.one_of(st.integers(-50, 1_100), st.integers(0, 10**16))


@given(
    st.sampled_from(["a < {}", "a <= {}", "a > {}", "a >= {}", "a = {}", "{} < a", "NOT (a < {})",
                     "a BETWEEN {} AND {}", "a NOT BETWEEN {} AND {}"]),
    NUMBERS, NUMBERS,
    st.sampled_from(["{}", "{}.5", "0{}", "{}e1", "{}.0e0", "{}d", " {}", "0x{}p1"]),
    st.sampled_from(["{}", "{}.5"]),
    NUMBERS,
)  # fmt: skip
def test_every_number_that_matches_shows_a_sign(
    expression: str, low: int, high: int, way: str, bound: str, number: int
) -> None:
    low, high = sorted((low, high))
    expression = expression.format(bound.format(low), bound.format(high))
    message = {"a": way.format(number)}
    try:
        node = parse(expression)
    except ExpressionError:
        return
    if matcher(node, of_mapping)(message):
        assert shown(expression, **message)


@given(st.sampled_from(["<", "<=", ">", ">=", "="]), st.integers(1, 3_000), st.integers(1, 3_000))
def test_an_ordinary_number_that_does_not_match_shows_none(
    sign: str, bound: int, number: int
) -> None:
    matches = matcher(parse(f"a {sign} {bound}"), of_mapping)({"a": str(number)})
    if (sign, bound) not in ((">=", 1), (">", 0)):
        assert shown(f"a {sign} {bound}", a=str(number)) is matches


@pytest.mark.parametrize(
    ("expression", "properties"),
    [
        ("a = 'x'", {"a": "xy"}), ("a = 'x'", {"b": "x"}),
        ("a = 'x' OR b = 'x'", {"a": "y", "b": "y"}),
        ("a IN ('x', 'y')", {"a": "z"}), ("a STARTSWITH 'x.'", {"a": "xy"}),
        ("a = TRUE", {"a": "truth"}),
        ("a IS NOT NULL", {"b": "1"}), ("a CONTAINS 'x'", {"b": "x"}), ("a <> 'x'", {"b": "x"}),
        ("NOT (a IS NULL)", {"b": "1"}), ("NOT (a = 'x' OR b = 'x')", {"c": "1"}),
        ("FALSE", {"a": "x"}),
        ("NULL OR a = 'x'", {"a": "y"}), ("a", {"a": "true"}), ("NOT (TRUE)", {}),
        ("NOT a", {"b": "x"}),
        ("a = 'x' AND b IS NULL", {"a": "y"}), ("a > 99.5", {"a": "98.7"}), ("a < 3.5", {"a": "4"}),
        ("a > b", {"b": "1"}), ("a < - b", {"b": "1"}),
        ("a BETWEEN 10 AND 12", {"a": "13"}),
        ("a NOT BETWEEN 10 AND 12", {"a": "11"}), ("a BETWEEN 1.5 AND 12", {"b": "13"}),
        ("a NOT IN ('x')", {"b": "x"}), ("NOT (a > 5)", {"a": "6"}), ("5 < a", {"a": "5"}),
        ("'x' = a", {"a": "y"}), ("a NOT CONTAINS 'x'", {"b": "x"}),
    ],
)  # fmt: skip
def test_most_messages_that_do_not_match_show_none(
    expression: str, properties: dict[str, str]
) -> None:
    assert not shown(expression, **properties)


@pytest.mark.parametrize(
    "expression",
    ["a IS NULL", "TRUE", "NOT (a = 'x') OR TRUE", "a = b", "'x' <> a", "1 = 1", "- a IS NULL",
     "NOT (a CONTAINS 'x')", "a = 'x' OR b IS NULL", "NOT (a IS NOT NULL AND b = 'x')", "1 < 2",
     "'x' CONTAINS 'x'", "a = - b", "5 BETWEEN 1 AND a",
     " OR ".join([f"p{number} = 1" for number in range(SIGNS_MAX + 1)])],
)  # fmt: skip
def test_of_some_nothing_can_be_said(expression: str) -> None:
    assert signs(parse(expression)) is None


def test_of_several_the_one_is_chosen_that_the_fewest_show() -> None:
    found = signs(parse("a IS NOT NULL AND b > 5 AND c = 'x' AND d IS NULL"))
    assert found is not None
    assert [sign.name for sign in found] == ["c"]


def test_what_would_make_a_long_pattern_is_said_shortly() -> None:
    many = ", ".join([f"'{number}'" for number in range(PATTERNS_SIZE_MAX // 10)])
    assert signs(parse(f"a IN ({many})")) == (Sign("a"),)
    either = " OR ".join([f"a = {number}" for number in range(PATTERNS_SIZE_MAX // 20)])
    assert signs(parse(f"{either} OR b = 'x'")) == (Sign("a"), Sign("b"))
    long = "x" * PATTERNS_SIZE_MAX
    for expression in (f"a = '{long}'", f"a STARTSWITH '{long}'", f"a IN ('y', '{long}')"):
        assert shown(expression, a=long + "y")
        assert not shown(expression, a="x" * 9)
    assert signs(parse("a > 1e300")) == (Sign("a"),)
    assert signs(parse("a > 0")) == (Sign("a"),)
    assert signs(parse("a = FALSE")) == (Sign("a"),)
    assert signs(Text("a")) is None


def test_equal_alternatives_are_one_sign() -> None:
    assert signs(parse("a = 'x' OR a = 'x'")) == signs(parse("a = 'x'"))
