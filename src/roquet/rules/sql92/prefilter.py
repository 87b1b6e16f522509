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

from roquet.rules.sql92 import syntax_tree
from roquet.rules.sql92.number_parsing import NumberLiteral, number_of
from roquet.rules.sql92.number_regex import VALUE_END, number_pattern
from roquet.rules.sql92.syntax_tree import Node

PATTERNS_SIZE_MAX: Final = 2_048
"""Characters of all patterns: longer ones take milliseconds to prepare, so that it has to be enough
that a property is there."""

PREFIX_SIZE: Final = 64
"""Characters of a text that make a pattern."""

ALTERNATIVES_MAX: Final = 4
"""Of different names: each is looked for by itself, which costs a tenth of a closer look."""

SETS_MAX: Final = 4
"""Sets of signs that are tried: any of them will do, and the messages say which is the best."""

REPLACEMENT: Final = "\ufffd"
"""What stands in a text for bytes that are no UTF-8: it is not what they are stored as."""


class RequiredProperty(msgspec.Struct, frozen=True):
    """One property, and how its value begins, as a regular expression."""

    name: str
    pattern: str = ""
    """Nothing: it is enough that the property is there."""
    vague: int = 2
    """How many messages are likely to show it: 0 few, 2 most that have the property."""


PropertyAlternatives = tuple[RequiredProperty, ...]


class AbsentProperty(msgspec.Struct, frozen=True):
    """A property that is not there, or has no value."""

    name: str


class AllRequired(msgspec.Struct, frozen=True):
    """All of this is shown."""

    parts: tuple["Requirement", ...]


class AnyRequired(msgspec.Struct, frozen=True):
    """Some of this is shown; of nothing: no message matches."""

    parts: tuple["Requirement", ...]


Requirement = RequiredProperty | AbsentProperty | AllRequired | AnyRequired

_NEVER: Final = AnyRequired(())


def requirement(node: Node) -> Requirement | None:
    """What each message shows for which the tree is true; None: nothing can be said."""
    found = _requirement(node, wanted=True)
    size = sum([len(sign.pattern) for sign in _properties(found)])
    return _without_patterns(found) if found is not None and size > PATTERNS_SIZE_MAX else found


def property_alternatives(found: Requirement | None) -> tuple[PropertyAlternatives, ...]:
    """Sets of signs, the most telling first: whoever matches shows one sign of each set.

    None at all: there is no such set that is small enough.
    """
    return tuple(
        [
            one
            for one in _all_alternatives(found)
            if len({sign.name for sign in one}) <= ALTERNATIVES_MAX
        ]
    )


def _all_alternatives(found: Requirement | None) -> list[PropertyAlternatives]:
    match found:
        case RequiredProperty():
            return [(found,)]
        case AllRequired(parts):
            every = [way for part in parts for way in _all_alternatives(part)]
            return sorted(dict.fromkeys(every), key=_vagueness)[:SETS_MAX]
        case AnyRequired(parts):
            best = [_all_alternatives(part)[:1] for part in parts]
            if not all(best):
                return []
            return [tuple(dict.fromkeys([sign for [way] in best for sign in way]))]
        case _:
            return []


def _vagueness(found: PropertyAlternatives) -> tuple[int, int]:
    return max([sign.vague for sign in found], default=-1), len(found)


def _properties(found: Requirement | None) -> Iterator[RequiredProperty]:
    match found:
        case RequiredProperty():
            yield found
        case AllRequired(parts) | AnyRequired(parts):
            for part in parts:
                yield from _properties(part)
        case _:
            pass


def _without_patterns(found: Requirement) -> Requirement:
    """The same, but it is enough that properties are there."""
    match found:
        case RequiredProperty(name):
            return RequiredProperty(name)
        case AllRequired(parts):
            return AllRequired(tuple(map(_without_patterns, parts)))
        case AnyRequired(parts):
            return AnyRequired(tuple(map(_without_patterns, parts)))
        case _:
            return found


