import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.sql92.conftest import EXPRESSIONS

from roquet.rules.sql92.parse import DEPTH_MAX, TERMS_MAX, parse
from roquet.rules.sql92.syntax_tree import (
    And,
    Between,
    Comparison,
    DecimalLiteral,
    Equal,
    IsNull,
    Negative,
    Not,
    Or,
    PropertyRef,
    TextLiteral,
    TextMatch,
    TruthLiteral,
    WholeLiteral,
)
from roquet.rules.sql92.tokens import ExpressionError


def said(expression: str, *, compatible: bool) -> str:
    """Text of the error; empty without one."""
    try:
        parse(expression, compatible=compatible)
    except ExpressionError as error:
        return str(error) if 1 <= error.position <= len(expression) + 1 else "nowhere " * 99
    return ""


A, B, ONE = PropertyRef("a"), PropertyRef("b"), WholeLiteral(1)


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("a = 1 OR b = 1 AND a = 1",
         Or((Equal(A, ONE), And((Equal(B, ONE), Equal(A, ONE)))))),
        ("a = b > 1", Equal(A, Comparison(B, ">", ONE))),
        ("a = 'x' <> TRUE", Equal(Equal(A, TextLiteral("x")), TruthLiteral(value=True), True)),
        ("NOT a AND b", And((Not(A), B))),
        ("NOT NOT a", Not(Not(A))),
        ("a > - + - 1", Comparison(A, ">", Negative(Negative(ONE)))),
        ("a IS NULL IS NOT NULL", IsNull(IsNull(A), True)),
        ("a CONTAINS 'x' CONTAINS 'y'", TextMatch(TextMatch(A, "CONTAINS", "x"), "CONTAINS", "y")),
        ("a BETWEEN 1 AND 1.5 AND b", And((Between(A, ONE, DecimalLiteral(1.5)), B))),
        ("a NOT BETWEEN 2 AND 1", Between(A, WholeLiteral(2), ONE, True)),
        ("a BETWEEN 1 AND -1", Between(A, ONE, Negative(ONE))),
        ("(a) IN ('x')", parse("a IN ('x')")),
    ],
)  # fmt: skip
def test_operators_of_higher_precedence_are_deeper(expression: str, tree: object) -> None:
    assert parse(expression) == tree


@pytest.mark.parametrize(
    ("expression", "position", "said"),
    [
        ("", 1, "empty"),
        (" -- nothing", 12, "empty"),
        ("a = 1 b", 7, "AND, OR or the end was expected, not 'b'"),
        ("a = 0x10", 6, "not 'x10'"),
        ("a = 05", 6, "not '5'"),
        ("a LIKE 'x%'", 3, "there is no LIKE: use CONTAINS"),
        ("a = 1)", 6, r"not '\)'"),
        ("NOT a = 'x'", 1, r"what would = compare\? write NOT"),
        ("b = 1 AND NOT a IS NULL", 11, "what would IS compare"),
        ("NOT a CONTAINS 'x'", 1, "what would CONTAINS compare"),
        ("a =", 4, "not the end"),
        ("(a = 1", 7, r"\) was expected, not the end"),
        ("a == 1", 4, "a name or a value was expected, not '='"),
        ("a = NULL", 5, "write IS NULL"),
        ("NULL <> a", 1, "write IS NULL"),
        ("TRUE = 'x'", 8, "equal to no other value"),
        ("a > 'b'", 5, "only numbers"),
        ("TRUE < a", 1, "only numbers"),
        ("a BETWEEN 'x' AND 5", 11, "only numbers"),
        ("a BETWEEN 5 AND 1", 17, "is lower than the first"),
        ("a BETWEEN 5 AND 4.5", 17, "is lower than the first"),
        ("a BETWEEN 1", 12, "AND was expected"),
        ("a IN ()", 7, "a 'text' was expected"),
        ("a IN ('x', 1)", 12, "a 'text' was expected, not '1'"),
        ("'a' IN ('a')", 1, "only a property"),
        ("a CONTAINS 5", 12, "a 'text' was expected"),
        ("a NOT 5", 7, "one of BETWEEN, CONTAINS, ENDSWITH, IN, STARTSWITH was expected"),
        ("a IS 5", 6, "NULL was expected"),
        ("5", 1, "neither true nor false"),
        ("a AND 'x'", 7, "neither true nor false"),
        ("'x' OR a", 1, "neither true nor false"),
        ("NOT 5 = 5", 5, "neither true nor false"),
        ("- a", 1, "neither true nor false"),
        ("a = 9223372036854775808", 5, "a whole number over"),
        ("a = 0.0", 5, "write 0"),
        ("a = 1e999", 5, "out of range"),
        ("AND", 1, "not 'AND'"),
    ],
)
def test_nonsense_is_refused_with_its_position(expression: str, position: int, said: str) -> None:
    with pytest.raises(ExpressionError, match=said) as refused:
        parse(expression)
    assert refused.value.position == position


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("a = 1 b", "a = 1"),
        ("a = 0x10", "a = 0"),
        ("a LIKE 'x%'", "a"),
        ("a = 1)", "a = 1"),
        ("a = 1 ) '", "a = 1"),
        ("NOT a = 'x'", "(NOT a) = 'x'"),
        ("a = --5", "a = - - 5"),
    ],
)
def test_the_genuine_reading_takes_what_it_can(expression: str, read: str) -> None:
    assert parse(expression, compatible=True) == parse(read)
    with pytest.raises(ExpressionError):
        parse(expression)


