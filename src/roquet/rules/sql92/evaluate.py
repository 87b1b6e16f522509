"""Evaluation: compiles a syntax tree into a function from a message to true, false or unknown.

Unknown (None) results from a missing property. AND is false as soon as one part is, OR true as soon
as one part is; the parts behind it are not evaluated.

    AND   true  ?     false        OR    true  ?     false       NOT
    true  true  ?     false        true  true  true  true        false
    ?     ?     ?     false        ?     true  ?     ?           ?
    false false false false        false true  ?     false       true

How a property is found is up to the caller, who supplies a getter for a name, once, at compile
time.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any as AnyType
from typing import Final, TypeAlias, TypeVar

from roquet.rules.sql92 import syntax_tree as tree
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
"""Value of one property of a message; None if it has none."""

PropertyLookup: TypeAlias = Callable[[str], PropertyGetter[Source]]
"""Function from a property name to its getter."""

Predicate: TypeAlias = Callable[[Source], bool | None]
"""True, false or unknown for a message; raises NotComparable."""

ValueGetter: TypeAlias = Callable[[Source], AnyType]
"""A text, a number, true, false or nothing; the tree says which."""

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
"""The order with its operands exchanged."""

SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = MappingProxyType(
    {"CONTAINS": operator.contains, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}
)


def compile_predicate(node: Node, look: PropertyLookup[Source]) -> Predicate[Source]:  # noqa: PLR0911 - kinds of nodes
    """Compile a tree where a truth value is wanted."""
    match node:
        case tree.And(parts):
            return _and([compile_predicate(part, look) for part in parts])
        case tree.Or(parts):
            return _or([compile_predicate(part, look) for part in parts])
        case tree.Not(of):
            return _not(compile_predicate(of, look))
        case tree.Equal() | tree.IsNull():
            return _equality(node, look)
        case tree.Comparison() | tree.Between() | tree.InList() | tree.TextMatch():
            return _comparison(node, look)
        case tree.TruthLiteral(value):
            return lambda _: value
        case tree.PropertyRef(name):
            return _cast(look(name))
        case _:
            raise AssertionError(f"{node} is neither true nor false")


def _equality(node: tree.Equal | tree.IsNull, look: PropertyLookup[Source]) -> Predicate[Source]:
    match node:
        case tree.Equal(left, right, inverse):
            return _equal(left, right, look, inverse=inverse)
        case tree.IsNull(value, inverse):
            return _is_null(_value(value, look), inverse=inverse)


def _comparison(
    node: tree.Comparison | tree.Between | tree.InList | tree.TextMatch,
    look: PropertyLookup[Source],
) -> Predicate[Source]:
    match node:
        case tree.Comparison(left, sign, right):
            return _ordered(left, ORDERS[sign], right, look)
        case tree.Between(value, low, high, inverse):
            signs = ("<", ">") if inverse else (">=", "<=")
            parts = (tree.Comparison(value, signs[0], low), tree.Comparison(value, signs[1], high))
            return compile_predicate(tree.Or(parts) if inverse else tree.And(parts), look)
        case tree.InList(operand, values, inverse):
            return _in_list(look(operand.name), frozenset(values), inverse=inverse)
        case tree.TextMatch(value, word, sought, inverse):
            return _text_match(_value(value, look), word, sought, inverse=inverse)


def _value(node: Node, look: PropertyLookup[Source]) -> ValueGetter[Source]:
    if (number := number_of(node)) is not None:
        return lambda _: number.value
    match node:
        case tree.PropertyRef(name):
            return look(name)
        case tree.TextLiteral(value):
            return lambda _: value
        case tree.Negative(of):
            return _nothing(_value(of, look))
        case _:
            return compile_predicate(node, look)


def _nothing(value: ValueGetter[Source]) -> ValueGetter[Source]:
    """Value of a minus sign in front of something that is not a number; evaluating it may fail."""

    def nothing(source: Source) -> None:
        value(source)

    return nothing


# -- AND, OR, NOT ----------------------------------------------------------------------------


def _and(parts: Sequence[Predicate[Source]]) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        result: bool | None = True
        for part in parts:
            if not (value := part(source)):
                if value is False:
                    return False
                result = None
        return result

    return test


def _or(parts: Sequence[Predicate[Source]]) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(source)
            if value:
                return True
            if value is None:
                result = None
        return result

    return test


def _not(part: Predicate[Source]) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        value = part(source)
        return None if value is None else not value

    return test


def _cast(get: PropertyGetter[Source]) -> Predicate[Source]:
    """A property by itself: a text is never true, not even `true`."""
    return lambda source: None if get(source) is None else False


# -- equality --------------------------------------------------------------------------------


def _equal(
    left: Node, right: Node, look: PropertyLookup[Source], *, inverse: bool
) -> Predicate[Source]:
    number, other = number_of(right), number_of(left)
    if number is not None and other is not None:
        fixed: bool = other.compared(operator.eq, number) is not inverse
        return lambda _: fixed
    if number is not None:
        return _equals_number(_value(left, look), number, None, inverse=inverse)
    if other is not None:
        # As in Java: a missing value on the right is unequal, one on the left is unknown.
        return _equals_number(_value(right, look), other, inverse, inverse=inverse)
    return _equals_value(_value(left, look), _value(right, look), inverse=inverse)


def _equals_number(
    value: ValueGetter[Source], number: NumberLiteral, missing: bool | None, *, inverse: bool
) -> Predicate[Source]:
    read, wanted = number.read, number.value

    def test(source: Source) -> bool | None:
        operand = value(source)
        if operand is None:
            return missing
        if isinstance(operand, bool):
            return inverse
        return (read(operand) == wanted) is not inverse

    return test


def _equals_value(
    left: ValueGetter[Source], right: ValueGetter[Source], *, inverse: bool
) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        first, second = left(source), right(source)
        if first is None and second is not None:
            return None
        return _is_equal(first, second) is not inverse

    return test


def _is_equal(left: str | bool | None, right: str | bool | None) -> bool:
    if isinstance(left, str) and isinstance(right, bool):
        return (left.lower() == "true") is right
    if isinstance(left, bool) and isinstance(right, str):
        raise NotComparable(f"{right[:40]!r} cannot be compared with TRUE or FALSE in front of it")
    return left == right


def _is_null(value: ValueGetter[Source], *, inverse: bool) -> Predicate[Source]:
    return lambda source: (value(source) is None) is not inverse


# -- order, IN, and text search --------------------------------------------------------------


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
        operand = value(source)
        return None if operand is None else order(read(operand), bound)

    return test


def _ordered_by_value(
    left: ValueGetter[Source], order: OrderFunction, right: ValueGetter[Source]
) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        first = left(source)
        second = None if first is None else right(source)
        if first is None or second is None:
            return None
        return order(java_order_key(read_decimal(first)), java_order_key(read_decimal(second)))

    return test


def _in_list(
    get: PropertyGetter[Source], values: frozenset[str], *, inverse: bool
) -> Predicate[Source]:
    def test(source: Source) -> bool | None:
        value = get(source)
        return None if value is None else (value in values) is not inverse

    return test


def _text_match(
    value: ValueGetter[Source], word: str, sought: str, *, inverse: bool
) -> Predicate[Source]:
    if not sought:
        return lambda _: False
    matches = SEARCHES[word]

    def test(source: Source) -> bool:
        text = value(source)
        return isinstance(text, str) and matches(text, sought) is not inverse

    return test
