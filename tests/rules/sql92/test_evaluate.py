import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rules.sql92.conftest import EXPRESSIONS, MESSAGES

from roquet.rules.sql92 import matcher, of_mapping
from roquet.rules.sql92.evaluate import compile_predicate
from roquet.rules.sql92.number_parsing import NotComparable
from roquet.rules.sql92.parse import parse
from roquet.rules.sql92.syntax_tree import Negative, PropertyRef, TextLiteral
from roquet.rules.sql92.tokens import ExpressionError


def outcome(expression: str, **properties: str) -> bool | None:
    return compile_predicate(parse(expression), of_mapping)(properties)


WAYS = {"TRUE": True, "FALSE": False, "NULL": None}


@pytest.mark.parametrize(("one", "other"), [*itertools.product(WAYS, WAYS)])
def test_logic_has_three_values(one: str, other: str) -> None:
    values = {WAYS[one], WAYS[other]}
    both = False if False in values else None if None in values else True
    either = True if True in values else None if None in values else False
    assert outcome(f"{one} AND {other}") is both
    assert outcome(f"{one} OR {other}") is either
    assert outcome(f"{one} AND {other} AND TRUE") is both
    assert outcome(f"NOT ({one} AND {other})") is outcome(f"NOT {one} OR NOT {other}")
    assert outcome(f"NOT {one}") is (None if WAYS[one] is None else not WAYS[one])


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        ("a = 5", {"a": "5"}, True), ("a <> 5", {"a": "5"}, False), ("a = 5", {}, None),
        ("5 = a", {"a": "+5"}, True), ("5 = a", {}, False), ("5 <> a", {}, True),
        ("'x' = a", {"a": "x"}, True), ("'x' = a", {}, False), ("'x' <> a", {}, True),
        ("a = b", {}, True), ("a = b", {"b": "1"}, None), ("a = b", {"a": "1"}, False),
        ("1 = 1.0", {}, True), ("1 <> 1.0", {}, False), ("- 1 < 1", {}, True),
        ("2 <= 1", {}, False),
        ("a = TRUE", {"a": "TruE"}, True), ("a = FALSE", {"a": "x"}, True),
        ("TRUE = a", {}, False), ("'true' = TRUE", {}, True), ("1 = TRUE", {}, False),
        ("(a = 1) = 1", {"a": "1"}, False), ("(a = 1) <> 1", {"a": "1"}, True),
        ("1 = (a = 1)", {"a": "1"}, False), ("1 = (a = 1)", {}, False),
        ("(a = 1) = (b = 1)", {"a": "1", "b": "1"}, True), ("(a = 1) = 1", {}, None),
        ("a > 5.5", {"a": "NaN"}, True), ("a < 5.5", {"a": "NaN"}, False),
        ("5 < a", {"a": "6"}, True), ("5 >= a", {"a": "6"}, False), ("5 > a", {}, None),
        ("a < b", {"a": "9", "b": "10"}, True), ("a < b", {"a": "-0.0", "b": "0"}, True),
        ("a < b", {"a": "9"}, None), ("a < b", {"b": "x"}, None),
        ("- a > 1", {"a": "-2"}, None), ("1 < - a", {"a": "2"}, None),
        ("- a IS NULL", {"a": "2"}, True),
        ("- 5 IS NULL", {}, False), ("NULL IS NULL", {}, True), ("'x' IS NOT NULL", {}, True),
        ("- TRUE = a", {}, True), ("- TRUE = a", {"a": "x"}, None), ("a = - b", {"a": "1"}, False),
        ("a BETWEEN b AND 5", {"a": "3", "b": "2"}, True),
        ("a NOT BETWEEN 5 AND 1", {"a": "3"}, True), ("a BETWEEN 1 AND 5", {}, None),
        ("a IN ('x', 'y')", {"a": "y"}, True), ("a NOT IN ('x')", {}, None),
        ("'abc' CONTAINS 'b'", {}, True), ("5 CONTAINS '5'", {}, False),
        ("a NOT STARTSWITH 'x'", {}, False), ("a NOT STARTSWITH 'x'", {"a": "y"}, True),
        ("a ENDSWITH ''", {"a": "x"}, False), ("(a = 1) CONTAINS 't'", {"a": "1"}, False),
        ("a", {"a": "true"}, False), ("NOT a", {"a": "x"}, True), ("a OR TRUE", {}, True),
    ],
)  # fmt: skip
def test_comparisons_are_javas(
    expression: str, properties: dict[str, str], wanted: bool | None
) -> None:
    assert outcome(expression, **properties) is wanted


