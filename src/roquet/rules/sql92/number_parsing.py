"""How a property's text is read as a number: as Java does it.

What Java cannot read is an error, so that the message does not match, whatever else is asked of it.
(Source: Integer.valueOf, Long.valueOf and Double.valueOf as Java documents them.)
"""

import math
import re
from collections.abc import Callable
from typing import Final

from roquet.rules.sql92.syntax_tree import DecimalLiteral, Negative, Node, WholeLiteral

INT_MAX: Final = 2**31 - 1

LONG_MAX: Final = 2**63 - 1

DIGITS_MAX: Final = 19
"""Of the longest whole number; more of them, but for zeros in front, need not be read."""

PLAIN_SIZE: Final = 32
"""Most decimal numbers are shorter, and have nothing but digits and a point."""

DECIMAL_SIZE_MAX: Final = 1_024
"""Characters of a decimal number: longer ones cost more to read than they are worth."""


class NotComparable(Exception):
    """A property's value that cannot be compared as the expression wants."""


NumberReader = Callable[[str], int | float]
"""Text to number; raises Unsuitable."""


def whole_reader(bound: int) -> NumberReader:
    """Reads whole numbers from -bound - 1 to bound."""
    # Of ordinary numbers, in ASCII and without a sign, the length says that they are in bounds.
    short = len(str(bound)) - 1

    def read(text: str) -> int:
        if text.isdecimal() and text.isascii() and len(text) <= short:
            return int(text)
        return _unusual_whole(text, bound)

    return read


def _unusual_whole(text: str, bound: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at one UTF-16 unit at a time, so it knows no digits beyond the first plane.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise NotComparable(f"{text[:40]!r} is no whole number")
    if not digits.isascii():
        digits = "".join([str(int(digit)) for digit in digits])
    digits = digits.lstrip("0")
    value = int(digits or "0") if len(digits) <= DIGITS_MAX else bound + 2
    value = -value if text[0] == "-" else value
    if not -bound - 1 <= value <= bound:
        raise NotComparable(f"{text[:40]!r} is out of bounds")
    return value


_DECIMAL: Final = re.compile(
    r"""[\x00-\x20]*
    (?P<sign> [+-]? )
    (?: (?P<word> NaN | Infinity )
      | (?P<plain> (?: [0-9]+ (?:\.[0-9]*)? | \.[0-9]+ ) (?:[eE][+-]?[0-9]+)? ) [fFdD]?
      | (?P<hex> 0[xX] (?: [0-9a-fA-F]+ \.? | [0-9a-fA-F]* \.[0-9a-fA-F]+ ) [pP][+-]?[0-9]+ )
        [fFdD]?
    )
    [\x00-\x20]*""",
    re.VERBOSE,
)


def read_decimal(text: str) -> float:
    """Any number that Java reads as a double, NaN among them."""
    if len(text) < PLAIN_SIZE and text.isascii() and text.replace(".", "", 1).isdecimal():
        return float(text)
    found = _DECIMAL.fullmatch(text) if len(text) <= DECIMAL_SIZE_MAX else None
    if found is None:
        raise NotComparable(f"{text[:40]!r} is no number")
    value = _from_hex(found["hex"]) if found["hex"] else float(found["word"] or found["plain"])
    return -value if found["sign"] == "-" else value


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def read_nan_as_infinity(text: str) -> float:
    """The same with NaN as infinity: Java's order has it above all numbers."""
    value = read_decimal(text)
    return math.inf if math.isnan(value) else value


def java_order_key(value: float) -> tuple[float, bool]:
    """Where a double stands in Java's order: -0.0 below 0.0, and NaN above infinity."""
    if math.isnan(value):
        return math.inf, True
    if value == 0:
        return value, math.copysign(1, value) > 0
    return value, False


class NumberLiteral:
    """A number that was written down, and how texts are read that are compared with it."""

    __slots__ = ("read", "value")

    def __init__(self, value: int | float, read: NumberReader) -> None:
        self.value = value
        self.read = read

    def __neg__(self) -> "NumberLiteral":
        return NumberLiteral(-self.value, self.read)

    def compared(self, order: Callable[[float, float], bool], other: "NumberLiteral") -> bool:
        """How it stands to another one: a whole and a decimal number meet as decimal ones."""
        one, two = self.value, other.value
        if type(one) is not type(two):
            one, two = float(one), float(two)
        return order(one, two)


_READ_INT: Final = whole_reader(INT_MAX)
_READ_LONG: Final = whole_reader(LONG_MAX)


def number_of(node: Node) -> NumberLiteral | None:
    """The number that a node stands for, if it does for every message."""
    match node:
        case WholeLiteral(value):
            return NumberLiteral(value, _READ_INT if value <= INT_MAX else _READ_LONG)
        case DecimalLiteral(value):
            return NumberLiteral(value, read_nan_as_infinity)
        case Negative(of):
            found = number_of(of)
            return None if found is None else -found
        case _:
            return None
