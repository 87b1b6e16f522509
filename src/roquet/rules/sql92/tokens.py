"""Tokens of a filter expression: words, signs, names, texts and numbers, with positions.

A text is enclosed in single quotes, a quote inside of it is doubled. Reserved words are
case-insensitive, names are not. Comments are `-- to the end of the line` and `/* */`. Source: the
token definitions of Apache's grammar.
"""

import re
from enum import Enum
from typing import Final

import msgspec

from roquet.model.errors import UsageError

SIZE_MAX: Final = 16_384
"""Characters of one expression: parsing a longer one would hold the event loop for too long."""

SHOWN_MAX: Final = 60
"""Characters of an expression that an error repeats."""


class ExpressionError(UsageError):
    """A filter expression that cannot be evaluated; `position` counts from 1."""

    def __init__(self, text: str, expression: str, at: int) -> None:
        shown = expression[:SHOWN_MAX] + "…" * (len(expression) > SHOWN_MAX)
        super().__init__(f"{text}, at character {at + 1} of {shown!r}")
        self.position = at + 1


class TokenKind(Enum):
    """Kind of a token."""

    WORD = "a word"
    SIGN = "a sign"
    NAME = "a name"
    TEXT = "a text"
    WHOLE = "a whole number"
    DECIMAL = "a decimal number"
    END = "the end"


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token: reserved words are in capitals, everything else is as written."""

    kind: TokenKind
    text: str
    at: int
    """Start index, from 0."""
    stop: int


WORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH",
     "ENDSWITH"}
)  # fmt: skip
"""Reserved words, which cannot be names."""

_TOKEN: Final = re.compile(
    r"""
      (?P<NAME>    [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<TEXT>    '[^']*(?:''[^']*)*' )
    | (?P<DECIMAL> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
                 | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<WHOLE>   0 | [1-9][0-9]*[lL]? )
    | (?P<SIGN>    <> | <= | >= | [<>=(),+-] )
    """,
    re.VERBOSE,
)

_BETWEEN: Final = re.compile(
    r"(?: [ \t\n\r\f]+ | --[^\n\r]*[\n\r] | /\*[^*]*\*+(?:[^/*][^*]*\*+)*/ )*", re.VERBOSE
)
"""Text between tokens: blanks, and comments that end."""

_OPEN_COMMENT: Final = re.compile(r"--[^\n\r]*\Z")
"""A comment that ends with the expression: Apache's grammar reads it as two minus signs."""


class Tokens:
    """Tokens of one expression, found on demand.

    With `compatible` as Apache's lexer finds them; otherwise a comment may end with the expression.
    """

    def __init__(self, expression: str, *, compatible: bool = False) -> None:
        self.expression = expression
        self._compatible = compatible
        self._at = 0
        self._waiting: list[Token] = []
        if len(expression) > SIZE_MAX:
            raise self.error(f"{len(expression)} characters are too many: {SIZE_MAX} are allowed")

    def error(self, text: str, at: int = 0) -> ExpressionError:
        """Error for a fault at a position of the expression."""
        return ExpressionError(text, self.expression, at)

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one behind it, without taking it."""
        while len(self._waiting) <= ahead:
            self._waiting.append(self._find())
        return self._waiting[ahead]

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek()
        del self._waiting[0]
        return token

    def is_next(self, *texts: str) -> bool:
        """Whether the next token is one of these words or signs."""
        token = self.peek()
        return token.kind in (TokenKind.WORD, TokenKind.SIGN) and token.text in texts

    def accept(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these words or signs; otherwise None."""
        return self.take() if self.is_next(*texts) else None

    def _find(self) -> Token:
        at = self._skip()
        if at == len(self.expression):
            return Token(TokenKind.END, "", at, at)
        match = _TOKEN.match(self.expression, at)
        if match is None:
            raise self.error(_unexpected(self.expression, at), at)
        self._at = match.end()
        kind, text = TokenKind[match.lastgroup or ""], match[0]
        if kind is TokenKind.NAME and text.upper() in WORDS:
            kind, text = TokenKind.WORD, text.upper()
        return Token(kind, text, at, self._at)

    def _skip(self) -> int:
        match = _BETWEEN.match(self.expression, self._at)
        assert match is not None, "the pattern matches the empty text"
        at = match.end()
        if not self._compatible and _OPEN_COMMENT.match(self.expression, at):
            at = len(self.expression)
        self._at = at
        return at


def _unexpected(expression: str, at: int) -> str:
    """Describe a character that begins no token."""
    sign = expression[at]
    hints = {
        "'": "an unterminated text: a ' is missing",
        '"': "texts are enclosed in single quotes, not double quotes",
        "!": "unequal is written <>",
    }
    return hints.get(sign, f"{sign!r} has no meaning here")


def content(token: Token) -> str:
    """The value of a TEXT token, without its quotes."""
    return token.text[1:-1].replace("''", "'")
