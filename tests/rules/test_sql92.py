"""SQL92 filters as a whole: equal to Apache's filter, and safe on any input."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines

from roquet.model.errors import UsageError
from roquet.rules.sql92 import ExpressionError, NotComparable, matcher, of_mapping, parse
from roquet.rules.sql92.evaluate import compile_predicate

CASES = vector_lines("sql92.jsonl")

MISREAD = {"NOT a = 'x'", "a LIKE 'x%'", "a = 1)", "a = 1 b", "a = 0x10", "a-b = 'v'"}
"""Expressions that Apache's grammar misreads."""


def outcome_of(expression: str, properties: dict[str, str], *, compatible: bool) -> dict[str, Any]:
    try:
        node = parse(expression, compatible=compatible)
    except ExpressionError:
        return {"error": True, "stage": "compile"}
    try:
        return {"result": compile_predicate(node, of_mapping)(properties)}
    except NotComparable:
        return {"error": True, "stage": "evaluate"}


def test_the_vectors_are_all_there() -> None:
    assert len(CASES) == 268
    assert {case["in"]["expr"] for case in CASES} > MISREAD


@for_each(CASES)
def test_an_expression_gives_what_the_genuine_filter_gives(case: dict[str, Any]) -> None:
    expression, properties = case["in"]["expr"], case["in"]["props"]
    assert outcome_of(expression, properties, compatible=True) == case["out"]
    ours = outcome_of(expression, properties, compatible=False)
    if expression in MISREAD:
        assert ours == {"error": True, "stage": "compile"}
    else:
        assert ours == case["out"]


def test_a_bad_expression_is_the_users_error() -> None:
    with pytest.raises(UsageError, match="at character 5 of 'a = '") as refused:
        parse("a = ")
    assert isinstance(refused.value, ExpressionError)


@for_each(CASES[::7])
def test_only_true_is_a_match(case: dict[str, Any]) -> None:
    try:
        matches = matcher(parse(case["in"]["expr"]), of_mapping)
    except ExpressionError:
        return
    assert matches(case["in"]["props"]) is (case["out"].get("result") is True)


VALUES = st.one_of(st.text(max_size=6), st.sampled_from(["5", "5.0", "1e999", "NaN", "9" * 5_000]))


@given(
    st.sampled_from([case["in"]["expr"] for case in CASES]),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES),
)
def test_matching_never_raises(expression: str, properties: dict[str, str]) -> None:
    try:
        matches = matcher(parse(expression, compatible=True), of_mapping)
    except ExpressionError:
        return
    assert matches(properties) in (True, False)
