"""Number parsing: a property's text as a number, by Java's rules.

A text that Java cannot parse is an error, so that the message does not match, whatever the rest of
the expression says. Source: Integer.valueOf, Long.valueOf and Double.valueOf as Java documents
them.
"""

import math
import re
from collections.abc import Callable
from typing import Final

from roquet.rules.sql92.syntax_tree import DecimalLiteral, Negative, Node, WholeLiteral

INT_MAX: Final = 2**31 - 1

LONG_MAX: Final = 2**63 - 1

DIGITS_MAX: Final = 19
"""Digits of the longest whole number; a text with more, leading zeros aside, is out of bounds."""

PLAIN_SIZE: Final = 32
"""Most decimal numbers are shorter, and consist of digits and a point."""

DECIMAL_SIZE_MAX: Final = 1_024
"""Characters of a decimal number: a longer one costs too much time to parse."""


class NotComparable(Exception):
    """A property's value that cannot be compared as the expression wants."""


NumberReader = Callable[[str], int | float]
"""Function from text to number; raises NotComparable."""


def whole_reader(bound: int) -> NumberReader:
    """Reader of whole numbers from -bound - 1 to bound."""
    # ASCII digits without a sign are within bounds if there are few enough.
    short = len(str(bound)) - 1

    def read(text: str) -> int:
        if text.isdecimal() and text.isascii() and len(text) <= short:
            return int(text)
        return _unusual_whole(text, bound)

    return read


def _unusual_whole(text: str, bound: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at one UTF-16 unit at a time, so it knows no digits beyond the basic plane.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise NotComparable(f"{text[:40]!r} is not a whole number")
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
    """Parse any number that Java reads as a double, NaN among them."""
    if len(text) < PLAIN_SIZE and text.isascii() and text.replace(".", "", 1).isdecimal():
        return float(text)
    match = _DECIMAL.fullmatch(text) if len(text) <= DECIMAL_SIZE_MAX else None
    if match is None:
        raise NotComparable(f"{text[:40]!r} is not a number")
    value = _from_hex(match["hex"]) if match["hex"] else float(match["word"] or match["plain"])
    return -value if match["sign"] == "-" else value


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def read_nan_as_infinity(text: str) -> float:
    """Parse a decimal number, with NaN as infinity: Java sorts it above all numbers."""
    value = read_decimal(text)
    return math.inf if math.isnan(value) else value


def java_order_key(value: float) -> tuple[float, bool]:
    """Sort key of a double in Java's order: -0.0 below 0.0, and NaN above infinity."""
    if math.isnan(value):
        return math.inf, True
    if value == 0:
        return value, math.copysign(1, value) > 0
    return value, False


class NumberLiteral:
    """A number of the expression, and the reader of texts that are compared with it."""

    __slots__ = ("read", "value")

    def __init__(self, value: int | float, read: NumberReader) -> None:
        self.value = value
        self.read = read

    def __neg__(self) -> "NumberLiteral":
        return NumberLiteral(-self.value, self.read)

    def compared(self, order: Callable[[float, float], bool], other: "NumberLiteral") -> bool:
        """Compare with another number; a whole number is compared with a decimal one as decimal."""
        left, right = self.value, other.value
        if type(left) is not type(right):
            left, right = float(left), float(right)
        return order(left, right)


READ_INT: Final = whole_reader(INT_MAX)
READ_LONG: Final = whole_reader(LONG_MAX)


def number_of(node: Node) -> NumberLiteral | None:
    """Number that a node stands for in every message; None if there is none."""
    match node:
        case WholeLiteral(value):
            return NumberLiteral(value, READ_INT if value <= INT_MAX else READ_LONG)
        case DecimalLiteral(value):
            return NumberLiteral(value, read_nan_as_infinity)
        case Negative(of):
            number = number_of(of)
            return None if number is None else -number
        case _:
            return None