def _requirement(node: Node, *, wanted: bool) -> Requirement | None:  # noqa: PLR0911 - kinds of nodes
    """The same for each message for which it is true, or false; unknown is neither."""
    match node:
        case syntax_tree.Not(of):
            return _requirement(of, wanted=not wanted)
        case syntax_tree.And(parts) | syntax_tree.Or(parts):
            found = [_requirement(part, wanted=wanted) for part in parts]
            return (
                _all_required(found)
                if isinstance(node, syntax_tree.And) is wanted
                else _any_required(found)
            )
        case syntax_tree.TruthLiteral(value):
            return None if value is wanted else _NEVER
        case syntax_tree.PropertyRef(name):
            return _NEVER if wanted else RequiredProperty(name)
        case (
            syntax_tree.Equal()
            | syntax_tree.InList()
            | syntax_tree.TextMatch()
            | syntax_tree.IsNull()
        ):
            return _of_text(node, is_so=node.inverse is not wanted)
        case syntax_tree.Comparison() | syntax_tree.Between():
            return _of_order(node, wanted=wanted)
        case _:
            return None


def _all_required(found: Sequence[Requirement | None]) -> Requirement | None:
    parts = tuple([one for one in found if one is not None])
    return AllRequired(parts) if parts else None


def _any_required(found: Sequence[Requirement | None]) -> Requirement | None:
    parts = tuple([one for one in found if one is not None])
    return AnyRequired(parts) if len(parts) == len(found) else None


# -- of texts --------------------------------------------------------------------------------


def _of_text(
    node: syntax_tree.Equal | syntax_tree.InList | syntax_tree.TextMatch | syntax_tree.IsNull,
    *,
    is_so: bool,
) -> Requirement | None:
    """`is_so`: what the node says without its NOT is true, else it is false."""
    match node:
        case syntax_tree.IsNull(syntax_tree.PropertyRef(name)):
            return AbsentProperty(name) if is_so else RequiredProperty(name)
        case syntax_tree.InList(syntax_tree.PropertyRef(name), values):
            return _one_of(name, values) if is_so else RequiredProperty(name)
        # What is missing holds nothing, nor is it true that it does not: only FALSE is said of it.
        case syntax_tree.TextMatch(syntax_tree.PropertyRef(name), word, sought, inverse) if (
            is_so is not inverse
        ):
            is_start = is_so and word == "STARTSWITH"
            return (
                RequiredProperty(name, _escaped(sought), 0) if is_start else RequiredProperty(name)
            )
        case syntax_tree.Equal(syntax_tree.PropertyRef(name), other) if isinstance(
            other, syntax_tree.CONSTANT
        ):
            return _equal(name, other) if is_so else RequiredProperty(name)
        # A missing property on the right is unequal, one on the left is unknown.
        case syntax_tree.Equal(other, syntax_tree.PropertyRef(name)) if is_so and isinstance(
            other, syntax_tree.CONSTANT
        ):
            return _equal(name, other)
        case _:
            return None


def _equal(name: str, value: Node) -> RequiredProperty:
    match value:
        case syntax_tree.TextLiteral(text):
            return RequiredProperty(name, _text(text), 0)
        case syntax_tree.TruthLiteral(truth) if truth:
            return RequiredProperty(name, "[tT][rR][uU][eE]" + VALUE_END, 1)
        case syntax_tree.WholeLiteral() | syntax_tree.DecimalLiteral():
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
    """The pattern of a text's beginning, as far as it is known how it is stored."""
    return re.escape(value[:PREFIX_SIZE].partition(REPLACEMENT)[0])


# -- of numbers ------------------------------------------------------------------------------

_INVERSE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _of_order(
    node: syntax_tree.Comparison | syntax_tree.Between, *, wanted: bool
) -> Requirement | None:
    match node:
        case syntax_tree.Comparison(syntax_tree.PropertyRef(name), sign, other):
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case syntax_tree.Comparison(other, sign, syntax_tree.PropertyRef(name)):
            sign = _MIRRORED[sign]
            return _ordered(name, sign if wanted else _INVERSE[sign], other)
        case syntax_tree.Between(syntax_tree.PropertyRef(name), low, high, inverse):
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
    """A number with these bounds, if it is written as usual; open: the bounds are not included."""
    first, last = (None if bound is None else bound.value for bound in (least, most))
    pattern = number_pattern(first, last, is_open=is_open)
    return RequiredProperty(name, pattern, 1) if pattern else RequiredProperty(name)
