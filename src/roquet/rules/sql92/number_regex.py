"""Regular expressions for ranges of numbers, as numbers are usually written.

    97 to 99    9[7-9]┤
    98 to 120   9[8-9]┤  1[0-1][0-9]┤  120┤
    over 97     [1-9][0-9][0-9]  9[8-9]┤

A usual number begins with a digit from 1 to 9. The patterns match every number that is written in
another way, and every decimal number with a whole part in the range: 9.5 is over 9.2.
"""

import math
from collections.abc import Iterator
from typing import Final

VALUE_END: Final = r"(?![^\x00\x02])"
"""End of a value: the end of a property, of the text, or another record, whose length begins with a
zero."""

UNUSUAL_WHOLE: Final = "[^1-9]"
"""Beginning of a whole number that is written in an unusual way: -5, 007."""

WHOLE_PART_END: Final = "(?![0-9])"

UNUSUAL_DECIMAL: Final = "[^1-9]|[0-9.]+[eE]"
"""Beginning of such a decimal number; those with an exponent are among them."""

BOUND_MAX: Final = 10**15
"""Largest bound for which a pattern is made: larger ones are rare, and make long patterns."""

NumberBound = int | float | None


def number_pattern(least: NumberBound, most: NumberBound, *, is_open: bool = False) -> str:
    """Pattern of numbers within bounds; empty if it would exclude nothing.

    Bounds are inclusive, or exclusive with `is_open`; None is no bound.
    """
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
    branches = [f"{digits}{end if is_last else ''}" for digits, is_last in _digits(first, last)]
    return f"(?:{'|'.join([*branches, UNUSUAL_DECIMAL if is_decimal else UNUSUAL_WHOLE])})"


def _digits(first: int, last: int | None) -> Iterator[tuple[str, bool]]:
    """Patterns that together match the numbers from `first` (at least 1) to `last`.

    Each comes with whether no further digit may follow.
    """
    if last is None:
        size = len(str(first))
        yield "[1-9]" + _any_digits(size), False
        last = 10**size - 1
    while first <= last:
        # A range of numbers that differ in their last digits only, repeated for several digits.
        zeros = 0
        while first % 10 ** (zeros + 1) == 0 and first + 10 ** (zeros + 1) - 1 <= last:
            zeros += 1
        unit = 10**zeros
        digit = first // unit % 10
        count = min(10 - digit, (last - first + 1) // unit)
        head = str(first // unit)[:-1]
        next_digit = str(digit) if count == 1 else f"[{digit}-{digit + count - 1}]"
        yield head + next_digit + _any_digits(zeros), True
        first += count * unit


def _any_digits(count: int) -> str:
    return "[0-9]" * count if count < 3 else f"[0-9]{{{count}}}"
