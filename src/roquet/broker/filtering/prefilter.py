"""Prefilter: finds the records of a block that may match an expression, without decoding each.

    records    │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │
    search     │   │   │ x │   │ x │   │   the rarest text that a match contains, in the whole block
    pattern    │.  │.  │.  │.  │.  │.  │   or one pattern, tried on the properties of each record

The pattern is for expressions without a rare text: most records contain it, or a property must be
absent.
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
"""Records at the start of a block from which the share of matches is estimated."""

SEARCH_RATIO: Final = 4
"""If one of this many records contains the rarest text, searching is not worth it."""

PATTERN_RATIO: Final = 2
"""If one of this many records matches the pattern, the pattern is not worth its cost."""

PATTERN_TERMS_MAX: Final = 6
"""Most conditions of a pattern: each costs a quarter of an exact match."""

AlternativePatterns = tuple[re.Pattern[bytes], ...]
"""Patterns, by property, of which each match contains at least one. Each begins with the literal
name, which is searched as quickly as bytes can be."""


class Prefilter(msgspec.Struct, frozen=True, gc=False):
    """Conditions that every match of an expression meets."""

    patterns: tuple[AlternativePatterns, ...]
    match_pattern: re.Pattern[bytes] | None
    """Matches at the start of the properties of each message that may match; None is not used."""

    def candidates(self, block: bytes, edges: Sequence[int]) -> Sequence[int]:
        """Indexes of the records that may match. `edges`: their starts, and the end of the last."""
        count = len(edges) - 1
        sample = min(count, SAMPLE_COUNT)
        if self.patterns:
            alternatives = self._rarest(block, edges[sample])
            if _hits(alternatives, block, edges[sample]) * SEARCH_RATIO <= sample:
                return _record_indexes(alternatives, block, edges)
        if self.match_pattern is None:
            return range(count)
        passed = _match_records(self.match_pattern, block, edges[: sample + 1])
        if len(passed) * PATTERN_RATIO > sample:
            return range(count)
        return passed if sample == count else _match_records(self.match_pattern, block, edges)

    def _rarest(self, block: bytes, stop: int) -> AlternativePatterns:
        if len(self.patterns) == 1:
            return self.patterns[0]
        return min(self.patterns, key=lambda alternatives: _hits(alternatives, block, stop))


def _match_records(
    match_pattern: re.Pattern[bytes], block: bytes, edges: Sequence[int]
) -> list[int]:
    begins = property_positions(block, edges)
    passed = map(match_pattern.match, repeat(block), begins, edges[1:])
    return list(compress(range(len(begins)), passed))


def _hits(alternatives: AlternativePatterns, block: bytes, stop: int) -> int:
    return sum([sum(1 for _ in pattern.finditer(block, 0, stop)) for pattern in alternatives])


def _record_indexes(
    alternatives: AlternativePatterns, block: bytes, edges: Sequence[int]
) -> list[int]:
    places = [match.start() for pattern in alternatives for match in pattern.finditer(block)]
    return sorted({bisect_right(edges, at) - 1 for at in places})


# -- made from an expression ------------------------------------------------------------------


def build_prefilter(node: sql92.Node) -> Prefilter:
    """The prefilter of an expression."""
    requirement = sql92.requirement(node)
    patterns = tuple(
        [
            _alternative_patterns(alternatives)
            for alternatives in sql92.property_alternatives(requirement)
        ]
    )
    match_pattern = (
        None
        if requirement is None or _size(requirement) > PATTERN_TERMS_MAX
        else _match_pattern(requirement)
    )
    return Prefilter(
        patterns, None if match_pattern is None else re.compile(_bytes(match_pattern), re.DOTALL)
    )


def _alternative_patterns(alternatives: sql92.PropertyAlternatives) -> AlternativePatterns:
    by_name: dict[str, list[str]] = {}
    for required in alternatives:
        by_name.setdefault(required.name, []).append(required.pattern)
    return tuple(
        re.compile(_bytes(f"{re.escape(name)}\x01(?:{'|'.join(patterns)})"))
        for name, patterns in by_name.items()
    )


def _match_pattern(requirement: sql92.Requirement) -> str:
    """A look-ahead for each condition, so that none is tested twice."""
    match requirement:
        case sql92.RequiredProperty(name, pattern):
            return f"(?={_value(name)}(?:{pattern}))"
        case sql92.AbsentProperty(name):
            return f"(?!{_value(name)})"
        case sql92.AllRequired(parts):
            return "".join(map(_match_pattern, parts))
        case sql92.AnyRequired(parts):
            return f"(?={'|'.join(map(_match_pattern, parts))})" if parts else "(?!)"


def _value(name: str) -> str:
    """A pattern up to a property's value: the last one of a name, unless it is empty."""
    return f"(?>(?:.*\x02|){re.escape(name)}\x01(?=[^\x02]))"


def _size(requirement: sql92.Requirement) -> int:
    match requirement:
        case sql92.AllRequired(parts) | sql92.AnyRequired(parts):
            return sum(map(_size, parts))
        case _:
            return 1


def _bytes(pattern: str) -> bytes:
    return pattern.encode("utf-8", "surrogatepass")
