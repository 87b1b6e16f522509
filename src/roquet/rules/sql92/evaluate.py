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

from roquet.rules.sql92 import tree
from roquet.rules.sql92.reading import Number, Unsuitable, number_of, rank, read_decimal
from roquet.rules.sql92.tree import Node

Source = TypeVar("Source")

Get: TypeAlias = Callable[[Source], str | None]
"""The value of one property of a message; None when it has none."""

Look: TypeAlias = Callable[[str], Get[Source]]
"""Given a name, gives what finds its value."""

Test: TypeAlias = Callable[[Source], bool | None]
"""True, false or unknown for a message; raises Unsuitable."""

Value: TypeAlias = Callable[[Source], AnyType]
"""A text, a number, true, false or nothing; which of them, the tree says."""

Order = Callable[[AnyType, AnyType], bool]

ORDERS: Final[Mapping[str, Order]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)

TURNED: Final[Mapping[Order, Order]] = MappingProxyType(
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


def compiled(node: Node, look: Look[Source]) -> Test[Source]:  # noqa: PLR0911 - kinds of nodes
    """The function that a tree stands for where something true or false is wanted."""
    match node:
        case tree.All(parts):
            return _all([compiled(part, look) for part in parts])
        case tree.Any(parts):
            return _any([compiled(part, look) for part in parts])
        case tree.Not(of):
            return _not(compiled(of, look))
        case tree.Equal() | tree.Missing():
            return _equality(node, look)
        case tree.Ordered() | tree.Between() | tree.Among() | tree.Holds():
            return _comparison(node, look)
        case tree.Truth(value):
            return lambda _: value
        case tree.Property(name):
            return _cast(look(name))
        case _:
            raise AssertionError(f"{node} is neither true nor false")


def _equality(node: tree.Equal | tree.Missing, look: Look[Source]) -> Test[Source]:
    match node:
        case tree.Equal(left, right, inverse):
            return _equal(left, right, look, inverse=inverse)
        case tree.Missing(value, inverse):
            return _missing(_value(value, look), inverse=inverse)


def _comparison(
    node: tree.Ordered | tree.Between | tree.Among | tree.Holds, look: Look[Source]
) -> Test[Source]:
    match node:
        case tree.Ordered(left, sign, right):
            return _ordered(left, ORDERS[sign], right, look)
        case tree.Between(value, low, high, inverse):
            signs = ("<", ">") if inverse else (">=", "<=")
            parts = (tree.Ordered(value, signs[0], low), tree.Ordered(value, signs[1], high))
            return compiled(tree.Any(parts) if inverse else tree.All(parts), look)
        case tree.Among(found, values, inverse):
            return _among(look(found.name), frozenset(values), inverse=inverse)
        case tree.Holds(value, word, sought, inverse):
            return _holds(_value(value, look), word, sought, inverse=inverse)


def _value(node: Node, look: Look[Source]) -> Value[Source]:
    """The function that a tree stands for where any value will do."""
    if (number := number_of(node)) is not None:
        return lambda _: number.value
    match node:
        case tree.Property(name):
            return look(name)
        case tree.Text(value):
            return lambda _: value
        case tree.Negated(of):
            return _nothing(_value(of, look))
        case _:
            return compiled(node, look)


def _nothing(value: Value[Source]) -> Value[Source]:
    """What a minus sign makes of something that is no number; finding it may fail."""

    def found(source: Source) -> None:
        value(source)

    return found


# -- what joins ------------------------------------------------------------------------------


def _all(parts: Sequence[Test[Source]]) -> Test[Source]:
    if len(parts) == 2:
        return _both(*parts)

    def test(source: Source) -> bool | None:
        found: bool | None = True
        for part in parts:
            if not (one := part(source)):
                if one is False:
                    return False
                found = None
        return found

    return test


def _both(first: Test[Source], second: Test[Source]) -> Test[Source]:
    """AND of two, which most are: without the loop it takes half the time."""

    def test(source: Source) -> bool | None:
        one = first(source)
        if one is False:
            return False
        other = second(source)
        return other if one or other is False else None

    return test


def _any(parts: Sequence[Test[Source]]) -> Test[Source]:
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


def _not(part: Test[Source]) -> Test[Source]:
    def test(source: Source) -> bool | None:
        found = part(source)
        return None if found is None else not found

    return test


def _cast(get: Get[Source]) -> Test[Source]:
    """A property by itself: a text is never true, not even `true`."""
    return lambda source: None if get(source) is None else False


# -- what is equal ---------------------------------------------------------------------------


def _equal(left: Node, right: Node, look: Look[Source], *, inverse: bool) -> Test[Source]:
    number, other = number_of(right), number_of(left)
    if number is not None and other is not None:
        fixed: bool = _same(other, number) is not inverse
        return lambda _: fixed
    if number is not None:
        return _equals_number(_value(left, look), number, None, inverse=inverse)
    if other is not None:
        # Java's order of things: nothing on the right is unequal, nothing on the left unknown.
        return _equals_number(_value(right, look), other, inverse, inverse=inverse)
    if isinstance(left, tree.Property) and isinstance(right, tree.Text):
        return _equals_text(look(left.name), right.value, inverse=inverse)
    return _equals_value(_value(left, look), _value(right, look), inverse=inverse)


def _same(left: Number, right: Number) -> bool:
    return left.compared(operator.eq, right)


def _equals_number(
    value: Value[Source], number: Number, missing: bool | None, *, inverse: bool
) -> Test[Source]:
    read, wanted = number.read, number.value

    def test(source: Source) -> bool | None:
        found = value(source)
        if found is None:
            return missing
        if isinstance(found, bool):
            return inverse
        return (read(found) == wanted) is not inverse

    return test


def _equals_text(get: Get[Source], wanted: str, *, inverse: bool) -> Test[Source]:
    def test(source: Source) -> bool | None:
        found = get(source)
        return None if found is None else (found == wanted) is not inverse

    return test


def _equals_value(left: Value[Source], right: Value[Source], *, inverse: bool) -> Test[Source]:
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
        raise Unsuitable(f"{other[:40]!r} cannot be compared with TRUE or FALSE in front of it")
    return one == other


def _missing(value: Value[Source], *, inverse: bool) -> Test[Source]:
    return lambda source: (value(source) is None) is not inverse


# -- what has an order, and what texts hold --------------------------------------------------


def _ordered(left: Node, order: Order, right: Node, look: Look[Source]) -> Test[Source]:
    number, other = number_of(right), number_of(left)
    if number is not None and other is not None:
        fixed = other.compared(order, number)
        return lambda _: fixed
    if number is not None:
        return _ordered_by_number(_value(left, look), order, number)
    if other is not None:
        return _ordered_by_number(_value(right, look), TURNED[order], other)
    return _ordered_by_value(_value(left, look), order, _value(right, look))


def _ordered_by_number(value: Value[Source], order: Order, number: Number) -> Test[Source]:
    read, bound = number.read, number.value

    def test(source: Source) -> bool | None:
        found = value(source)
        return None if found is None else order(read(found), bound)

    return test


def _ordered_by_value(left: Value[Source], order: Order, right: Value[Source]) -> Test[Source]:
    def test(source: Source) -> bool | None:
        one = left(source)
        other = None if one is None else right(source)
        if one is None or other is None:
            return None
        return order(rank(read_decimal(one)), rank(read_decimal(other)))

    return test


def _among(get: Get[Source], values: frozenset[str], *, inverse: bool) -> Test[Source]:
    def test(source: Source) -> bool | None:
        found = get(source)
        return None if found is None else (found in values) is not inverse

    return test


def _holds(value: Value[Source], word: str, sought: str, *, inverse: bool) -> Test[Source]:
    if not sought:
        return lambda _: False
    holds = SEARCHES[word]

    def test(source: Source) -> bool:
        found = value(source)
        return isinstance(found, str) and holds(found, sought) is not inverse

    return test
