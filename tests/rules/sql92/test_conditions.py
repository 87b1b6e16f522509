import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.sql92.conftest import EXPRESSIONS, MESSAGES

from roquet.rules.sql92 import ExpressionError, NotComparable, of_mapping, parse
from roquet.rules.sql92.conditions import (
    Conditions,
    Connective,
    Outcome,
    PropertyCondition,
    conditions_of,
)
from roquet.rules.sql92.evaluate import compile_predicate
from roquet.rules.sql92.number_parsing import READ_INT, READ_LONG, read_nan_as_infinity

READERS = {"INT": READ_INT, "LONG": READ_LONG, "DOUBLE": read_nan_as_infinity}

UNKNOWN_IF_ABSENT = (None, False, True)
INVERSE = (None, True, False)


@pytest.mark.parametrize(
    ("expression", "kind", "operand", "outcomes"),
    [
        ("a = 'x'", "=", b"x", UNKNOWN_IF_ABSENT),
        ("a <> 'x'", "=", b"x", INVERSE),
        ("NOT (a <> 'x')", "=", b"x", UNKNOWN_IF_ABSENT),
        ("a = 5", "INT", (5, 5), UNKNOWN_IF_ABSENT),
        ("a <> - 5", "INT", (-5, -5), INVERSE),
        ("a = 2147483648", "LONG", (2**31, 2**31), UNKNOWN_IF_ABSENT),
        ("a < 5.5", "DOUBLE", (5.5, math.inf), INVERSE),
        ("a <= 5", "INT", (-math.inf, 5), UNKNOWN_IF_ABSENT),
        ("a > 5", "INT", (-math.inf, 5), INVERSE),
        ("a >= 5", "INT", (5, math.inf), UNKNOWN_IF_ABSENT),
        ("a BETWEEN 5 AND 6", "INT", (5, 6), UNKNOWN_IF_ABSENT),
        ("a NOT BETWEEN 5 AND 6", "INT", (5, 6), INVERSE),
        ("a IN ('x', '\u4e2d')", "IN", {b"x", "\u4e2d".encode()}, UNKNOWN_IF_ABSENT),
        ("a NOT IN ('x')", "IN", {b"x"}, INVERSE),
        ("a IS NULL", "STARTSWITH", b"", (True, False, False)),
        ("a IS NOT NULL", "STARTSWITH", b"", (False, True, True)),
        ("a CONTAINS 'x'", "CONTAINS", b"x", (False, False, True)),
        ("a NOT ENDSWITH 'x'", "ENDSWITH", b"x", (False, True, False)),
        ("NOT (a NOT STARTSWITH 'x')", "STARTSWITH", b"x", (True, False, True)),
    ],
)  # fmt: skip
def test_a_comparison_with_a_constant_is_a_condition(
    expression: str, kind: str, operand: object, outcomes: tuple[Outcome, Outcome, Outcome]
) -> None:
    condition = conditions_of(parse(expression))
    assert isinstance(condition, PropertyCondition)
    assert condition.name == "a"
    assert (condition.kind, condition.operand, condition.outcomes) == (kind, operand, outcomes)


def test_not_exchanges_and_and_or() -> None:
    expression = "NOT (a = 'x' AND (b = 5 OR c IS NULL) AND d <> 5)"
    assert conditions_of(parse(expression)) == conditions_of(
        parse("a <> 'x' OR (b <> 5 AND c IS NOT NULL) OR d = 5")
    )


@pytest.mark.parametrize(
    "expression",
    ["a = b", "a > b", "5 = a", "a = TRUE", "a", "TRUE", "a BETWEEN b AND 5", "- a IS NULL",
     "a BETWEEN 5 AND 6.5", "(a = 5) = (b = 5)", "a CONTAINS ''", "a = 5 AND b = c", "NOT a",
     "a = '\ufffd'", "a IN ('x', '\ud800')"],
    ids=ascii,
)  # fmt: skip
def test_other_expressions_have_no_conditions(expression: str) -> None:
    assert conditions_of(parse(expression)) is None


def outcome(conditions: Conditions, message: dict[str, str]) -> Outcome:
    """The outcome of a message as `Connective` and `PropertyCondition` say."""
    if isinstance(conditions, Connective):
        result: Outcome = conditions.is_and
        for part in conditions.parts:
            if (one := outcome(part, message)) is not conditions.is_and and one is not None:
                return one
            result = None if one is None else result
        return result
    absent, fails, holds = conditions.outcomes
    text = message.get(conditions.name)
    if text is None:
        return absent
    match conditions.kind, conditions.operand:
        case "=" | "STARTSWITH" | "ENDSWITH" | "CONTAINS" as kind, bytes() as sought:
            value = text.encode("utf-8", "surrogatepass")
            does_hold = {
                "=": value == sought,
                "STARTSWITH": value.startswith(sought),
                "ENDSWITH": value.endswith(sought),
                "CONTAINS": sought in value,
            }[kind]
        case "IN", frozenset() as texts:
            does_hold = text.encode("utf-8", "surrogatepass") in texts
        case kind, operand:
            assert isinstance(operand, tuple)
            low, high = operand
            does_hold = low <= READERS[kind](text) <= high
    return holds if does_hold else fails


@given(st.data())
def test_conditions_have_the_outcome_of_their_expression(data: st.DataObject) -> None:
    expression = data.draw(EXPRESSIONS)
    try:
        node = parse(expression)
    except ExpressionError:
        return
    if (conditions := conditions_of(node)) is None:
        return
    message = {name: text for name, text in data.draw(MESSAGES).items() if text}
    try:
        expected = compile_predicate(node, of_mapping)(message)
    except NotComparable:
        with pytest.raises(NotComparable):
            outcome(conditions, message)
    else:
        assert outcome(conditions, message) is expected
