"""A tree becomes a function: a message to true, false or, as None, unknown.

Unknown is what comes of a property that is missing. AND is false as soon as one part is, OR true as
soon as one part is; parts behind that are not looked at.

    AND   true  ?     false        OR    true  ?     false       NOT
    true  true  ?     false        true  true  true  true        false
    ?     ?     ?     false        ?     true  ?     ?           ?
    false false false false        false true  ?     false       true

How a value is found is the caller's: he says what to do for a name, once, when it is compiled.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any as AnyType
from typing import Final, TypeAlias, TypeVar

from roquet.rules.sql92 import syntax_tree
from roquet.rules.sql92.number_parsing import (
    NotComparable,
    NumberLiteral,
    java_order_key,
    number_of,
    read_decimal,
)
from roquet.rules.sql92.syntax_tree import Node

Source = TypeVar("Source")

PropertyGetter: TypeAlias = Callable[[Source], str | None]
"""The value of one property of a message; None when it has none."""

PropertyLookup: TypeAlias = Callable[[str], PropertyGetter[Source]]
"""Given a name, gives what finds its value."""

Predicate: TypeAlias = Callable[[Source], bool | None]
"""True, false or unknown for a message; raises Unsuitable."""

ValueGetter: TypeAlias = Callable[[Source], AnyType]
"""A text, a number, true, false or nothing; which of them, the tree says."""

OrderFunction = Callable[[AnyType, AnyType], bool]

ORDERS: Final[Mapping[str, OrderFunction]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)

MIRRORED: Final[Mapping[OrderFunction, OrderFunction]] = MappingProxyType(
    {
        operator.lt: operator.gt,
        operator.le: operator.ge,
        operator.gt: operator.lt,
        operator.ge: operator.le,
    }
)
"""The same order seen from the other side."""

SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = MappingProxyType(
    {"CONTAINS": operator.contains, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}
)


def compile_predicate(node: Node, look: PropertyLookup[Source]) -> Predicate[Source]:  # noqa: PLR0911 - kinds of nodes
    """The function that a tree stands for where something true or false is wanted."""
    match node:
        case syntax_tree.And(parts):
            return _and([compile_predicate(part, look) for part in parts])
        case syntax_tree.Or(parts):
            return _or([compile_predicate(part, look) for part in parts])
        case syntax_tree.Not(of):
            return _not(compile_predicate(of, look))
        case syntax_tree.Equal() | syntax_tree.IsNull():
            return _equality(node, look)
        case (
            syntax_tree.Comparison()
            | syntax_tree.Between()
            | syntax_tree.InList()
            | syntax_tree.TextMatch()
        ):
            return _comparison(node, look)
        case syntax_tree.TruthLiteral(value):
            return lambda _: value
        case syntax_tree.PropertyRef(name):
            return _cast(look(name))
        case _:
            raise AssertionError(f"{node} is neither true nor false")


def _equality(
    node: syntax_tree.Equal | syntax_tree.IsNull, look: PropertyLookup[Source]
) -> Predicate[Source]:
    match node:
        case syntax_tree.Equal(left, right, inverse):
            return _equal(left, right, look, inverse=inverse)
        case syntax_tree.IsNull(value, inverse):
            return _is_null(_value(value, look), inverse=inverse)


def _comparison(
    node: syntax_tree.Comparison | syntax_tree.Between | syntax_tree.InList | syntax_tree.TextMatch,
    look: PropertyLookup[Source],
) -> Predicate[Source]:
    match node:
        case syntax_tree.Comparison(left, sign, right):
            return _ordered(left, ORDERS[sign], right, look)
        case syntax_tree.Between(value, low, high, inverse):
            signs = ("<", ">") if inverse else (">=", "<=")
            parts = (
                syntax_tree.Comparison(value, signs[0], low),
                syntax_tree.Comparison(value, signs[1], high),
            )
            return compile_predicate(
                syntax_tree.Or(parts) if inverse else syntax_tree.And(parts), look
            )
        case syntax_tree.InList(found, values, inverse):
            return _in_list(look(found.name), frozenset(values), inverse=inverse)
        case syntax_tree.TextMatch(value, word, sought, inverse):
            return _text_match(_value(value, look), word, sought, inverse=inverse)


def _value(node: Node, look: PropertyLookup[Source]) -> ValueGetter[Source]:
    """The function that a tree stands for where any value will do."""
    if (number := number_of(node)) is not None:
        return lambda _: number.value
    match node:
        case syntax_tree.PropertyRef(name):
            return look(name)
        case syntax_tree.TextLiteral(value):
            return lambda _: value
        case syntax_tree.Negative(of):
            return _nothing(_value(of, look))
        case _:
            return compile_predicate(node, look)


def _nothing(value: ValueGetter[Source]) -> ValueGetter[Source]:
    """What a minus sign makes of something that is no number; finding it may fail."""

    def found(source: Source) -> None:
        value(source)

    return found


# -- what joins ------------------------------------------------------------------------------


def _and(parts: Sequence[Predicate[Source]]) -> Predicate[Source]:
    if len(parts) == 2:
        return _and_of_two(*parts)

    def test(source: Source) -> bool | None:
        found: bool | None = True
        for part in parts:
            if not (one := part(source)):
                if one is False:
                    return False
                found = None
        return found

    return test


def _and_of_two(first: Predicate[Source], second: Predicate[Source]) -> Predicate[Source]:
    """AND of two, which most are: without the loop it takes half the time."""

    def test(source: Source) -> bool | None:
        one = first(source)
        if one is False:
            return False
        other = second(source)
        return other if one or other is False else None

    return test


def _or(parts: Sequence[Predicate[Source]]) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        found: bool | None = False
        for part in parts:
            one = part(source)
            if one:
                return True
            if one is None:
                found = None
        return found

    return test


def _not(part: Predicate[Source]) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        found = part(source)
        return None if found is None else not found

    return test


def _cast(get: PropertyGetter[Source]) -> Predicate[Source]:
    """A property by itself: a text is never true, not even `true`."""
    return lambda source: None if get(source) is None else False


# -- what is equal ---------------------------------------------------------------------------


def _equal(
    left: Node, right: Node, look: PropertyLookup[Source], *, inverse: bool
) -> Predicate[Source]:
    number, other = number_of(right), number_of(left)
    if number is not None and other is not None:
        fixed: bool = _equal_numbers(other, number) is not inverse
        return lambda _: fixed
    if number is not None:
        return _equals_number(_value(left, look), number, None, inverse=inverse)
    if other is not None:
        # Java's order of things: nothing on the right is unequal, nothing on the left unknown.
        return _equals_number(_value(right, look), other, inverse, inverse=inverse)
    if isinstance(left, syntax_tree.PropertyRef) and isinstance(right, syntax_tree.TextLiteral):
        return _equals_text(look(left.name), right.value, inverse=inverse)
    return _equals_value(_value(left, look), _value(right, look), inverse=inverse)


def _equal_numbers(left: NumberLiteral, right: NumberLiteral) -> bool:
    return left.compared(operator.eq, right)


def _equals_number(
    value: ValueGetter[Source], number: NumberLiteral, missing: bool | None, *, inverse: bool
) -> Predicate[Source]:
    read, wanted = number.read, number.value

    def test(source: Source) -> bool | None:
        found = value(source)
        if found is None:
            return missing
        if isinstance(found, bool):
            return inverse
        return (read(found) == wanted) is not inverse

    return test


def _equals_text(get: PropertyGetter[Source], wanted: str, *, inverse: bool) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        found = get(source)
        return None if found is None else (found == wanted) is not inverse

    return test


def _equals_value(
    left: ValueGetter[Source], right: ValueGetter[Source], *, inverse: bool
) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        one, other = left(source), right(source)
        if one is None and other is not None:
            return None
        return _is_equal(one, other) is not inverse

    return test


def _is_equal(one: str | bool | None, other: str | bool | None) -> bool:
    if isinstance(one, str) and isinstance(other, bool):
        return (one.lower() == "true") is other
    if isinstance(one, bool) and isinstance(other, str):
        raise NotComparable(f"{other[:40]!r} cannot be compared with TRUE or FALSE in front of it")
    return one == other


def _is_null(value: ValueGetter[Source], *, inverse: bool) -> Predicate[Source]:
    return lambda source: (value(source) is None) is not inverse


# -- what has an order, and what texts hold --------------------------------------------------


def _ordered(
    left: Node, order: OrderFunction, right: Node, look: PropertyLookup[Source]
) -> Predicate[Source]:
    number, other = number_of(right), number_of(left)
    if number is not None and other is not None:
        fixed = other.compared(order, number)
        return lambda _: fixed
    if number is not None:
        return _ordered_by_number(_value(left, look), order, number)
    if other is not None:
        return _ordered_by_number(_value(right, look), MIRRORED[order], other)
    return _ordered_by_value(_value(left, look), order, _value(right, look))


def _ordered_by_number(
    value: ValueGetter[Source], order: OrderFunction, number: NumberLiteral
) -> Predicate[Source]:
    read, bound = number.read, number.value

    def test(source: Source) -> bool | None:
        found = value(source)
        return None if found is None else order(read(found), bound)

    return test


def _ordered_by_value(
    left: ValueGetter[Source], order: OrderFunction, right: ValueGetter[Source]
) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        one = left(source)
        other = None if one is None else right(source)
        if one is None or other is None:
            return None
        return order(java_order_key(read_decimal(one)), java_order_key(read_decimal(other)))

    return test


def _in_list(
    get: PropertyGetter[Source], values: frozenset[str], *, inverse: bool
) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        found = get(source)
        return None if found is None else (found in values) is not inverse

    return test


def _text_match(
    value: ValueGetter[Source], word: str, sought: str, *, inverse: bool
) -> Predicate[Source]:
    if not sought:
        return lambda _: False
    holds = SEARCHES[word]

    def test(source: Source) -> bool:
        found = value(source)
        return isinstance(found, str) and holds(found, sought) is not inverse

    return test
