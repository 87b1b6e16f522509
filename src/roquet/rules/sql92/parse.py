"""Parser: tokens to a syntax tree, by Apache's grammar, or an error where that misreads.

    logic       equality { AND equality } { OR … }
    equality    comparison { = comparison | <> comparison | IS [NOT] NULL }
    comparison  unary { < unary | … | [NOT] BETWEEN unary AND unary
                      | [NOT] IN ( text, … ) | [NOT] CONTAINS text | … }
    unary       - unary | + unary | NOT unary | number | text | name | TRUE … | ( logic )

Apache's grammar stops where it can read no further and takes what it has: `a = 0x10` is `a = 0` to
it, `a LIKE 'x%'` is `a`. And NOT applies only to the operand that follows: `NOT a = 'x'` is
`(NOT a) = 'x'`, which fails for every message. Both are errors here, unless `compatible` is set.
"""

import math
import sys
from collections.abc import Callable
from operator import lt
from typing import Final

from roquet.rules.sql92.number_parsing import LONG_MAX, number_of
from roquet.rules.sql92.syntax_tree import (
    BOOLEAN,
    And,
    Between,
    Comparison,
    DecimalLiteral,
    Equal,
    InList,
    IsNull,
    Negative,
    Node,
    Not,
    Or,
    PropertyRef,
    TextLiteral,
    TextMatch,
    TruthLiteral,
    WholeLiteral,
)
from roquet.rules.sql92.tokens import Token, TokenKind, Tokens, content

DEPTH_MAX: Final = 64
"""Nesting of brackets and signs: nobody writes more, and each level costs stack."""

TERMS_MAX: Final = 500
"""Names, numbers and texts of one expression, except those of IN: each costs time per message."""

DECIMAL_MIN: Final = math.ulp(0.0)
"""Smallest decimal number that may be written: there is no 0.0."""

TRUTHS: Final = {"TRUE": True, "FALSE": False, "NULL": None}

SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")

ORDERS: Final = ("<", "<=", ">", ">=")

_INVERTIBLE: Final = frozenset((*SEARCHES, "BETWEEN", "IN"))
"""Words that may have a NOT in front."""


def parse(expression: str, *, compatible: bool = False) -> Node:
    """Parse an expression into a tree. Raises ExpressionError with the position of the fault."""
    parser = _Parser(expression, compatible=compatible)
    return parser.parse()


