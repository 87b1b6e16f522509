"""Signs: which of some records may match an expression, by a search instead of a look at each.

    records   │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │
    a sign    │   │   │ x │   │ x │   │   the rarest that a match shows, searched in all of it
    a screen  │.  │.  │.  │.  │.  │.  │   or one pattern for the properties of each record

The screen is for what has no rare sign: most show it, or something must not be there.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import compress, repeat
from typing import Final

import msgspec

from roquet.rules import sql92
from roquet.wire.records.partial_decode import property_positions

SAMPLE_COUNT: Final = 32
"""Records of a block that tell how many of all are likely to show something."""

SEARCH_RATIO: Final = 4
"""If one of so many records shows a sign, signs are not worth searching."""

PATTERN_RATIO: Final = 2
"""If one of so many records passes, the screen is not worth its price."""

PATTERN_TERMS_MAX: Final = 6
"""Things that a screen asks for: each costs a quarter of a closer look."""

AlternativePatterns = tuple[re.Pattern[bytes], ...]
"""Signs one of which a match shows, by property. Each begins with a name, which is searched as
quickly as bytes can be."""


class Prefilter(msgspec.Struct, frozen=True, gc=False):
    """What an expression's matches show."""

    ways: tuple[AlternativePatterns, ...]
    screen: re.Pattern[bytes] | None
    """Matches at the begin of the properties of each message that may match."""

    def candidates(self, block: bytes, edges: Sequence[int]) -> Sequence[int]:
        """The numbers of those records that may match. Edges: their begins, and the last end."""
        count = len(edges) - 1
        sample = min(count, SAMPLE_COUNT)
        if self.ways:
            way = self._rarest(block, edges[sample])
            if _hits(way, block, edges[sample]) * SEARCH_RATIO <= sample:
                return _numbers(way, block, edges)
        if self.screen is None:
            return range(count)
        passed = _screened(self.screen, block, edges[: sample + 1])
        if len(passed) * PATTERN_RATIO > sample:
            return range(count)
        return passed if sample == count else _screened(self.screen, block, edges)

    def _rarest(self, block: bytes, stop: int) -> AlternativePatterns:
        if len(self.ways) == 1:
            return self.ways[0]
        return min(self.ways, key=lambda way: _hits(way, block, stop))


def _screened(screen: re.Pattern[bytes], block: bytes, edges: Sequence[int]) -> list[int]:
    begins = property_positions(block, edges)
    passed = map(screen.match, repeat(block), begins, edges[1:])
    return list(compress(range(len(begins)), passed))


def _hits(way: AlternativePatterns, block: bytes, stop: int) -> int:
    return sum([sum(1 for _ in pattern.finditer(block, 0, stop)) for pattern in way])


def _numbers(way: AlternativePatterns, block: bytes, edges: Sequence[int]) -> list[int]:
    places = [found.start() for pattern in way for found in pattern.finditer(block)]
    return sorted({bisect_right(edges, at) - 1 for at in places})


# -- made of what an expression asks for -----------------------------------------------------


def build_prefilter(node: sql92.Node) -> Prefilter:
    """What matches of this expression show."""
    shown = sql92.requirement(node)
    ways = tuple([_way(way) for way in sql92.property_alternatives(shown)])
    screen = None if shown is None or _size(shown) > PATTERN_TERMS_MAX else _screen(shown)
    return Prefilter(ways, None if screen is None else re.compile(_bytes(screen), re.DOTALL))


def _way(signs: sql92.PropertyAlternatives) -> AlternativePatterns:
    by_name: dict[str, list[str]] = {}
    for sign in signs:
        by_name.setdefault(sign.name, []).append(sign.pattern)
    return tuple(
        re.compile(_bytes(f"{re.escape(name)}\x01(?:{'|'.join(patterns)})"))
        for name, patterns in by_name.items()
    )


def _screen(shown: sql92.Requirement) -> str:
    """A look ahead for each thing that is asked for, so that none is looked for again."""
    match shown:
        case sql92.RequiredProperty(name, pattern):
            return f"(?={_value(name)}(?:{pattern}))"
        case sql92.AbsentProperty(name):
            return f"(?!{_value(name)})"
        case sql92.AllRequired(parts):
            return "".join(map(_screen, parts))
        case sql92.AnyRequired(parts):
            return f"(?={'|'.join(map(_screen, parts))})" if parts else "(?!)"


def _value(name: str) -> str:
    """Up to a property's value: of two with one name the last one, and none that is empty."""
    return f"(?>(?:.*\x02|){re.escape(name)}\x01(?=[^\x02]))"


def _size(shown: sql92.Requirement) -> int:
    match shown:
        case sql92.AllRequired(parts) | sql92.AnyRequired(parts):
            return sum(map(_size, parts))
        case _:
            return 1


def _bytes(pattern: str) -> bytes:
    return pattern.encode("utf-8", "surrogatepass")