@pytest.mark.parametrize(
    ("expression", "properties"),
    [
        ("a = 5", {"a": "5.0"}), ("5 <> a", {"a": "x"}), ("a > 2147483647", {"a": "2147483648"}),
        ("a > 1.5", {"a": "x"}), ("a > b", {"a": "x", "b": "1"}), ("TRUE = a", {"a": "true"}),
        ("(b = 1) = a", {"a": "true", "b": "1"}), ("a = 'x' OR b = 5", {"b": "x"}),
        ("- (a > 5) IS NULL", {"a": "x"}), ("NOT (a = 5)", {"a": "x"}),
    ],
)  # fmt: skip
def test_uncomparable_values_are_an_error(expression: str, properties: dict[str, str]) -> None:
    with pytest.raises(NotComparable):
        outcome(expression, **properties)


def test_a_decided_and_or_or_hides_uncomparable_parts() -> None:
    assert outcome("a = 'x' OR b = 5", a="x", b="y") is True
    assert outcome("a = 'x' AND b = 5", a="y", b="y") is False
    assert outcome("a = 'x' AND b = 'y' AND c = 5", a="x", b="z", c="y") is False


def test_a_property_is_not_asked_for_when_it_does_not_matter() -> None:
    asked = []

    def look(name: str) -> Any:
        def find(source: dict[str, str]) -> str | None:
            asked.append(name)
            return source.get(name)

        return find

    assert compile_predicate(parse("a = 'x' AND b = 5"), look)({"a": "y"}) is False
    assert asked == ["a"]


def test_hundreds_of_alternatives_are_no_recursion() -> None:
    either = " OR ".join([f"a = {number}" for number in range(200)])
    assert outcome(either, a="199") is True
    assert outcome(either.replace("OR", "AND").replace("=", "<>"), a="200") is True


@settings(max_examples=40)
@given(st.data())
def test_negation_and_brackets_keep_their_laws(data: st.DataObject) -> None:
    one, other, message = data.draw(EXPRESSIONS), data.draw(EXPRESSIONS), data.draw(MESSAGES)
    first, second = _safely(one, message), _safely(other, message)
    if "error" in (first, second):
        return

    def law(left: str, right: str) -> bool:
        left, right = (text.format(f"({one})", f"({other})") for text in (left, right))
        return _safely(left, message) is _safely(right, message)

    assert law("NOT (NOT {0})", "TRUE AND {0}")
    assert law("{0} AND {1}", "{1} AND {0}")
    assert law("{0} OR {1}", "{1} OR {0}")
    assert law("NOT ({0} OR {1})", "NOT {0} AND NOT {1}")
    assert _safely(f"({one}) IS NULL", message) is (first is None)


def _safely(expression: str, message: dict[str, str]) -> Any:
    try:
        return outcome(expression, **message)
    except (ExpressionError, NotComparable):
        return "error"


BOUNDS = st.sampled_from(["0", "5", "9", "- 5", "2147483648", "5.0", "9.5", "- .5", "b"])


@given(
    BOUNDS,
    BOUNDS,
    st.sampled_from(["", "0", "3", "5", "9", "-5", "05", "4.9", "9.5", "NaN", "x", "2147483648"]),
)
def test_between_is_two_comparisons(low: str, high: str, value: str) -> None:
    for words, comparisons in (("", "a >= {} AND a <= {}"), ("NOT ", "a < {} OR a > {}")):
        expression = f"a {words}BETWEEN {low} AND {high}"
        try:
            parse(expression)
        except ExpressionError:
            return  # the bounds are exchanged
        for message in ({}, {"a": value}, {"a": value, "b": "5"}):
            expected = _safely(comparisons.format(low, high), message)
            assert _safely(expression, message) is expected


def test_only_a_true_expression_matches() -> None:
    matches = matcher(parse("a > 5"), of_mapping)
    assert matches({"a": "6"}) is True
    assert matches({"a": "5"}) is False
    assert matches({}) is False, "unknown"
    assert matches({"a": "x"}) is False, "an error"


def test_only_what_is_true_or_false_can_be_compiled() -> None:
    for node in (TextLiteral("x"), Negative(PropertyRef("a"))):
        with pytest.raises(AssertionError, match="neither true nor false"):
            compile_predicate(node, of_mapping)
