"""A filter expression as a tree of values, and its text again.

Everything here is as the genuine grammar reads it: OR joins what AND joins, AND joins what = and <>
compare, and these compare what <, IN and the like make of numbers, texts and names.
"""

from typing import Final

import msgspec


class Property(msgspec.Struct, frozen=True):
    """The value that a message has under a name: a text, or nothing."""

    name: str


class Text(msgspec.Struct, frozen=True):
    """A text that was written down."""

    value: str


class Whole(msgspec.Struct, frozen=True):
    """A whole number."""

    value: int


class Decimal(msgspec.Struct, frozen=True):
    """A number with a point or an exponent."""

    value: float


class Truth(msgspec.Struct, frozen=True):
    """TRUE, FALSE or, as None, NULL."""

    value: bool | None


class Negated(msgspec.Struct, frozen=True):
    """A minus sign: the number the other way round, nothing for everything else."""

    of: "Node"


class Not(msgspec.Struct, frozen=True):
    """True for false and false for true."""

    of: "Node"


class All(msgspec.Struct, frozen=True):
    """AND: two or more that must be true."""

    parts: tuple["Node", ...]


class Any(msgspec.Struct, frozen=True):
    """OR: two or more one of which must be true."""

    parts: tuple["Node", ...]


class Equal(msgspec.Struct, frozen=True):
    """= or, inverse, <>."""

    left: "Node"
    right: "Node"
    inverse: bool = False


class Ordered(msgspec.Struct, frozen=True):
    """<, <=, > or >=, which compare numbers alone."""

    left: "Node"
    sign: str
    right: "Node"


class Between(msgspec.Struct, frozen=True):
    """BETWEEN, both ends included; inverse: NOT BETWEEN."""

    value: "Node"
    low: "Node"
    high: "Node"
    inverse: bool = False


class Among(msgspec.Struct, frozen=True):
    """IN or, inverse, NOT IN."""

    property: Property
    values: tuple[str, ...]
    inverse: bool = False


class Missing(msgspec.Struct, frozen=True):
    """IS NULL or, inverse, IS NOT NULL."""

    value: "Node"
    inverse: bool = False


class Holds(msgspec.Struct, frozen=True):
    """CONTAINS, STARTSWITH, ENDSWITH or, inverse, their NOT forms."""

    value: "Node"
    word: str
    sought: str
    inverse: bool = False


Node = (
    Property | Text | Whole | Decimal | Truth | Negated | Not | All | Any | Equal | Ordered
    | Between | Among | Missing | Holds
)  # fmt: skip

BOOLEAN: Final = (Truth, Not, All, Any, Equal, Ordered, Between, Among, Missing, Holds)
"""What is true, false or unknown by itself."""

CONSTANT: Final = (Text, Whole, Decimal, Truth)
"""What was written down."""


def term_count(node: Node) -> int:
    """Names and values in it: what a look at one message costs at most."""
    match node:
        case All(parts) | Any(parts):
            return sum([term_count(part) for part in parts])
        case Equal(left, right) | Ordered(left, _, right):
            return term_count(left) + term_count(right)
        case Between(value, low, high):
            return 2 * term_count(value) + term_count(low) + term_count(high)
        case Not(of) | Negated(of) | Missing(of) | Holds(of):
            return term_count(of)
        case _:
            return 1


OR, AND, EQUAL, COMPARE, UNARY = range(5)
"""How closely a node holds its parts together, the loosest first."""


def text(node: Node, within: int = OR) -> str:
    """The node as it may be written, in brackets where it stands within something closer."""
    level, written = _written(node)
    return f"({written})" if level < within else written


def _written(node: Node) -> tuple[int, str]:  # noqa: PLR0911 - kinds of nodes
    match node:
        case Any(parts):
            return OR, " OR ".join([text(part, AND) for part in parts])
        case All(parts):
            return AND, " AND ".join([text(part, EQUAL) for part in parts])
        case Equal(left, right, inverse):
            sign = "<>" if inverse else "="
            return EQUAL, f"{text(left, COMPARE)} {sign} {text(right, COMPARE)}"
        case Missing(value, inverse):
            return EQUAL, f"{text(value, COMPARE)} IS {'NOT ' * inverse}NULL"
        case Not(of):
            return EQUAL, f"NOT {text(of, UNARY)}"  # else = would seem to compare what follows
        case Negated(of):
            return UNARY, f"- {text(of, UNARY)}"
        case Ordered() | Between() | Among() | Holds():
            return COMPARE, _compared(node)
        case _:
            return UNARY, _leaf(node)


def _compared(node: Ordered | Between | Among | Holds) -> str:
    match node:
        case Ordered(left, sign, right):
            return f"{text(left, UNARY)} {sign} {text(right, UNARY)}"
        case Between(value, low, high, inverse):
            ends = f"{text(low, UNARY)} AND {text(high, UNARY)}"
            return f"{text(value, UNARY)} {'NOT ' * inverse}BETWEEN {ends}"
        case Among(found, values, inverse):
            return f"{found.name} {'NOT ' * inverse}IN ({', '.join(map(_quoted, values))})"
        case Holds(value, word, sought, inverse):
            return f"{text(value, UNARY)} {'NOT ' * inverse}{word} {_quoted(sought)}"


def _leaf(node: Property | Text | Whole | Decimal | Truth) -> str:
    match node:
        case Property(name):
            return name
        case Text(value):
            return _quoted(value)
        case Truth(value):
            return "NULL" if value is None else str(value).upper()
        case Whole(value) | Decimal(value):
            return repr(value)


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
