"""Prefilter: what every matching message contains, to skip most others without decoding them.

    region = 'eu' AND amount > 990    region eu┤  and  amount 99[1-9]┤ … or an unusual number
    region = 'eu' OR amount > 990     region eu┤  or   amount 99[1-9]┤ … or an unusual number
    region IS NULL                    no region
    a = b                             nothing is known

A required property is a name with a pattern for the start of its value; an absent property must be
missing. A message that lacks a requirement of the tree does not match; a message that meets all of
them may match. A usual whole number begins with a digit from 1 to 9; patterns accept all others
(-5, 007, digits of other scripts).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from roquet.rules.sql92 import syntax_tree as tree
from roquet.rules.sql92.number_parsing import NumberLiteral, number_of
from roquet.rules.sql92.number_regex import VALUE_END, number_pattern
from roquet.rules.sql92.syntax_tree import Node

PATTERNS_SIZE_MAX: Final = 2_048
"""Characters of all patterns: longer ones take milliseconds to compile, so only the presence of the
properties is required then."""

PREFIX_SIZE: Final = 64
"""Characters of a text that are part of a pattern."""

ALTERNATIVES_MAX: Final = 4
"""Different names: each needs a search of its own, at a tenth of the cost of decoding."""

SETS_MAX: Final = 4
"""Sets of alternatives that are tried: any of them suffices, and the messages show which is
best."""

REPLACEMENT: Final = "\ufffd"
"""Replaces bytes in a text that are not UTF-8: the stored bytes are different."""


class RequiredProperty(msgspec.Struct, frozen=True):
    """A property that must be present, and a regular expression for the start of its value."""

    name: str
    pattern: str = ""
    """Empty: the presence of the property suffices."""
    vague: int = 2
    """How many messages are likely to have it: 0 few, 2 most that have the property."""


PropertyAlternatives = tuple[RequiredProperty, ...]


class AbsentProperty(msgspec.Struct, frozen=True):
    """A property that must be missing, or without a value."""

    name: str


class AllRequired(msgspec.Struct, frozen=True):
    """All of these requirements."""

    parts: tuple["Requirement", ...]


class AnyRequired(msgspec.Struct, frozen=True):
    """At least one of these requirements; without any, no message matches."""

    parts: tuple["Requirement", ...]


Requirement = RequiredProperty | AbsentProperty | AllRequired | AnyRequired

_NEVER: Final = AnyRequired(())


def requirement(node: Node) -> Requirement | None:
    """Requirement that each message meets for which the tree is true; None if nothing is known."""
    required = _requirement(node, wanted=True)
    size = sum([len(one.pattern) for one in _properties(required)])
    if required is None or size <= PATTERNS_SIZE_MAX:
        return required
    return _without_patterns(required)


def property_alternatives(required: Requirement | None) -> tuple[PropertyAlternatives, ...]:
    """Sets of required properties, the most selective first: a match has one property of each set.

    Empty if there is no set that is small enough.
    """
    return tuple(
        [
            one
            for one in _all_alternatives(required)
            if len({wanted.name for wanted in one}) <= ALTERNATIVES_MAX
        ]
    )


def _all_alternatives(required: Requirement | None) -> list[PropertyAlternatives]:
    match required:
        case RequiredProperty():
            return [(required,)]
        case AllRequired(parts):
            all_sets = [one for part in parts for one in _all_alternatives(part)]
            return sorted(dict.fromkeys(all_sets), key=_vagueness)[:SETS_MAX]
        case AnyRequired(parts):
            best = [_all_alternatives(part)[:1] for part in parts]
            if not all(best):
                return []
            return [tuple(dict.fromkeys([wanted for [one] in best for wanted in one]))]
        case _:
            return []


def _vagueness(alternatives: PropertyAlternatives) -> tuple[int, int]:
    return max([one.vague for one in alternatives], default=-1), len(alternatives)


def _properties(required: Requirement | None) -> Iterator[RequiredProperty]:
    match required:
        case RequiredProperty():
            yield required
        case AllRequired(parts) | AnyRequired(parts):
            for part in parts:
                yield from _properties(part)
        case _:
            pass


def _without_patterns(required: Requirement) -> Requirement:
    """The requirement with only the presence of properties."""
    match required:
        case RequiredProperty(name):
            return RequiredProperty(name)
        case AllRequired(parts):
            return AllRequired(tuple(map(_without_patterns, parts)))
        case AnyRequired(parts):
            return AnyRequired(tuple(map(_without_patterns, parts)))
        case _:
            return required


def _requirement(node: Node, *, wanted: bool) -> Requirement | None:  # noqa: PLR0911 - kinds of nodes
    """Requirement that each message meets for which the tree is true, or (not `wanted`) false.

    Unknown is neither.
    """
    match node:
        case tree.Not(of):
            return _requirement(of, wanted=not wanted)
        case tree.And(parts) | tree.Or(parts):
            required = [_requirement(part, wanted=wanted) for part in parts]
            is_all = isinstance(node, tree.And) is wanted
            return _all_required(required) if is_all else _any_required(required)
        case tree.TruthLiteral(value):
            return None if value is wanted else _NEVER
        case tree.PropertyRef(name):
            return _NEVER if wanted else RequiredProperty(name)
        case tree.Equal() | tree.InList() | tree.TextMatch() | tree.IsNull():
            return _of_text(node, is_so=node.inverse is not wanted)
        case tree.Comparison() | tree.Between():
            return _of_order(node, wanted=wanted)
        case _:
            return None


def _all_required(required: Sequence[Requirement | None]) -> Requirement | None:
    parts = tuple([one for one in required if one is not None])
    return AllRequired(parts) if parts else None


def _any_required(required: Sequence[Requirement | None]) -> Requirement | None:
    parts = tuple([one for one in required if one is not None])
    return AnyRequired(parts) if len(parts) == len(required) else None


# -- texts -----------------------------------------------------------------------------------


def _of_text(
    node: tree.Equal | tree.InList | tree.TextMatch | tree.IsNull,
    *,
    is_so: bool,
) -> Requirement | None:
    """`is_so`: the node without its NOT is true; otherwise it is false."""
    match node:
        case tree.IsNull(tree.PropertyRef(name)):
            return AbsentProperty(name) if is_so else RequiredProperty(name)
        case tree.InList(tree.PropertyRef(name), values):
            return _one_of(name, values) if is_so else RequiredProperty(name)
        # A missing property neither contains a text nor does NOT CONTAINS match it: it is FALSE.
        case tree.TextMatch(tree.PropertyRef(name), word, sought, inverse) if is_so is not inverse:
            is_start = is_so and word == "STARTSWITH"
            return (
                RequiredProperty(name, _escaped(sought), 0) if is_start else RequiredProperty(name)
            )
        case tree.Equal(tree.PropertyRef(name), other) if isinstance(other, tree.CONSTANT):
            return _equal(name, other) if is_so else RequiredProperty(name)
        # A missing property on the right is unequal, one on the left is unknown.
        case tree.Equal(other, tree.PropertyRef(name)) if is_so and isinstance(
            other, tree.CONSTANT
        ):
            return _equal(name, other)
        case _:
            return None


def _equal(name: str, value: Node) -> RequiredProperty:
    match value:
        case tree.TextLiteral(text):
            return RequiredProperty(name, _text(text), 0)
        case tree.TruthLiteral(truth) if truth:
            return RequiredProperty(name, "[tT][rR][uU][eE]" + VALUE_END, 1)
        case tree.WholeLiteral() | tree.DecimalLiteral():
            number = number_of(value)
            assert number is not None
            return _between(name, number, number)
        case _:
            return RequiredProperty(name)


def _one_of(name: str, values: Sequence[str]) -> RequiredProperty:
    return RequiredProperty(name, f"(?:{'|'.join(map(_text, values))})", 0)


def _text(value: str) -> str:
    written = _escaped(value)
    return written + VALUE_END if written == re.escape(value) else written


def _escaped(value: str) -> str:
    """Pattern of a text's start, as far as it is known how it is stored."""
    return re.escape(value[:PREFIX_SIZE].partition(REPLACEMENT)[0])


