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


OR, AND, EQUAL, COMPARE, UNARY = range(5)
"""Precedence levels, the loosest first."""


def text(node: Node, within: int = OR) -> str:
    """Text of the node, in brackets if it is within a node of higher precedence."""
    level, written = _written(node)
    return f"({written})" if level < within else written


def _written(node: Node) -> tuple[int, str]:  # noqa: PLR0911 - kinds of nodes
    match node:
        case Or(parts):
            return OR, " OR ".join([text(part, AND) for part in parts])
        case And(parts):
            return AND, " AND ".join([text(part, EQUAL) for part in parts])
        case Equal(left, right, inverse):
            sign = "<>" if inverse else "="
            return EQUAL, f"{text(left, COMPARE)} {sign} {text(right, COMPARE)}"
        case IsNull(value, inverse):
            return EQUAL, f"{text(value, COMPARE)} IS {'NOT ' * inverse}NULL"
        case Not(of):
            return EQUAL, f"NOT {text(of, UNARY)}"  # otherwise = would seem to compare its operand
        case Negative(of):
            return UNARY, f"- {text(of, UNARY)}"
        case Comparison() | Between() | InList() | TextMatch():
            return COMPARE, _comparison_text(node)
        case _:
            return UNARY, _leaf(node)


def _comparison_text(node: Comparison | Between | InList | TextMatch) -> str:
    match node:
        case Comparison(left, sign, right):
            return f"{text(left, UNARY)} {sign} {text(right, UNARY)}"
        case Between(value, low, high, inverse):
            ends = f"{text(low, UNARY)} AND {text(high, UNARY)}"
            return f"{text(value, UNARY)} {'NOT ' * inverse}BETWEEN {ends}"
        case InList(operand, values, inverse):
            return f"{operand.name} {'NOT ' * inverse}IN ({', '.join(map(_quoted, values))})"
        case TextMatch(value, word, sought, inverse):
            return f"{text(value, UNARY)} {'NOT ' * inverse}{word} {_quoted(sought)}"


def _leaf(node: PropertyRef | TextLiteral | WholeLiteral | DecimalLiteral | TruthLiteral) -> str:
    match node:
        case PropertyRef(name):
            return name
        case TextLiteral(value):
            return _quoted(value)
        case TruthLiteral(value):
            return "NULL" if value is None else str(value).upper()
        case WholeLiteral(value) | DecimalLiteral(value):
            return repr(value)


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
