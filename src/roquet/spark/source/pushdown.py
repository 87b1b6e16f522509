"""Pushdown: what a query's conditions leave of a read.

Only less is read; Spark looks at every row once more. So a condition that is not understood does no
harm, and one on time may be taken roughly.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from roquet.model.subscription import ALL
from roquet.spark.offset_spec import OffsetLookup
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import OffsetRange

SLACK_MS: Final = 10_000
"""A broker's clock may have been set back: messages near the edge of a time are read as well."""


class PushedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of one column: some values, or all from one to another, both included."""

    values: frozenset[Any] | None = None
    low: float = -math.inf
    high: float = math.inf

    def joined(self, other: "PushedFilter") -> "PushedFilter":
        """What both want."""
        both = [found for found in (self.values, other.values) if found is not None]
        return PushedFilter(
            values=frozenset.intersection(*both) if both else None,
            low=max(self.low, other.low),
            high=min(self.high, other.high),
        )

    def takes(self, value: Any) -> bool:
        """Whether a value is wanted."""
        return self.values is None or value in self.values


class PushedFilters(msgspec.Struct, frozen=True):
    """What is wanted of each column that a read can be narrowed by."""

    by_column: dict[str, PushedFilter]

    def of(self, column: str) -> PushedFilter:
        """What is wanted of one."""
        return self.by_column.get(column, _ANY)


_ANY: Final = PushedFilter()
NO_FILTERS: Final = PushedFilters({})

_NUMBERS: Final = frozenset({"queue_id", "queue_offset"})
_STRINGS: Final = frozenset({"topic", "broker", "tag"})
_TIMES: Final = frozenset({"stored_at"})


def pushed_filters(filters: Iterable[Filter]) -> PushedFilters:
    """What Spark's conditions, which hold all together, want."""
    found: dict[str, PushedFilter] = {}
    for condition in filters:
        column, wish = _pushed_filter(condition)
        if wish is not None:
            found[column] = found.get(column, _ANY).joined(wish)
    return PushedFilters(found)


def with_tags(settings: SourceOptions, wanted: PushedFilters) -> SourceOptions:
    """The read with its tags lessened; as it was where a broker cannot be asked so."""
    values = wanted.of("tag").values
    if values is None or settings.sql92 is not None or not all(map(_is_plain, values)):
        return settings
    tags = values if settings.tags is None else values & frozenset(settings.tags)
    return msgspec.structs.replace(settings, tags=tuple(sorted(tags)) or settings.tags)


def narrow_ranges(
    pieces: Sequence[OffsetRange], wanted: PushedFilters, asked: OffsetLookup
) -> list[OffsetRange]:
    """What of the pieces can hold rows that are wanted."""
    if any(wish.values == frozenset() for wish in wanted.by_column.values()):
        return []
    found = (_narrow(piece, wanted, asked) for piece in pieces if _may_match(piece, wanted))
    return [piece for piece in found if piece.start < piece.end]


def _may_match(piece: OffsetRange, wanted: PushedFilters) -> bool:
    queue_id = wanted.of("queue_id")
    return (
        wanted.of("topic").takes(piece.topic)
        and wanted.of("broker").takes(piece.broker)
        and queue_id.takes(piece.queue_id)
        and queue_id.low <= piece.queue_id <= queue_id.high
    )


def _narrow(piece: OffsetRange, wanted: PushedFilters, asked: OffsetLookup) -> OffsetRange:
    offsets, times = wanted.of("queue_offset"), wanted.of("stored_at")
    low, high = offsets.low, offsets.high
    if offsets.values is not None:
        low, high = max(low, min(offsets.values)), min(high, max(offsets.values))
    start = piece.start if low == -math.inf else max(piece.start, int(low))
    end = piece.end if high == math.inf else min(piece.end, int(high) + 1)
    if start < end and times.low != -math.inf:
        start = asked.first_since(piece.queue, (start, end), int(times.low) - SLACK_MS)
    if start < end and times.high != math.inf:
        end = asked.first_since(piece.queue, (start, end), int(times.high) + SLACK_MS + 1)
    return piece.cut(start, end)


def _pushed_filter(condition: Filter) -> tuple[str, PushedFilter | None]:
    """The column of a condition, and what it wants; None for what cannot be told beforehand."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    value = getattr(condition, "value", None)
    if len(attribute) != 1 or value is None:
        return "", None
    column = attribute[0]
    if column in _TIMES:
        return column, _time_filter(condition, value)
    values = value if isinstance(condition, In) else [value]
    kind = str if column in _STRINGS else int if column in _NUMBERS else None
    if kind is None or not all(one is None or type(one) is kind for one in values):
        return "", None
    if isinstance(condition, EqualTo | EqualNullSafe | In):
        return column, PushedFilter(values=frozenset(values) - {None})
    return column, _number_filter(condition, value) if kind is int else None


def _number_filter(condition: Filter, value: int) -> PushedFilter | None:
    match condition:
        case GreaterThan():
            return PushedFilter(low=value + 1)
        case GreaterThanOrEqual():
            return PushedFilter(low=value)
        case LessThan():
            return PushedFilter(high=value - 1)
        case LessThanOrEqual():
            return PushedFilter(high=value)
        case _:
            return None


def _time_filter(condition: Filter, value: Any) -> PushedFilter | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    ms = value.timestamp() * 1000
    match condition:
        case EqualTo() | EqualNullSafe():
            return PushedFilter(low=math.floor(ms), high=math.ceil(ms))
        case GreaterThan() | GreaterThanOrEqual():
            return PushedFilter(low=math.floor(ms))
        case LessThan() | LessThanOrEqual():
            return PushedFilter(high=math.ceil(ms))
        case _:
            return None


def _is_plain(tag: str) -> bool:
    """Whether an expression can name this tag."""
    return tag == tag.strip() and tag not in ("", ALL) and "|" not in tag
