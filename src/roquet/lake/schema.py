"""The columns of a message, as Spark names and types them."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from roquet.lake.kafka_names import COLUMNS, hint
from roquet.model.errors import ConfigError

TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "topic": "string",
        "broker": "string",
        "queue_id": "int",
        "queue_offset": "bigint",
        "message_id": "string",
        "key": "string",
        "tag": "string",
        "body": "binary",
        "properties": "map<string,string>",
        "born_at": "timestamp",
        "stored_at": "timestamp",
        "keys": "string",
        "offset_message_id": "string",
        "position": "bigint",
        "size": "int",
        "flag": "int",
        "sys_flag": "int",
        "reconsume_times": "int",
        "message_type": "string",
        "real_topic": "string",
        "real_queue_id": "int",
    }
)
"""All columns with their SQL types; `arrow.records` makes them."""

DEFAULT: Final = tuple(list(TYPES)[: list(TYPES).index("keys")])
"""The columns of a read without option `columns`. Fewer are faster: the others are not decoded."""


def ddl(columns: Sequence[str]) -> str:
    """The columns as a schema in SQL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """The column names as a tuple; ConfigError for unknown, repeated or no names."""
    columns = tuple(names)
    for name in columns:
        if name not in TYPES:
            raise ConfigError(f"no column {name!r}{hint(name, TYPES, COLUMNS)}")
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