class _Parser:
    def __init__(self, expression: str, *, compatible: bool) -> None:
        self._tokens = Tokens(expression, compatible=compatible)
        self._compatible = compatible
        self._brackets = 0
        self._terms = 0
        self._heights: dict[int, int] = {}
        """Height by id of a node; nodes live as long as their tree."""

    def parse(self) -> Node:
        start = self._tokens.peek()
        if start.kind is TokenKind.END:
            raise self._tokens.error("the expression is empty", start.at)
        node = self._boolean(self._any(), start)
        following = self._tokens.peek()
        if following.kind is not TokenKind.END and not self._compatible:
            raise self._tokens.error(_trailing_token_text(following), following.at)
        return node

    # -- AND and OR --------------------------------------------------------------------------

    def _any(self) -> Node:
        return self._joined("OR", Or, self._all)

    def _all(self) -> Node:
        return self._joined("AND", And, self._equality)

    def _joined(self, word: str, made: type[Or] | type[And], part: Callable[[], Node]) -> Node:
        start = self._tokens.peek()
        first = part()
        if not self._tokens.is_next(word):
            return first
        parts = [self._boolean(first, start)]
        while self._tokens.accept(word):
            start = self._tokens.peek()
            parts.append(self._boolean(part(), start))
        return self._grown(made(tuple(parts)), start, *parts)

    # -- comparisons -------------------------------------------------------------------------

    def _equality(self) -> Node:
        start = self._tokens.peek()
        left = self._comparison()
        while sign := self._tokens.accept("=", "<>", "IS"):
            self._check_not(start, sign)
            if sign.text == "IS":
                inverse = self._tokens.accept("NOT") is not None
                self._expect("NULL")
                left = self._grown(IsNull(left, inverse), sign, left)
                continue
            right_start = self._tokens.peek()
            right = self._comparison()
            self._check_equal(left, right, start, right_start)
            left = self._grown(Equal(left, right, sign.text == "<>"), sign, left, right)
        return left

    def _comparison(self) -> Node:
        start = self._tokens.peek()
        left = self._unary()
        while sign := self._tokens.accept(*ORDERS, *SEARCHES, "BETWEEN", "IN", "NOT"):
            self._check_not(start, sign)
            inverse = sign.text == "NOT"
            if inverse:
                sign = self._expect(*_INVERTIBLE)
            left = self._grown(self._compared(left, sign, start, inverse=inverse), sign, left)
        return left

    def _compared(self, left: Node, sign: Token, start: Token, *, inverse: bool) -> Node:
        """Comparison of the left operand by a sign or word, with its right operands."""
        if sign.text in SEARCHES:
            return TextMatch(left, sign.text, content(self._expect_text()), inverse)
        if sign.text == "IN":
            if not isinstance(left, PropertyRef):
                raise self._tokens.error("only a property may be followed by IN", start.at)
            return InList(left, self._list(), inverse)
        self._check_number(left, start)
        if sign.text == "BETWEEN":
            low = self._number()
            self._expect("AND")
            high_start = self._tokens.peek()
            high = self._number()
            if not inverse:
                self._check_ends(low, high, high_start)
            return self._grown(Between(left, low, high, inverse), sign, low, high)
        right = self._number()
        return self._grown(Comparison(left, sign.text, right), sign, right)

    def _list(self) -> tuple[str, ...]:
        self._expect("(")
        texts = [content(self._expect_text())]
        while self._tokens.accept(","):
            texts.append(content(self._expect_text()))
        self._expect(")")
        return tuple(texts)

    def _number(self) -> Node:
        """Operand of a < or a BETWEEN."""
        start = self._tokens.peek()
        node = self._unary()
        self._check_number(node, start)
        return node

    # -- operands ----------------------------------------------------------------------------

    def _unary(self) -> Node:
        signs: list[tuple[Token, Token]] = []
        while sign := self._tokens.accept("+", "-", "NOT"):
            signs.append((sign, self._tokens.peek()))
        node = self._primary()
        for sign, operand in reversed(signs):
            if sign.text == "NOT":
                node = self._grown(Not(self._boolean(node, operand)), sign, node)
            elif sign.text == "-":
                node = self._grown(Negative(node), sign, node)
        return node

    def _primary(self) -> Node:
        token = self._tokens.take()
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise self._tokens.error(f"more than {TERMS_MAX} names and values", token.at)
        match token.kind:
            case TokenKind.NAME:
                return PropertyRef(sys.intern(token.text))
            case TokenKind.TEXT:
                return TextLiteral(content(token))
            case TokenKind.WHOLE:
                return self._whole(token)
            case TokenKind.DECIMAL:
                return self._decimal(token)
            case TokenKind.WORD if token.text in TRUTHS:
                return TruthLiteral(TRUTHS[token.text])
            case TokenKind.SIGN if token.text == "(":
                return self._bracketed(token)
        raise self._tokens.error(
            f"a name or a value was expected, not {_token_text(token)}", token.at
        )

    def _bracketed(self, bracket: Token) -> Node:
        self._brackets += 1
        if self._brackets > DEPTH_MAX:
            raise self._tokens.error(f"brackets nest more than {DEPTH_MAX} deep", bracket.at)
        node = self._any()
        self._brackets -= 1
        self._expect(")")
        return node

    def _whole(self, token: Token) -> WholeLiteral:
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise self._tokens.error(f"a whole number over {LONG_MAX}", token.at)
        return WholeLiteral(int(digits))

    def _decimal(self, token: Token) -> DecimalLiteral:
        value = float(token.text)
        if math.isinf(value):
            raise self._tokens.error("a decimal number out of range", token.at)
        if value < DECIMAL_MIN:
            raise self._tokens.error("no decimal number may be zero: write 0", token.at)
        return DecimalLiteral(value)

    # -- checks ------------------------------------------------------------------------------

    def _grown(self, node: Node, at: Token, *parts: Node) -> Node:
        """Return the node; raises ExpressionError if its tree is too high."""
        heights = self._heights
        before = max([heights.get(id(part), 0) for part in parts])
        heights[id(node)] = height = max(before + 1, heights.get(id(node), 0))
        if height > DEPTH_MAX:
            raise self._tokens.error(f"more than {DEPTH_MAX} nested comparisons", at.at)
        return node

    def _expect(self, *texts: str) -> Token:
        token = self._tokens.accept(*texts)
        if token is None:
            following = self._tokens.peek()
            wanted = texts[0] if len(texts) == 1 else f"one of {', '.join(sorted(texts))}"
            got = _token_text(following)
            raise self._tokens.error(f"{wanted} was expected, not {got}", following.at)
        return token

    def _expect_text(self) -> Token:
        token = self._tokens.take()
        if token.kind is not TokenKind.TEXT:
            raise self._tokens.error(f"a 'text' was expected, not {_token_text(token)}", token.at)
        return token

    def _boolean(self, node: Node, start: Token) -> Node:
        """Return the node; raises ExpressionError if it can be neither true nor false."""
        if isinstance(node, (*BOOLEAN, PropertyRef)):
            return node
        raise self._tokens.error("this is neither true nor false", start.at)

    def _check_not(self, start: Token, sign: Token) -> None:
        """Refuse to compare the result of a NOT without brackets."""
        if start.kind is TokenKind.WORD and start.text == "NOT" and not self._compatible:
            raise self._tokens.error(
                f"NOT applies only to the operand that follows, so what would {sign.text} compare? "
                "write NOT (…)", start.at,
            )  # fmt: skip

    def _check_equal(self, left: Node, right: Node, start: Token, right_start: Token) -> None:
        for side, token in ((left, start), (right, right_start)):
            if isinstance(side, TruthLiteral) and side.value is None:
                raise self._tokens.error("nothing equals NULL: write IS NULL", token.at)
        if isinstance(left, TruthLiteral) and isinstance(
            right, TextLiteral | WholeLiteral | DecimalLiteral
        ):
            raise self._tokens.error("TRUE and FALSE are equal to no other value", right_start.at)

    def _check_number(self, node: Node, start: Token) -> None:
        if isinstance(node, (*BOOLEAN, TextLiteral)):
            raise self._tokens.error(
                "only numbers, and properties with numbers, can be ordered", start.at
            )

    def _check_ends(self, low: Node, high: Node, start: Token) -> None:
        """Refuse a BETWEEN with exchanged ends. Like Java, only for numbers without a sign."""
        if not (
            isinstance(low, WholeLiteral | DecimalLiteral)
            and isinstance(high, WholeLiteral | DecimalLiteral)
        ):
            return
        first, second = number_of(low), number_of(high)
        if first and second and second.compared(lt, first):
            raise self._tokens.error(
                "the second number of a BETWEEN is lower than the first", start.at
            )


def _token_text(token: Token) -> str:
    return "the end" if token.kind is TokenKind.END else repr(token.text)


def _trailing_token_text(token: Token) -> str:
    """Reason why the expression cannot continue with a token."""
    if token.text.upper() == "LIKE":
        return "there is no LIKE: use CONTAINS, STARTSWITH or ENDSWITH"
    return f"AND, OR or the end was expected, not {_token_text(token)}"