@pytest.mark.parametrize("expression", ["a = 1 NOT b", "a = 1 IS b", "a = 1 '", "a AND"])
def test_the_genuine_reading_refuses_what_it_has_begun(expression: str) -> None:
    with pytest.raises(ExpressionError):
        parse(expression, compatible=True)


@pytest.mark.parametrize(
    "bomb",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "(" * 16_000,
        "NOT " * 4_000 + "a",
        "- " * 8_000 + "a > 1",
        "a > " + "+" * 16_000 + "1",
        "NOT (" * 2_000 + "a" + ")" * 2_000,
        "a" + " IS NULL" * 2_000,
        "a = 1" + " = TRUE" * 2_000,
        "a" + " CONTAINS 'x'" * 1_000,
        " OR ".join(["a = 1"] * 1_800),
        "a IN (" + ",".join(["'x'"] * 4_000),
        "a = " + "9" * 16_000,
        "a = 1e" + "9" * 16_000,
        "a = 0." + "9" * 16_000 + "b",
        "a = '" + "''" * 8_000,
    ],
    ids=lambda bomb: f"{bomb[:12]} {len(bomb)}",
)
@pytest.mark.parametrize("compatible", [False, True])
def test_bombs_are_read_or_refused_at_once(bomb: str, compatible: bool) -> None:
    assert len(said(bomb, compatible=compatible)) < 300


def test_nesting_has_a_limit_that_nobody_meets() -> None:
    fits = "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX
    assert parse(fits) == Equal(A, ONE)
    with pytest.raises(ExpressionError, match=f"more than {DEPTH_MAX} deep"):
        parse(f"({fits})")
    with pytest.raises(ExpressionError, match=f"more than {DEPTH_MAX} nested comparisons"):
        parse("NOT " * (DEPTH_MAX + 1) + "a")


def test_a_long_list_of_alternatives_is_no_nesting() -> None:
    many = " OR ".join(["a = 1"] * (TERMS_MAX // 2))
    node = parse(many)
    assert isinstance(node, Or)
    assert len(node.parts) == TERMS_MAX // 2
    with pytest.raises(ExpressionError, match=f"more than {TERMS_MAX} names and values"):
        parse(f"{many} OR a")
    parse("a IN (" + ",".join(["'x'"] * 2 * TERMS_MAX) + ")")  # looked up, not tried


@given(st.text(max_size=40), st.booleans())
def test_any_text_is_read_or_refused(text: str, compatible: bool) -> None:
    assert len(said(text, compatible=compatible)) < 500


@given(st.data())
def test_whatever_we_read_the_genuine_grammar_reads_so_too(data: st.DataObject) -> None:
    expression = data.draw(EXPRESSIONS)
    try:
        ours = parse(expression)
    except ExpressionError:
        return
    assert parse(expression, compatible=True) == ours
