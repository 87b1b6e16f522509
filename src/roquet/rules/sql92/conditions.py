"""Conditions: an expression as AND and OR of conditions that look at one property each.

    NOT (region IS NOT NULL AND amount <> 42)      the expression
         region IS NULL     OR  amount =  42       its conditions: NOT has changed their outcomes

Compiled code evaluates conditions on stored bytes; `evaluate` is the specification of the result.
Expressions that compare properties with each other, or results of comparisons, have no such form.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from roquet.rules.sql92 import syntax_tree as tree
from roquet.rules.sql92.number_parsing import (
    READ_INT,
    READ_LONG,
    NumberReader,
    number_of,
    read_nan_as_infinity,
)
from roquet.rules.sql92.syntax_tree import Node

Outcome: TypeAlias = bool | None
"""True, false or unknown."""


class PropertyCondition(msgspec.Struct, frozen=True):
    """A condition on the value of one property.

    kind          operand           holds if the value
    =             bytes             is this text, in UTF-8
    IN            set of bytes      is one of these texts
    STARTSWITH    bytes, maybe b""  starts with this text; likewise ENDSWITH, CONTAINS
    INT           low, high         is in this closed interval, read as an int
    LONG, DOUBLE  low, high         likewise
    """

    name: str
    kind: str
    operand: bytes | frozenset[bytes] | tuple[float, float]
    outcomes: tuple[Outcome, Outcome, Outcome]
    """Of a message without the property, of one with another value, of one with such a value."""


class Connective(msgspec.Struct, frozen=True):
    """AND, or else OR, of parts that are evaluated in their order until one decides."""

    is_and: bool
    parts: tuple["Conditions", ...]


Conditions: TypeAlias = PropertyCondition | Connective

_KINDS: Final[Mapping[NumberReader, str]] = MappingProxyType(
    {READ_INT: "INT", READ_LONG: "LONG", read_nan_as_infinity: "DOUBLE"}
)


def conditions_of(node: Node, *, inverse: bool = False) -> Conditions | None:
    """The conditions of a tree, or of NOT that tree; None if it has none."""
    match node:
        case tree.Not(of):
            return conditions_of(of, inverse=not inverse)
        case tree.And(parts) | tree.Or(parts):
            found = [conditions_of(part, inverse=inverse) for part in parts]
            known = tuple([part for part in found if part is not None])
            is_and = isinstance(node, tree.And) is not inverse
            return Connective(is_and, known) if len(known) == len(found) else None
        case _:
            condition = _condition(node)
    if condition is None or not inverse:
        return condition
    absent, fails, holds = [None if one is None else not one for one in condition.outcomes]
    return msgspec.structs.replace(condition, outcomes=(absent, fails, holds))


def _condition(node: Node) -> PropertyCondition | None:  # noqa: PLR0911 - kinds of nodes
    match node:
        case tree.Equal(tree.PropertyRef(name), tree.TextLiteral(value), inverse):
            return _text(name, "=", (value,), (None, inverse, not inverse))
        case tree.Equal(tree.PropertyRef(name), number, inverse):
            return _number(name, number, number, inverse=inverse)
        case tree.Between(tree.PropertyRef(name), low, high, inverse):
            return _number(name, low, high, inverse=inverse)
        case tree.Comparison(tree.PropertyRef(name), sign, number):
            # a < 5 is a outside of [5, inf], a <= 5 is a in [-inf, 5]
            ends = (True, False) if sign in ("<", ">=") else (False, True)
            return _number(name, number, number, ends, inverse=sign in ("<", ">"))
        case tree.InList(tree.PropertyRef(name), values, inverse):
            return _text(name, "IN", values, (None, inverse, not inverse))
        case tree.IsNull(tree.PropertyRef(name), inverse):
            return _text(name, "STARTSWITH", ("",), (not inverse, inverse, inverse))
        case tree.TextMatch(tree.PropertyRef(name), word, sought, inverse) if sought:
            return _text(name, word, (sought,), (False, inverse, not inverse))
        case _:
            return None


def _text(
    name: str, kind: str, texts: tuple[str, ...], outcomes: tuple[Outcome, Outcome, Outcome]
) -> PropertyCondition | None:
    """None for texts that bytes which are no UTF-8 would equal, too: these are read as U+FFFD."""
    try:
        encoded = [text.encode() for text in texts if "\ufffd" not in text]
    except UnicodeEncodeError:
        return None
    if len(encoded) < len(texts):
        return None
    operand = frozenset(encoded) if kind == "IN" else encoded[0]
    return PropertyCondition(name, kind, operand, outcomes)


def _number(
    name: str, low: Node, high: Node, ends: tuple[bool, bool] = (True, True), *, inverse: bool
) -> PropertyCondition | None:
    """None if a bound is no number, or they are numbers of two kinds; `ends` are those it has."""
    least, most = number_of(low), number_of(high)
    if least is None or most is None or least.read is not most.read:
        return None
    interval = least.value if ends[0] else -math.inf, most.value if ends[1] else math.inf
    return PropertyCondition(name, _KINDS[least.read], interval, (None, inverse, not inverse))
