"""Tokens: the words, signs, numbers and texts of a filter expression, each with its place.

A text stands between single quotes, a quote inside of it is written twice. Reserved words may be
written large or small, names may not. Comments are `-- to the end of the line` and `/* */`.
(Source: the token definitions of the genuine grammar.)
"""

import re
from enum import Enum
from typing import Final

import msgspec

from roquet.model.errors import UsageError

SIZE_MAX: Final = 16_384
"""Characters of one expression: reading a longer one would hold everybody up for too long."""

SHOWN_MAX: Final = 60
"""Characters of an expression that an error repeats."""


class ExpressionError(UsageError):
    """A filter expression that says nothing that can be evaluated; `position` counts from 1."""

    def __init__(self, text: str, expression: str, at: int) -> None:
        shown = expression[:SHOWN_MAX] + "…" * (len(expression) > SHOWN_MAX)
        super().__init__(f"{text}, at character {at + 1} of {shown!r}")
        self.position = at + 1


class TokenKind(Enum):
    """What a token is."""

    WORD = "a word"
    SIGN = "a sign"
    NAME = "a name"
    TEXT = "a text"
    WHOLE = "a whole number"
    DECIMAL = "a decimal number"
    END = "the end"


class Token(msgspec.Struct, frozen=True, gc=False):
    """One of them: reserved words are in capitals, everything else as it was written."""

    kind: TokenKind
    text: str
    at: int
    """Where it begins, from 0."""
    stop: int


WORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH",
     "ENDSWITH"}
)  # fmt: skip
"""They cannot be names."""

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
"""What stands between tokens: blanks, and comments that end."""

_OPEN_COMMENT: Final = re.compile(r"--[^\n\r]*\Z")
"""A comment that ends with the expression: the genuine grammar takes it for two minus signs."""


class Tokens:
    """The tokens of one expression, found as they are asked for.

    With `genuine` as the genuine lexer finds them; else a comment may end with the expression.
    """

    def __init__(self, expression: str, *, genuine: bool = False) -> None:
        self.expression = expression
        self._genuine = genuine
        self._at = 0
        self._waiting: list[Token] = []
        if len(expression) > SIZE_MAX:
            raise self.error(f"{len(expression)} characters are too many: {SIZE_MAX} are allowed")

    def error(self, text: str, at: int = 0) -> ExpressionError:
        """What is wrong with the expression, and where."""
        return ExpressionError(text, self.expression, at)

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one behind it; it stays there."""
        while len(self._waiting) <= ahead:
            self._waiting.append(self._find())
        return self._waiting[ahead]

    def take(self) -> Token:
        """The next token."""
        token = self.peek()
        del self._waiting[0]
        return token

    def is_next(self, *texts: str) -> bool:
        """Whether the next token is one of these words or signs."""
        token = self.peek()
        return token.kind in (TokenKind.WORD, TokenKind.SIGN) and token.text in texts

    def accept(self, *texts: str) -> Token | None:
        """The next token, taken if it is one of these words or signs."""
        return self.take() if self.is_next(*texts) else None

    def _find(self) -> Token:
        at = self._skip()
        if at == len(self.expression):
            return Token(TokenKind.END, "", at, at)
        found = _TOKEN.match(self.expression, at)
        if found is None:
            raise self.error(_unexpected(self.expression, at), at)
        self._at = found.end()
        kind, text = TokenKind[found.lastgroup or ""], found[0]
        if kind is TokenKind.NAME and text.upper() in WORDS:
            kind, text = TokenKind.WORD, text.upper()
        return Token(kind, text, at, self._at)

    def _skip(self) -> int:
        found = _BETWEEN.match(self.expression, self._at)
        assert found is not None, "nothing at all stands between tokens, too"
        at = found.end()
        if not self._genuine and _OPEN_COMMENT.match(self.expression, at):
            at = len(self.expression)
        self._at = at
        return at


def _unexpected(expression: str, at: int) -> str:
    """What is wrong with a character that begins no token."""
    sign = expression[at]
    hints = {
        "'": "a text that never ends: a ' is missing",
        '"': "texts stand between single quotes, not double ones",
        "!": "unequal is written <>",
    }
    return hints.get(sign, f"{sign!r} has no meaning here")


def content(token: Token) -> str:
    """The text that a TEXT token writes."""
    return token.text[1:-1].replace("''", "'")
