import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.sql92 import matcher, of_mapping, parse
from roquet.rules.sql92.prefilter import (
    ALTERNATIVES_MAX,
    PATTERNS_SIZE_MAX,
    SETS_MAX,
    AbsentProperty,
    AllRequired,
    AnyRequired,
    RequiredProperty,
    Requirement,
    property_alternatives,
    requirement,
)
from roquet.rules.sql92.syntax_tree import TextLiteral
from roquet.rules.sql92.tokens import ExpressionError


def is_seen(required: Requirement | None, text: str) -> bool:
    match required:
        case RequiredProperty(name, pattern):
            return re.search(f"\x02{re.escape(name)}\x01(?:{pattern})", text) is not None
        case AbsentProperty(name):
            return f"\x02{name}\x01" not in text
        case AllRequired(parts):
            return all(is_seen(part, text) for part in parts)
        case AnyRequired(parts):
            return any(is_seen(part, text) for part in parts)
        case _:
            return True


def shows(expression: str, **properties: str) -> bool:
    """Whether a message meets a requirement, in both of its encodings."""
    required = requirement(parse(expression))
    text = "\x02" + "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    in_all = all(
        any(is_seen(sign, text) for sign in way) for way in property_alternatives(required)
    )
    assert in_all or not is_seen(required, text), "a way asks for more than all of them together"
    return is_seen(required, text)


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
        assert shows(expression, **message)


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
        assert shows(expression, **message)


@given(st.sampled_from(["<", "<=", ">", ">=", "="]), st.integers(1, 3_000), st.integers(1, 3_000))
def test_an_ordinary_number_that_does_not_match_shows_none(
    sign: str, bound: int, number: int
) -> None:
    matches = matcher(parse(f"a {sign} {bound}"), of_mapping)({"a": str(number)})
    if (sign, bound) not in ((">=", 1), (">", 0)):
        assert shows(f"a {sign} {bound}", a=str(number)) is matches


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
        ("a IS NULL", {"a": "x"}), ("a IS NULL OR b = 'x'", {"a": "x", "b": "y"}),
        ("NOT (a IS NOT NULL AND b <> 'x')", {"a": "x", "b": "y"}),
        ("a = 'x' AND b IS NULL", {"a": "x", "b": "y"}), ("a > 5 AND b > 5", {"a": "6", "b": "4"}),
        ("a = b AND c = 'x'", {"a": "1", "b": "1", "c": "y"}),
    ],
)  # fmt: skip
def test_most_messages_that_do_not_match_show_none(
    expression: str, properties: dict[str, str]
) -> None:
    assert not shows(expression, **properties)


@pytest.mark.parametrize(
    "expression",
    ["TRUE", "NOT (a = 'x') OR TRUE", "a = b", "'x' <> a", "1 = 1", "- a IS NULL", "1 < 2",
     "NOT (a CONTAINS 'x')", "'x' CONTAINS 'x'", "a = - b", "5 BETWEEN 1 AND a", "a = b AND 1 < 2"],
)  # fmt: skip
def test_some_expressions_have_no_requirement(expression: str) -> None:
    assert requirement(parse(expression)) is None
    assert property_alternatives(None) == ()


@pytest.mark.parametrize(
    "expression",
    ["a IS NULL", "a = 'x' OR b IS NULL", "NOT (a IS NOT NULL AND b = 'x')",
     " OR ".join([f"p{number} = 1" for number in range(ALTERNATIVES_MAX + 1)])],
)  # fmt: skip
def test_some_expressions_have_no_required_property(expression: str) -> None:
    required = requirement(parse(expression))
    assert required is not None
    assert property_alternatives(required) == ()


def names(expression: str) -> list[list[str]]:
    return [
        [sign.name for sign in way] for way in property_alternatives(requirement(parse(expression)))
    ]


def test_the_most_selective_alternatives_come_first() -> None:
    assert names("a IS NOT NULL AND b > 5 AND c = 'x' AND d IS NULL") == [["c"], ["b"], ["a"]]
    assert names("(a = 1 OR b = 'x') AND c = 'x' AND c = 'x'") == [["c"], ["a", "b"]]
    assert names("a = 'x' AND FALSE") == [[], ["a"]]
    many = " AND ".join([f"p{number} > 5" for number in range(3 * SETS_MAX)])
    assert len(names(many)) == SETS_MAX


def test_an_or_requires_a_property_of_each_side() -> None:
    assert names("(a > 5 AND b = 'x') OR c = 'y'") == [["b", "c"]]
    assert names("(a > 5 OR b IS NULL) AND c = 'y'") == [["c"]]


def test_long_patterns_are_replaced_by_presence() -> None:
    many = ", ".join([f"'{number}'" for number in range(PATTERNS_SIZE_MAX // 10)])
    assert requirement(parse(f"a IN ({many})")) == RequiredProperty("a")
    either = " OR ".join([f"a = {number}" for number in range(PATTERNS_SIZE_MAX // 20)])
    assert property_alternatives(requirement(parse(f"{either} OR b = 'x'"))) == (
        (RequiredProperty("a"), RequiredProperty("b")),
    )
    assert requirement(parse(f"a IN ({many}) AND b IS NULL")) == AllRequired(
        (RequiredProperty("a"), AbsentProperty("b"))
    )
    long = "x" * PATTERNS_SIZE_MAX
    for expression in (f"a = '{long}'", f"a STARTSWITH '{long}'", f"a IN ('y', '{long}')"):
        assert shows(expression, a=long + "y")
        assert not shows(expression, a="x" * 9)
    assert requirement(parse("a > 1e300")) == RequiredProperty("a")
    assert requirement(parse("a > 0")) == RequiredProperty("a")
    assert requirement(parse("a = FALSE")) == RequiredProperty("a")
    assert requirement(TextLiteral("a")) is None


def test_a_text_is_looked_for_up_to_what_may_be_stored_otherwise() -> None:
    """Bytes that are not UTF-8 are read as U+FFFD, so their value is unknown."""
    assert requirement(parse("a = 'xy\ufffdz'")) == RequiredProperty("a", "xy", 0)
    assert requirement(parse("a STARTSWITH 'x\ufffd'")) == RequiredProperty("a", "x", 0)


def test_equal_alternatives_are_one_sign() -> None:
    assert property_alternatives(requirement(parse("a = 'x' OR a = 'x'"))) == property_alternatives(
        requirement(parse("a = 'x'"))
    )
