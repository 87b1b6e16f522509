"""What a message that matches must show: enough to pass over most others without a closer look.

    region = 'eu' AND amount > 990    one of   region eu┤
    region = 'eu' OR amount > 990     one of   region eu┤, amount 99[1-9]┤ … or with an odd sign
    region IS NULL                    nothing can be said

A sign is a property's name and a pattern at the start of its value. Whoever shows none of them does
not match; whoever shows one may match. An ordinary whole number begins with a digit from 1 to 9,
others (-5, 007, those of other scripts) are let through.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from roquet.rules.sql92 import tree
from roquet.rules.sql92.reading import Number, number_of
from roquet.rules.sql92.tree import Node

PATTERNS_SIZE_MAX: Final = 2_048
"""Characters of all patterns: longer ones take milliseconds to prepare, so that it has to be enough
that a property is there."""

BEGINNING_SIZE: Final = 64
"""Characters of a text that make a pattern."""

SIGNS_MAX: Final = 4
"""Of different names: each is looked for by itself, which costs a tenth of a closer look."""

END: Final = r"(?![^\x00\x02])"
"""The value's end: what follows is the end of a property, of everything, or another record, whose
length begins with a zero."""

ODD: Final = "[^1-9]"
"""How a whole number begins that is written in an unusual way: -5, 007."""

WHOLE_PART_END: Final = "(?![0-9])"

ODD_DECIMAL: Final = r"[^1-9]|[0-9]+(?:\.[0-9]*)?[eE]"
"""The same for decimal numbers, those with an exponent among them."""

BOUND_MAX: Final = 10**15
"""Of a number that makes a pattern: longer ones are seldom, and make long patterns."""

_WORST: Final = 9


class Sign(msgspec.Struct, frozen=True):
    """One property, and how its value begins, as a regular expression."""

    name: str
    pattern: str = ""
    """Nothing: it is enough that the property is there."""
    vague: int = 2
    """How many messages are likely to show it: 0 few, 2 most that have the property."""


Signs = tuple[Sign, ...]


def signs(node: Node) -> Signs | None:
    """One of these is shown by each message for which the tree is true; None: it cannot be said."""
    found = _signs(node, wanted=True)
    if found is None or len({sign.name for sign in found}) > SIGNS_MAX:
        return None
    if sum([len(sign.pattern) for sign in found]) > PATTERNS_SIZE_MAX:
        return _union([(Sign(sign.name),) for sign in found])
    return found


def _signs(node: Node, *, wanted: bool) -> Signs | None:  # noqa: PLR0911 - kinds of nodes
    """The same for each message for which it is true, or false; unknown is neither."""
    match node:
        case tree.Not(of):
            return _signs(of, wanted=not wanted)
        case tree.All(parts) | tree.Any(parts):
            found = [_signs(part, wanted=wanted) for part in parts]
            return _best(found) if isinstance(node, tree.All) is wanted else _union(found)
        case tree.Truth(value):
            return None if value is wanted else ()
        case tree.Property(name):
            return () if wanted else (Sign(name),)
        case tree.Equal() | tree.Among() | tree.Holds() | tree.Missing():
            return _of_text(node, is_so=node.inverse is not wanted)
        case tree.Ordered() | tree.Between():
            return _of_order(node, wanted=wanted)
        case _:
            return None


def _best(found: Sequence[Signs | None]) -> Signs | None:
    """All of them are shown: those that are shown by the fewest will do."""
    return min(found, key=_vagueness)


def _vagueness(found: Signs | None) -> tuple[int, int]:
    if found is None:
        return _WORST, 0
    return max([sign.vague for sign in found], default=-1), len(found)


def _union(found: Sequence[Signs | None]) -> Signs | None:
    together: list[Sign] = []
    for one in found:
        if one is None:
            return None
        together.extend(one)
    return tuple(dict.fromkeys(together))


# -- of texts --------------------------------------------------------------------------------


def _of_text(
    node: tree.Equal | tree.Among | tree.Holds | tree.Missing, *, is_so: bool
) -> Signs | None:
    """`is_so`: what the node says without its NOT is true, else it is false."""
    match node:
        case tree.Missing(tree.Property(name)) if not is_so:
            return (Sign(name),)
        case tree.Among(tree.Property(name), values):
            return (_one_of(name, values) if is_so else Sign(name),)
        # What is missing holds nothing, nor is it true that it does not: only FALSE is said of it.
        case tree.Holds(tree.Property(name), word, sought, inverse) if is_so is not inverse:
            is_start = is_so and word == "STARTSWITH"
            return (Sign(name, re.escape(sought[:BEGINNING_SIZE]), 0) if is_start else Sign(name),)
        case tree.Equal(tree.Property(name), other) if isinstance(other, tree.CONSTANT):
            return (_equal(name, other) if is_so else Sign(name),)
        # A missing property on the right is unequal, one on the left is unknown.
        case tree.Equal(other, tree.Property(name)) if is_so and isinstance(other, tree.CONSTANT):
            return (_equal(name, other),)
        case _:
            return None


def _equal(name: str, value: Node) -> Sign:
    match value:
        case tree.Text(text):
            return Sign(name, _text(text), 0)
        case tree.Truth(truth) if truth:
            return Sign(name, "[tT][rR][uU][eE]" + END, 1)
        case tree.Whole() | tree.Decimal():
            number = number_of(value)
            assert number is not None
            return _between(name, number, number)
        case _:
            return Sign(name)


def _one_of(name: str, values: Sequence[str]) -> Sign:
    return Sign(name, f"(?:{'|'.join(map(_text, values))})", 0)


def _text(value: str) -> str:
    end = END if len(value) <= BEGINNING_SIZE else ""
    return re.escape(value[:BEGINNING_SIZE]) + end


# -- of numbers ------------------------------------------------------------------------------

_INVERSE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _of_order(node: tree.Ordered | tree.Between, *, wanted: bool) -> Signs | None:
    match node:
        case tree.Ordered(tree.Property(name), sign, other):
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case tree.Ordered(other, sign, tree.Property(name)):
            sign = _TURNED[sign]
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case tree.Between(tree.Property(name), low, high, inverse):
            if inverse is wanted:
                return _union([_ordered(name, "<", low), _ordered(name, ">", high)])
            return (_between(name, number_of(low), number_of(high)),)
        case _:
            return None


def _ordered(name: str, sign: str, bound: Node) -> Signs:
    number = number_of(bound)
    if sign in ("<", "<="):
        return (_between(name, None, number, is_open=sign == "<"),)
    return (_between(name, number, None, is_open=sign == ">"),)


def _between(
    name: str, least: Number | None, most: Number | None, *, is_open: bool = False
) -> Sign:
    """A number with these bounds, if it is written as usual; open: the bounds are not included."""
    bounds = [bound.value for bound in (least, most) if bound is not None]
    is_decimal = any(isinstance(bound, float) for bound in bounds)
    if not bounds or max(map(abs, bounds)) > BOUND_MAX or len(set(map(type, bounds))) > 1:
        return Sign(name)
    # Of a decimal number the whole part tells enough: 9.5 is over 9.2.
    step = 1 if is_open and not is_decimal else 0
    first = 1 if least is None else max(1, math.floor(least.value) + step)
    last = None if most is None else math.floor(most.value) - step
    if first == 1 and last is None:
        return Sign(name)
    end = WHOLE_PART_END if is_decimal else END
    found = [f"{digits}{end if is_bounded else ''}" for digits, is_bounded in _digits(first, last)]
    return Sign(name, f"(?:{'|'.join([*found, ODD_DECIMAL if is_decimal else ODD])})", 1)


def _digits(first: int, last: int | None) -> Iterator[tuple[str, bool]]:
    """Patterns that together are the numbers from `first`, which is not 0, to `last`.

    Told with each: whether no digit may follow.
    """
    if last is None:
        size = len(str(first))
        yield f"[1-9][0-9]{{{size}}}", False
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
        yield f"{head}[{digit}-{digit + count - 1}][0-9]{{{zeros}}}", True
        first += count * unit
