"""What a message that matches must show: enough to pass over most others without a closer look.

    region = 'eu' AND amount > 990    region eu┤  and  amount 99[1-9]┤ … or with an odd sign
    region = 'eu' OR amount > 990     region eu┤  or   amount 99[1-9]┤ … or with an odd sign
    region IS NULL                    no region
    a = b                             nothing can be said

A sign is a property's name and a pattern at the start of its value; a lack is a property that is
not there. Whoever does not show what the tree asks for does not match; whoever does may match. An
ordinary whole number begins with a digit from 1 to 9, others (-5, 007, those of other scripts) are
let through.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from roquet.rules.sql92 import tree
from roquet.rules.sql92.bounds import END, pattern_of
from roquet.rules.sql92.reading import Number, number_of
from roquet.rules.sql92.tree import Node

PATTERNS_SIZE_MAX: Final = 2_048
"""Characters of all patterns: longer ones take milliseconds to prepare, so that it has to be enough
that a property is there."""

BEGINNING_SIZE: Final = 64
"""Characters of a text that make a pattern."""

SIGNS_MAX: Final = 4
"""Of different names: each is looked for by itself, which costs a tenth of a closer look."""

WAYS_MAX: Final = 4
"""Sets of signs that are tried: any of them will do, and the messages say which is the best."""

REPLACED: Final = "\ufffd"
"""What stands in a text for bytes that are no UTF-8: it is not what they are stored as."""


class Sign(msgspec.Struct, frozen=True):
    """One property, and how its value begins, as a regular expression."""

    name: str
    pattern: str = ""
    """Nothing: it is enough that the property is there."""
    vague: int = 2
    """How many messages are likely to show it: 0 few, 2 most that have the property."""


Signs = tuple[Sign, ...]


class Lack(msgspec.Struct, frozen=True):
    """A property that is not there, or has no value."""

    name: str


class Every(msgspec.Struct, frozen=True):
    """All of this is shown."""

    parts: tuple["Shown", ...]


class Either(msgspec.Struct, frozen=True):
    """Some of this is shown; of nothing: no message matches."""

    parts: tuple["Shown", ...]


Shown = Sign | Lack | Every | Either

_NEVER: Final = Either(())


def shown(node: Node) -> Shown | None:
    """What each message shows for which the tree is true; None: nothing can be said."""
    found = _shown(node, wanted=True)
    size = sum([len(sign.pattern) for sign in _all_signs(found)])
    return _shortened(found) if found is not None and size > PATTERNS_SIZE_MAX else found


def ways(found: Shown | None) -> tuple[Signs, ...]:
    """Sets of signs, the most telling first: whoever matches shows one sign of each set.

    None at all: there is no such set that is small enough.
    """
    return tuple([one for one in _ways(found) if len({sign.name for sign in one}) <= SIGNS_MAX])


def _ways(found: Shown | None) -> list[Signs]:
    match found:
        case Sign():
            return [(found,)]
        case Every(parts):
            every = [way for part in parts for way in _ways(part)]
            return sorted(dict.fromkeys(every), key=_vagueness)[:WAYS_MAX]
        case Either(parts):
            best = [_ways(part)[:1] for part in parts]
            if not all(best):
                return []
            return [tuple(dict.fromkeys([sign for [way] in best for sign in way]))]
        case _:
            return []


def _vagueness(found: Signs) -> tuple[int, int]:
    return max([sign.vague for sign in found], default=-1), len(found)


def _all_signs(found: Shown | None) -> Iterator[Sign]:
    match found:
        case Sign():
            yield found
        case Every(parts) | Either(parts):
            for part in parts:
                yield from _all_signs(part)
        case _:
            pass


def _shortened(found: Shown) -> Shown:
    """The same, but it is enough that properties are there."""
    match found:
        case Sign(name):
            return Sign(name)
        case Every(parts):
            return Every(tuple(map(_shortened, parts)))
        case Either(parts):
            return Either(tuple(map(_shortened, parts)))
        case _:
            return found


def _shown(node: Node, *, wanted: bool) -> Shown | None:  # noqa: PLR0911 - kinds of nodes
    """The same for each message for which it is true, or false; unknown is neither."""
    match node:
        case tree.Not(of):
            return _shown(of, wanted=not wanted)
        case tree.All(parts) | tree.Any(parts):
            found = [_shown(part, wanted=wanted) for part in parts]
            return _every(found) if isinstance(node, tree.All) is wanted else _either(found)
        case tree.Truth(value):
            return None if value is wanted else _NEVER
        case tree.Property(name):
            return _NEVER if wanted else Sign(name)
        case tree.Equal() | tree.Among() | tree.Holds() | tree.Missing():
            return _of_text(node, is_so=node.inverse is not wanted)
        case tree.Ordered() | tree.Between():
            return _of_order(node, wanted=wanted)
        case _:
            return None


def _every(found: Sequence[Shown | None]) -> Shown | None:
    parts = tuple([one for one in found if one is not None])
    return Every(parts) if parts else None


def _either(found: Sequence[Shown | None]) -> Shown | None:
    parts = tuple([one for one in found if one is not None])
    return Either(parts) if len(parts) == len(found) else None


# -- of texts --------------------------------------------------------------------------------


def _of_text(
    node: tree.Equal | tree.Among | tree.Holds | tree.Missing, *, is_so: bool
) -> Shown | None:
    """`is_so`: what the node says without its NOT is true, else it is false."""
    match node:
        case tree.Missing(tree.Property(name)):
            return Lack(name) if is_so else Sign(name)
        case tree.Among(tree.Property(name), values):
            return _one_of(name, values) if is_so else Sign(name)
        # What is missing holds nothing, nor is it true that it does not: only FALSE is said of it.
        case tree.Holds(tree.Property(name), word, sought, inverse) if is_so is not inverse:
            is_start = is_so and word == "STARTSWITH"
            return Sign(name, _escaped(sought), 0) if is_start else Sign(name)
        case tree.Equal(tree.Property(name), other) if isinstance(other, tree.CONSTANT):
            return _equal(name, other) if is_so else Sign(name)
        # A missing property on the right is unequal, one on the left is unknown.
        case tree.Equal(other, tree.Property(name)) if is_so and isinstance(other, tree.CONSTANT):
            return _equal(name, other)
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
    written = _escaped(value)
    return written + END if written == re.escape(value) else written


def _escaped(value: str) -> str:
    """The pattern of a text's beginning, as far as it is known how it is stored."""
    return re.escape(value[:BEGINNING_SIZE].partition(REPLACED)[0])


# -- of numbers ------------------------------------------------------------------------------

_INVERSE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _of_order(node: tree.Ordered | tree.Between, *, wanted: bool) -> Shown | None:
    match node:
        case tree.Ordered(tree.Property(name), sign, other):
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case tree.Ordered(other, sign, tree.Property(name)):
            sign = _TURNED[sign]
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case tree.Between(tree.Property(name), low, high, inverse):
            if inverse is wanted:
                return Either((_ordered(name, "<", low), _ordered(name, ">", high)))
            return _between(name, number_of(low), number_of(high))
        case _:
            return None


def _ordered(name: str, sign: str, bound: Node) -> Sign:
    number = number_of(bound)
    if sign in ("<", "<="):
        return _between(name, None, number, is_open=sign == "<")
    return _between(name, number, None, is_open=sign == ">")


def _between(
    name: str, least: Number | None, most: Number | None, *, is_open: bool = False
) -> Sign:
    """A number with these bounds, if it is written as usual; open: the bounds are not included."""
    first, last = (None if bound is None else bound.value for bound in (least, most))
    pattern = pattern_of(first, last, is_open=is_open)
    return Sign(name, pattern, 1) if pattern else Sign(name)
