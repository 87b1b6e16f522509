"""Batch reader: one range of each queue, fixed when the read is planned.

With filter pushdown a query's conditions narrow the ranges and tags of the read. Spark evaluates
every condition again. So an unsupported condition is ignored, and one on time may be applied with a
margin.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from roquet.lake.queue_offsets import OffsetRange
from roquet.log_records import logger
from roquet.model.errors import UsageError
from roquet.model.subscription import ALL
from roquet.spark import offset_spec
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.offset_spec import OffsetLookup
from roquet.spark.options import SourceOptions
from roquet.spark.source import plan
from roquet.spark.source.tasks import check_read, filter_text, plan_tasks, read_task
from roquet.spark.worker_process import entry_point

if TYPE_CHECKING:
    import pyarrow as pa

log = logger(__name__)

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


PushedFilters: TypeAlias = Mapping[str, PushedFilter]
"""The filters by column; a column without one matches everything."""

_ANY: Final = PushedFilter()
NO_FILTERS: Final[PushedFilters] = MappingProxyType({})

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
    return by_column


def with_tags(settings: SourceOptions, filters: PushedFilters) -> SourceOptions:
    """The settings with fewer tags; unchanged where brokers cannot filter by them."""
    values = filters.get("tag", _ANY).values
    if values is None or settings.sql92 is not None or not all(map(_is_plain, values)):
        return settings
    tags = values if settings.tags is None else values & frozenset(settings.tags)
    return msgspec.structs.replace(settings, tags=tuple(sorted(tags)) or settings.tags)


def narrow_ranges(
    ranges: Sequence[OffsetRange], filters: PushedFilters, lookup: OffsetLookup
) -> list[OffsetRange]:
    """The parts of the ranges that can hold matching rows; times are looked up at brokers."""
    if any(column.values == frozenset() for column in filters.values()):
        return []
    matching = (offset_range for offset_range in ranges if _may_match(offset_range, filters))
    narrowed = (_narrow(offset_range, filters, lookup) for offset_range in matching)
    return [offset_range for offset_range in narrowed if offset_range.start < offset_range.end]


def _may_match(offset_range: OffsetRange, filters: PushedFilters) -> bool:
    queue_id = filters.get("queue_id", _ANY)
    return (
        filters.get("topic", _ANY).may_be(offset_range.topic)
        and filters.get("broker", _ANY).may_be(offset_range.broker)
        and queue_id.may_be(offset_range.queue_id)
        and queue_id.low <= offset_range.queue_id <= queue_id.high
    )


def _narrow(offset_range: OffsetRange, filters: PushedFilters, lookup: OffsetLookup) -> OffsetRange:
    offsets, times = filters.get("queue_offset", _ANY), filters.get("stored_at", _ANY)
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
        if not isinstance(value, datetime) or value.tzinfo is None:
            return "", None
        ms = value.timestamp() * 1000
        return column, _interval(condition, math.floor(ms), math.ceil(ms), margin=0)
    values = value if isinstance(condition, In) else [value]
    kind = str if column in _STRINGS else int if column in _NUMBERS else None
    if kind is None or not all(item is None or type(item) is kind for item in values):
        return "", None
    if isinstance(condition, EqualTo | EqualNullSafe | In):
        return column, PushedFilter(values=frozenset(values) - {None})
    return column, _interval(condition, value, value, margin=1) if kind is int else None


def _interval(condition: Filter, low: int, high: int, margin: int) -> PushedFilter | None:
    """Interval of a comparison with a value in [low, high]; > and < leave out `margin` of it."""
    match condition:
        case EqualTo() | EqualNullSafe():
            return PushedFilter(low=low, high=high)
        case GreaterThan():
            return PushedFilter(low=low + margin)
        case GreaterThanOrEqual():
            return PushedFilter(low=low)
        case LessThan():
            return PushedFilter(high=high - margin)
        case LessThanOrEqual():
            return PushedFilter(high=high)
        case _:
            return None


def _is_plain(tag: str) -> bool:
    """Whether a tag expression can contain this tag."""
    return tag == tag.strip() and tag not in ("", ALL) and "|" not in tag


class BatchReader(DataSourceReader):
    """Reads from the starting offsets to the ending ones."""

    def __init__(self, settings: SourceOptions, columns: Sequence[str]) -> None:
        self._settings = settings
        self._columns = tuple(columns)
        self._filters = NO_FILTERS

    @entry_point()
    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of the read, distributed over tasks."""
        cluster = ClusterClient(self._settings)
        ranges = plan.with_topic_ids(self._ranges(cluster), cluster.topic_ids)
        pushed = self._filters.keys()
        log.info("%s", filter_text(self._settings, sum(map(len, ranges)), pushed))
        return plan_tasks(self._settings, ranges, cluster.addresses, cluster.replicas)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of one task."""
        return read_task(self._settings, self._columns, partition)

    def _ranges(self, cluster: ClusterClient) -> list[OffsetRange]:
        settings, bounds = self._settings, cluster.bounds()
        if not bounds.latest and settings.topic_pattern is not None:
            raise UsageError(f"no topic matches topicPattern {settings.topic_pattern!r}")
        check_read(cluster)
        earliest, latest = bounds.earliest, bounds.latest
        start = offset_spec.starting_offsets(settings.starting_offsets, earliest, latest, cluster)
        end = offset_spec.ending_offsets(settings.ending_offsets, earliest, latest, cluster)
        return plan.checked_range(start, end, latest)


class PushdownReader(BatchReader):
    """A batch reader that a query's own conditions narrow.

    A class of its own, since Spark refuses readers with `pushFilters` unless
    `spark.sql.python.filterPushdown.enabled` is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Note the conditions and return all of them, so that Spark evaluates them again."""
        self._filters = pushed_filters(filters)
        self._settings = with_tags(self._settings, self._filters)
        return filters

    def _ranges(self, cluster: ClusterClient) -> list[OffsetRange]:
        return narrow_ranges(super()._ranges(cluster), self._filters, cluster)
