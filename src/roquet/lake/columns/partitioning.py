"""Partitioning: the columns of an archive, and the day of each message (UTC) as its partition.

Other writers may change the schema of a table. Files that lack a required column, or have one that
the table has dropped, would be committed without an error and read with rows incomplete.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from roquet.arrow.records import SCHEMA
from roquet.lake.schema import DEFAULT, check_names
from roquet.model.errors import ConfigError

REQUIRED_COLUMNS: Final = ("broker", "queue_id", "queue_offset", "stored_at")
"""Columns that identify the message of a row and its day."""

NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name, and so Spark's, for the partition of rows without a value."""

DICTIONARY_COLUMNS: Final = ("topic", "broker", "queue_id", "tag", "properties.key_value.key")
"""Columns with few distinct values. Dictionaries of the others would cost time and save nothing."""

_WIDER: Final = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
"""Types of files that tables may have widened."""

_DAY: Final = timedelta(days=1)
_US: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def archive_columns(names: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of an archive, by default `schema.DEFAULT`; ConfigError without required ones."""
    columns = check_names(names or DEFAULT)
    for name in REQUIRED_COLUMNS:
        if name not in columns:
            raise ConfigError(f"an archive needs the column {name!r}: add it to the columns")
    return columns


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of the columns."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def split_by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by day of `stored_at` in UTC, as (ISO date or `NO_DAY`, rows); mostly one day."""
    stored = batch.column("stored_at")
    if stored.null_count:
        known = stored.is_valid()
        yield NO_DAY, batch.filter(stored.is_null())
        batch = batch.filter(known)
        stored = batch.column("stored_at")
    if not len(batch):
        return
    days = stored.view(pa.int64()).to_numpy() // (_DAY // _US)
    distinct = np.unique(days)
    for day in distinct:
        rows = batch if len(distinct) == 1 else batch.filter(pa.array(days == day))
        yield (_EPOCH + int(day) * _DAY).date().isoformat(), rows


def day_of(text: str) -> date | None:
    """The date of a partition; None for `NO_DAY`."""
    return None if text == NO_DAY else date.fromisoformat(text)


def check_columns(have: pa.Schema, want: pa.Schema, where: object) -> None:
    """Raise ConfigError unless a table has the wanted columns, and requires no other.

    `have` is the table's schema; libraries return texts and bytes in several types.
    """
    for field in want:
        at = have.get_field_index(field.name)
        if at < 0:
            raise ConfigError(
                f"{where} has no column {field.name!r} any more: another writer changed the table. "
                "Nothing was committed; add the column again, or archive to another place"
            )
        kind, wanted = _plain(have.field(at).type), _plain(field.type)
        if kind not in (wanted, _WIDER.get(wanted)):
            raise ConfigError(
                f"{where} has the column {field.name!r} as {kind} and not as {wanted}: another "
                "writer changed the table. Nothing was committed; archive to another place"
            )
    for field in have:
        if not field.nullable and field.name not in want.names:
            raise ConfigError(
                f"{where} requires a value in the column {field.name!r}, which no message has: "
                "make the column optional, or archive to another place"
            )


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without the differences between libraries."""
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp(kind.unit, "UTC")
    return kind
