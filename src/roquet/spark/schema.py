"""The columns of a message, as Spark names and types them."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from roquet.model.errors import ConfigError
from roquet.spark.kafka_names import COLUMNS, hint

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
"""Every column there is, with its type in SQL; `arrow.records` makes them."""

DEFAULT: Final = tuple(list(TYPES)[: list(TYPES).index("keys")])
"""The columns when nobody chooses. Fewer are faster: what is not asked for is not made."""


def ddl(columns: Sequence[str]) -> str:
    """These columns as Spark reads a schema."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """The columns of these names; ConfigError for one that there is not."""
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
    """The columns of a schema that a user gave, as (name, type in SQL); the types must be ours."""
    given = tuple(fields)
    columns = check_names(name for name, _ in given)
    for name, kind in given:
        if kind != TYPES[name]:
            raise ConfigError(f"column {name!r} is a {TYPES[name]}, not a {kind}: cast it")
    return columns
