from contextlib import suppress

import pytest

from roquet.rules.sql92.tokens import SIZE_MAX, ExpressionError, Token, TokenKind, Tokens, content


def all_of(expression: str, *, compatible: bool = False) -> list[tuple[TokenKind, str]]:
    tokens, read = Tokens(expression, compatible=compatible), list[tuple[TokenKind, str]]()
    while (token := tokens.take()).kind is not TokenKind.END:
        read.append((token.kind, token.text))
    return read


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("a<=5", ["a", "<=", "5"]),
        ("a <>'it''s'", ["a", "<>", "'it''s'"]),
        ("(a,b)", ["(", "a", ",", "b", ")"]),
        ("a\t\n\r\f =\n1 ", ["a", "=", "1"]),
        ("a -- one\n = /* two ** */ 1", ["a", "=", "1"]),
        ("0x10", ["0", "x10"]),
        ("05 5L 0L", ["0", "5", "5L", "0", "L"]),
        ("1.5 1. .5 1e3 1.E-3 1e", ["1.5", "1.", ".5", "1e3", "1.E-3", "1", "e"]),
        ("a-b", ["a", "-", "b"]),
        ("$a_1", ["$a_1"]),
    ],
)
def test_an_expression_falls_into_tokens(expression: str, texts: list[str]) -> None:
    assert [text for _, text in all_of(expression)] == texts


def test_reserved_words_may_be_small_and_names_may_not() -> None:
    assert all_of("not Nota IS a") == [
        (TokenKind.WORD, "NOT"), (TokenKind.NAME, "Nota"), (TokenKind.WORD, "IS"), (TokenKind.NAME,
        "a"),
    ]  # fmt: skip


def test_each_token_knows_its_place() -> None:
    tokens = Tokens(" a >= 'x'")
    assert tokens.take() == Token(TokenKind.NAME, "a", 1, 2)
    assert tokens.peek(1) == Token(TokenKind.TEXT, "'x'", 6, 9)
    assert tokens.take().text == ">="
    assert tokens.peek() == Token(TokenKind.TEXT, "'x'", 6, 9)


def test_a_text_with_quotes_is_what_it_stands_for() -> None:
    assert content(Tokens("'it''s '''").take()) == "it's '"


def test_words_and_signs_are_taken_only_when_they_are_next() -> None:
    tokens = Tokens("AND 'OR'")
    assert tokens.accept("OR") is None
    assert tokens.accept("OR", "AND") == Token(TokenKind.WORD, "AND", 0, 3)
    assert not tokens.is_next("OR", "'OR'")


def test_a_comment_may_end_the_expression_but_not_for_the_genuine_grammar() -> None:
    assert all_of("a = 1 -- rest") == all_of("a = 1")
    compatible = [text for _, text in all_of("a = 1 -- rest", compatible=True)]
    assert compatible == ["a", "=", "1", "-", "-", "rest"]
    assert all_of("a -- x\n", compatible=True) == all_of("a")


@pytest.mark.parametrize(
    ("expression", "position", "said"),
    [
        ("a = 'x", 5, "a ' is missing"),
        ('a = "x"', 5, "single quotes"),
        ("a != 1", 3, "unequal is written <>"),
        ("a.b", 2, "'.' has no meaning"),
        ("/* a", 1, "'/' has no meaning"),
        ("中", 1, "'中' has no meaning"),
        ("a \x00", 3, "has no meaning"),
    ],
)
def test_unknown_characters_are_refused_with_their_position(
    expression: str, position: int, said: str
) -> None:
    with pytest.raises(ExpressionError, match=said) as refused:
        all_of(expression)
    assert refused.value.position == position
    assert f"at character {position} of" in str(refused.value)


def test_a_long_expression_is_refused_unread() -> None:
    with pytest.raises(ExpressionError, match=f"{SIZE_MAX + 1} characters are too many") as refused:
        Tokens("a" * (SIZE_MAX + 1))
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("piece", ["'", "''a", "/*", "/**", "--", "1", "1e", ".", "a", "'a''"])
def test_the_worst_texts_are_read_at_once(piece: str) -> None:
    text = (piece * SIZE_MAX)[:SIZE_MAX]
    tokens: list[tuple[TokenKind, str]] = []
    with suppress(ExpressionError):
        tokens = all_of(text)
    assert sum(len(token) for _, token in tokens) <= SIZE_MAX
