"""Syntax tree of a filter expression, and its text.

Precedence is that of Apache's grammar: OR joins ANDs, AND joins equalities (= and <>), and these
compare the results of <, IN and the like, which apply to numbers, texts and names.
"""

from typing import Final

import msgspec


class PropertyRef(msgspec.Struct, frozen=True):
    """A property of the message by name: a text, or nothing."""

    name: str


class TextLiteral(msgspec.Struct, frozen=True):
    """A text of the expression."""

    value: str


class WholeLiteral(msgspec.Struct, frozen=True):
    """A whole number of the expression."""

    value: int


class DecimalLiteral(msgspec.Struct, frozen=True):
    """A number of the expression with a point or an exponent."""

    value: float


class TruthLiteral(msgspec.Struct, frozen=True):
    """TRUE, FALSE or, as None, NULL."""

    value: bool | None


class Negative(msgspec.Struct, frozen=True):
    """A minus sign: the negative of a number, nothing for everything else."""

    of: "Node"


class Not(msgspec.Struct, frozen=True):
    """NOT: true for false and false for true."""

    of: "Node"


class And(msgspec.Struct, frozen=True):
    """AND: true if all of two or more parts are true."""

    parts: tuple["Node", ...]


class Or(msgspec.Struct, frozen=True):
    """OR: true if one of two or more parts is true."""

    parts: tuple["Node", ...]


class Equal(msgspec.Struct, frozen=True):
    """= or, inverse, <>."""

    left: "Node"
    right: "Node"
    inverse: bool = False


class Comparison(msgspec.Struct, frozen=True):
    """<, <=, > or >=, which compare only numbers."""

    left: "Node"
    sign: str
    right: "Node"


class Between(msgspec.Struct, frozen=True):
    """BETWEEN with both ends included; inverse: NOT BETWEEN."""

    value: "Node"
    low: "Node"
    high: "Node"
    inverse: bool = False


class InList(msgspec.Struct, frozen=True):
    """IN or, inverse, NOT IN."""

    property: PropertyRef
    values: tuple[str, ...]
    inverse: bool = False


class IsNull(msgspec.Struct, frozen=True):
    """IS NULL or, inverse, IS NOT NULL."""

    value: "Node"
    inverse: bool = False


class TextMatch(msgspec.Struct, frozen=True):
    """CONTAINS, STARTSWITH, ENDSWITH or, inverse, their NOT forms."""

    value: "Node"
    word: str
    sought: str
    inverse: bool = False


Node = (
    PropertyRef | TextLiteral | WholeLiteral | DecimalLiteral | TruthLiteral | Negative | Not
    | And | Or | Equal | Comparison | Between | InList | IsNull | TextMatch
)  # fmt: skip

BOOLEAN: Final = (TruthLiteral, Not, And, Or, Equal, Comparison, Between, InList, IsNull, TextMatch)
"""Nodes that are true, false or unknown."""


def term_count(node: Node) -> int:
    """Number of names and values: the greatest cost of evaluating one message."""
    match node:
        case And(parts) | Or(parts):
            return sum([term_count(part) for part in parts])
        case Equal(left, right) | Comparison(left, _, right):
            return term_count(left) + term_count(right)
        case Between(value, low, high):
            return 2 * term_count(value) + term_count(low) + term_count(high)
        case Not(of) | Negative(of) | IsNull(of) | TextMatch(of):
            return term_count(of)
        case _:
            return 1
