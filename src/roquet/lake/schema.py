"""The columns of a message, as Spark names and types them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from roquet.arrow.records import COLUMNS, SCHEMA
from roquet.lake import kafka_names
from roquet.model.errors import ConfigError

_SQL: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.map_(pa.string(), pa.string()): "map<string,string>",
}

TYPES: Final[Mapping[str, str]] = {field.name: _SQL[field.type] for field in SCHEMA}
"""All columns with their SQL types."""

DEFAULT: Final = COLUMNS
"""The columns of a read without option `columns`. Fewer are faster: the others are not decoded."""


def ddl(columns: Sequence[str]) -> str:
    """The columns as a schema in SQL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """The column names as a tuple; ConfigError for unknown, repeated or no names."""
    columns = tuple(names)
    for name in columns:
        if name not in TYPES:
            raise ConfigError(
                f"no column {name!r}{kafka_names.hint(name, TYPES, kafka_names.COLUMNS)}"
            )
        if columns.count(name) > 1:
            raise ConfigError(f"column {name!r} is named twice")
    if not columns:
        raise ConfigError("no column is chosen")
    return columns


def check_fields(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The column names of a schema of (name, SQL type); ConfigError for other names or types."""
    typed_names = tuple(fields)
    columns = check_names(name for name, _ in typed_names)
    for name, kind in typed_names:
        if kind != TYPES[name]:
            raise ConfigError(f"column {name!r} is a {TYPES[name]}, not a {kind}: cast it")
    return columns
