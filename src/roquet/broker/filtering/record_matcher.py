"""Record matcher: the records of a block whose properties match an expression."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

from roquet.rules.sql92 import Conditions
from roquet.wire.records.speedups import compiled

RecordMatcher: TypeAlias = Callable[[bytes, Sequence[int], Sequence[int], int], list[int]]
"""Indices of the first matching records, of so many at most.

The arguments are a block of adjacent records, where each one's properties begin, the edges of the
records (one more than records: each ends where the next one begins), and the greatest count.
"""


@compiled
def record_matcher(
    conditions: Conditions | None,  # noqa: ARG001 - for the compiled form
    matches: Callable[[bytes], bool],
) -> RecordMatcher:
    """Matcher of an expression.

    `matches` is the specification. The compiled form evaluates the conditions, and calls `matches`
    only for records with a value that it leaves to it: numbers with an exponent, and faulty ones.
    """

    def matching(
        block: bytes, begins: Sequence[int], edges: Sequence[int], count_max: int
    ) -> list[int]:
        places = enumerate(zip(begins, edges[1:], strict=False))
        return list(islice((n for n, (at, end) in places if matches(block[at:end])), count_max))

    return matching


def decoded_values(properties: bytes) -> dict[bytes, bytes]:
    """The values of encoded properties by name, as `property_finder` finds them one by one."""
    values: dict[bytes, bytes] = {}
    for part in properties.split(b"\x02"):
        name, _, value = part.partition(b"\x01")
        if value:
            values[name] = value
    return values


def decoded_finder(name: str) -> Callable[[dict[bytes, bytes]], str | None]:
    """Finder of one property's value in decoded values."""
    key = name.encode()

    def find(values: dict[bytes, bytes]) -> str | None:
        value = values.get(key)
        return None if value is None else value.decode("utf-8", "replace")

    return find
