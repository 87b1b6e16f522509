"""Partitioning: the columns of an archive, and the day of each message (UTC) as its partition."""

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