# -- numbers ---------------------------------------------------------------------------------

_INVERSE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _of_order(node: tree.Comparison | tree.Between, *, wanted: bool) -> Requirement | None:
    match node:
        case tree.Comparison(tree.PropertyRef(name), sign, other):
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case tree.Comparison(other, sign, tree.PropertyRef(name)):
            sign = _MIRRORED[sign]
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case tree.Between(tree.PropertyRef(name), low, high, inverse):
            if inverse is wanted:
                return AnyRequired((_ordered(name, "<", low), _ordered(name, ">", high)))
            return _between(name, number_of(low), number_of(high))
        case _:
            return None


def _ordered(name: str, sign: str, bound: Node) -> RequiredProperty:
    number = number_of(bound)
    if sign in ("<", "<="):
        return _between(name, None, number, is_open=sign == "<")
    return _between(name, number, None, is_open=sign == ">")


def _between(
    name: str, least: NumberLiteral | None, most: NumberLiteral | None, *, is_open: bool = False
) -> RequiredProperty:
    """A number within bounds, if written as usual; with `is_open` the bounds are exclusive."""
    first, last = (None if bound is None else bound.value for bound in (least, most))
    pattern = number_pattern(first, last, is_open=is_open)
    return RequiredProperty(name, pattern, 1) if pattern else RequiredProperty(name)
