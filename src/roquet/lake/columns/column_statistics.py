"""Column statistics of a Parquet file: smallest and largest values and nulls, as tables list them.

A reader skips a file by them, so a range that does not hold would hide rows. A file has a range for
each of the columns or for none: deltalake 1.6 takes one that is missing for one that holds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow.parquet as pq

STATISTICS_COLUMNS: Final = ("queue_id", "queue_offset", "key", "stored_at")
"""Columns of messages with statistics in a table that says which have them."""

PREFIX_LENGTH: Final = 256
"""Characters of a text that are kept as its bound."""

_LAST: Final = "\U0010ffff"
"""The last character: no text is behind a prefix and this, unless it goes on with it, too."""


class ColumnStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of some columns of a file; values are as JSON has them."""

    least: Mapping[str, Any] = {}
    """Smallest values by column, without columns that are null everywhere."""
    most: Mapping[str, Any] = {}
    """Largest values by column, or texts behind them."""
    nulls: Mapping[str, int] = {}
    """Rows without a value by column."""


def statistics_of(footer: "pq.FileMetaData", columns: Iterable[str]) -> ColumnStatistics:
    """The statistics of these columns; a column that the file does not have is null everywhere."""
    nulls = dict.fromkeys(columns, footer.num_rows)
    least, most = dict[str, Any](), dict[str, Any]()
    for name, column in _chunks(footer):
        if name not in nulls:
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return ColumnStatistics()
        nulls[name] -= column.num_values - statistics.null_count
        if statistics.has_min_max:
            low, high = _lower(statistics.min), _upper(statistics.max)
            least[name] = min(low, least.get(name, low))
            most[name] = max(high, most.get(name, high))
    if unbounded_columns(footer).isdisjoint(nulls):
        return ColumnStatistics(least=least, most=most, nulls=nulls)
    return ColumnStatistics(nulls=nulls)


def unbounded_columns(footer: "pq.FileMetaData") -> set[str]:
    """Columns with values of which a row group says no bounds, as for texts of more than 4 KiB."""
    return {
        name
        for name, column in _chunks(footer)
        if (statistics := column.statistics) is None
        or (not statistics.has_min_max and statistics.null_count != column.num_values)
    }


def _chunks(footer: "pq.FileMetaData") -> "Iterator[tuple[str, pq.ColumnChunkMetaData]]":
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            yield column.path_in_schema, column


def _lower(value: Any) -> Any:
    """A value of JSON that is not larger; times in one format, so that they compare as text."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value[:PREFIX_LENGTH] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """A value of JSON that is not smaller: a long text is cut, and made greater than what was."""
    if not isinstance(value, str) or len(value) <= PREFIX_LENGTH:
        return _lower(value)
    end = PREFIX_LENGTH
    while value[end : end + 1] == _LAST:
        end += 1
    return value[:end] + _LAST * (end < len(value))
