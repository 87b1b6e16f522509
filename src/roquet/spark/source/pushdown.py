"""Filter pushdown: a query's conditions narrow the ranges and tags of a read.

Spark evaluates every condition again. So an unsupported condition is ignored, and one on time may
be applied with a margin.
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

from roquet.lake.queue_offsets import OffsetRange
from roquet.model.subscription import ALL
from roquet.spark.offset_spec import OffsetLookup
from roquet.spark.options import SourceOptions

SLACK_MS: Final = 10_000
"""Margin around times: a broker's clock may have been set back."""


class PushedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one column that match: a set, or a closed interval [low, high]."""

    values: frozenset[Any] | None = None
    low: float = -math.inf
    high: float = math.inf

    def intersect(self, other: "PushedFilter") -> "PushedFilter":
        """The values that match both."""
        value_sets = [values for values in (self.values, other.values) if values is not None]
        return PushedFilter(
            values=frozenset.intersection(*value_sets) if value_sets else None,
            low=max(self.low, other.low),
            high=min(self.high, other.high),
        )

    def may_be(self, value: Any) -> bool:
        """Whether the set of values, if any, holds this one; the interval is not looked at."""
        return self.values is None or value in self.values


class PushedFilters(msgspec.Struct, frozen=True):
    """The filters by column."""

    by_column: dict[str, PushedFilter]

    def of(self, column: str) -> PushedFilter:
        """The filter of a column; one that matches everything when there is none."""
        return self.by_column.get(column, _ANY)


_ANY: Final = PushedFilter()
NO_FILTERS: Final = PushedFilters({})

_NUMBERS: Final = frozenset({"queue_id", "queue_offset"})
_STRINGS: Final = frozenset({"topic", "broker", "tag"})
_TIMES: Final = frozenset({"stored_at"})


def pushed_filters(filters: Iterable[Filter]) -> PushedFilters:
    """The filters that Spark's conditions, joined by AND, amount to."""
    by_column: dict[str, PushedFilter] = {}
    for condition in filters:
        column, column_filter = _pushed_filter(condition)
        if column_filter is not None:
            by_column[column] = by_column.get(column, _ANY).intersect(column_filter)
    return PushedFilters(by_column)


def with_tags(settings: SourceOptions, filters: PushedFilters) -> SourceOptions:
    """The settings with fewer tags; unchanged where brokers cannot filter by them."""
    values = filters.of("tag").values
    if values is None or settings.sql92 is not None or not all(map(_is_plain, values)):
        return settings
    tags = values if settings.tags is None else values & frozenset(settings.tags)
    return msgspec.structs.replace(settings, tags=tuple(sorted(tags)) or settings.tags)


def narrow_ranges(
    ranges: Sequence[OffsetRange], filters: PushedFilters, lookup: OffsetLookup
) -> list[OffsetRange]:
    """The parts of the ranges that can hold matching rows; times are looked up at brokers."""
    if any(column.values == frozenset() for column in filters.by_column.values()):
        return []
    matching = (offset_range for offset_range in ranges if _may_match(offset_range, filters))
    narrowed = (_narrow(offset_range, filters, lookup) for offset_range in matching)
    return [offset_range for offset_range in narrowed if offset_range.start < offset_range.end]


def _may_match(offset_range: OffsetRange, filters: PushedFilters) -> bool:
    queue_id = filters.of("queue_id")
    return (
        filters.of("topic").may_be(offset_range.topic)
        and filters.of("broker").may_be(offset_range.broker)
        and queue_id.may_be(offset_range.queue_id)
        and queue_id.low <= offset_range.queue_id <= queue_id.high
    )


def _narrow(offset_range: OffsetRange, filters: PushedFilters, lookup: OffsetLookup) -> OffsetRange:
    offsets, times = filters.of("queue_offset"), filters.of("stored_at")
    low, high = offsets.low, offsets.high
    if offsets.values is not None:
        low, high = max(low, min(offsets.values)), min(high, max(offsets.values))
    start = offset_range.start if low == -math.inf else max(offset_range.start, int(low))
    end = offset_range.end if high == math.inf else min(offset_range.end, int(high) + 1)
    if start < end and times.low != -math.inf:
        start = lookup.first_since(offset_range.queue, (start, end), int(times.low) - SLACK_MS)
    if start < end and times.high != math.inf:
        end = lookup.first_since(offset_range.queue, (start, end), int(times.high) + SLACK_MS + 1)
    return offset_range.cut(start, end)


def _pushed_filter(condition: Filter) -> tuple[str, PushedFilter | None]:
    """The column of a condition and its filter; None for conditions that cannot be pushed down."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    value = getattr(condition, "value", None)
    if len(attribute) != 1 or value is None:
        return "", None
    column = attribute[0]
    if column in _TIMES:
        return column, _time_filter(condition, value)
    values = value if isinstance(condition, In) else [value]
    kind = str if column in _STRINGS else int if column in _NUMBERS else None
    if kind is None or not all(item is None or type(item) is kind for item in values):
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
    """Whether a tag expression can contain this tag."""
    return tag == tag.strip() and tag not in ("", ALL) and "|" not in tag
