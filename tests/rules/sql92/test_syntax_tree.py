import pytest

from roquet.rules.sql92.parse import parse
from roquet.rules.sql92.syntax_tree import term_count


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("((a)) = (1)", "a = 1"),
        ("not (a <> 'it''s')", "NOT (a <> 'it''s')"),
        ("a=1 and (b=2 or c=3)", "a = 1 AND (b = 2 OR c = 3)"),
        ("(a=1 and b=2) or c=3", "a = 1 AND b = 2 OR c = 3"),
        ("(a=1 and b=2) and c=3", "(a = 1 AND b = 2) AND c = 3"),
        ("a between -1 and 2.50", "a BETWEEN - 1 AND 2.5"),
        ("a not between 1 and b", "a NOT BETWEEN 1 AND b"),
        ("a in ('x') or a not in ('y','z')", "a IN ('x') OR a NOT IN ('y', 'z')"),
        ("a is null or b is not null", "a IS NULL OR b IS NOT NULL"),
        ("a contains 'x' and b not endswith ''", "a CONTAINS 'x' AND b NOT ENDSWITH ''"),
        ("a = 1 = true", "(a = 1) = TRUE"),
        ("not not a and (not b) is null", "NOT (NOT a) AND (NOT b) IS NULL"),
        ("a = (b = true)", "a = (b = TRUE)"),
        ("(a < 5) is null or false", "a < 5 IS NULL OR FALSE"),
        ("null", "NULL"),
        ("- - a > 1", "- - a > 1"),
        ("a = 5L", "a = 5"),
    ],
)
def test_brackets_and_cases_that_change_nothing_give_the_same_tree(
    written: str, plain: str
) -> None:
    assert parse(plain) == parse(written)


@pytest.mark.parametrize(
    ("expression", "terms"),
    [("a", 1), ("a = 1", 2), ("a IN ('x', 'y', 'z')", 1), ("a BETWEEN 1 AND 2", 4),
     ("NOT (a = - b) AND c IS NULL OR d CONTAINS 'x'", 4), ("a < 1", 2)],
)  # fmt: skip
def test_terms_are_what_a_message_costs(expression: str, terms: int) -> None:
    assert term_count(parse(expression)) == terms
