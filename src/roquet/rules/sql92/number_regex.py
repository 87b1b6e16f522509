"""Bounds: a pattern for the numbers from one to another, as they are usually written.

    97 to 99    9[7-9]┤
    98 to 120   9[8-9]┤  1[0-1][0-9]┤  120┤
    over 97     [1-9][0-9][0-9]  9[8-9]┤

An ordinary number begins with a digit from 1 to 9. Every other one is let through, and of a decimal
one whatever has such a whole part: 9.5 is over 9.2.
"""

import math
from collections.abc import Iterator
from typing import Final

VALUE_END: Final = r"(?![^\x00\x02])"
"""The value's end: what follows is the end of a property, of everything, or another record, whose
length begins with a zero."""

UNUSUAL_WHOLE: Final = "[^1-9]"
"""How a whole number begins that is written in an unusual way: -5, 007."""

WHOLE_PART_END: Final = "(?![0-9])"

UNUSUAL_DECIMAL: Final = "[^1-9]|[0-9.]+[eE]"
"""The same for decimal numbers, those with an exponent among them."""

BOUND_MAX: Final = 10**15
"""Of a number that makes a pattern: longer ones are seldom, and make long patterns."""

NumberBound = int | float | None


def number_pattern(least: NumberBound, most: NumberBound, *, is_open: bool = False) -> str:
    """Numbers with these bounds; nothing when that says nothing. Open: the bounds are excluded."""
    bounds = [bound for bound in (least, most) if bound is not None]
    is_decimal = any(isinstance(bound, float) for bound in bounds)
    if not bounds or max(map(abs, bounds)) > BOUND_MAX or len(set(map(type, bounds))) > 1:
        return ""
    step = 1 if is_open and not is_decimal else 0
    first = 1 if least is None else max(1, math.floor(least) + step)
    last = None if most is None else math.floor(most) - step
    if first == 1 and last is None:
        return ""
    end = WHOLE_PART_END if is_decimal else VALUE_END
    found = [f"{digits}{end if is_bounded else ''}" for digits, is_bounded in _digits(first, last)]
    return f"(?:{'|'.join([*found, UNUSUAL_DECIMAL if is_decimal else UNUSUAL_WHOLE])})"


def _digits(first: int, last: int | None) -> Iterator[tuple[str, bool]]:
    """Patterns that together are the numbers from `first`, which is not 0, to `last`.

    Told with each: whether no digit may follow.
    """
    if last is None:
        size = len(str(first))
        yield "[1-9]" + _any_digits(size), False
        last = 10**size - 1
    while first <= last:
        # As many as differ in their last digits alone, and so many of these.
        zeros = 0
        while first % 10 ** (zeros + 1) == 0 and first + 10 ** (zeros + 1) - 1 <= last:
            zeros += 1
        unit = 10**zeros
        digit = first // unit % 10
        count = min(10 - digit, (last - first + 1) // unit)
        head = str(first // unit)[:-1]
        one = str(digit) if count == 1 else f"[{digit}-{digit + count - 1}]"
        yield head + one + _any_digits(zeros), True
        first += count * unit


def _any_digits(count: int) -> str:
    return "[0-9]" * count if count < 3 else f"[0-9]{{{count}}}"
