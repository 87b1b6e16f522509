"""Columns of a written frame: the parts of a message, and the types allowed for each."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from roquet.lake.kafka_names import COLUMNS, hint
from roquet.model.errors import ConfigError
from roquet.spark.sink.options import SinkOptions

STRING_TYPES: Final = ("string",)
INTEGER_TYPES: Final = ("tinyint", "smallint", "int")
DELAY_COLUMNS: Final = ("delay", "delay_level", "deliver_at")
"""The columns that delay a message; a row may have a value in one of them."""

TYPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "topic": STRING_TYPES,
        "key": STRING_TYPES,
        "keys": (*STRING_TYPES, "array<string>"),
        "order_key": STRING_TYPES,
        "tag": STRING_TYPES,
        "body": ("binary", "string"),
        "properties": ("map<string,string>",),
        "flag": INTEGER_TYPES,
        "delay": (*INTEGER_TYPES, "bigint", "double"),
        "delay_level": INTEGER_TYPES,
        "deliver_at": ("timestamp",),
        "message_id": STRING_TYPES,
    }
)
"""All columns and their Spark types. `delay` is in seconds."""


def check_frame(fields: Iterable[tuple[str, str]], options: SinkOptions) -> tuple[str, ...]:
    """The columns to write, in the frame's spelling; `fields` are (name, type).

    Raises ConfigError for unknown, mistyped, missing or conflicting columns.
    """
    spelling: dict[str, str] = {}
    for name, kind in fields:
        known = name.lower()
        if known not in TYPES:
            if not options.ignores_others:
                raise ConfigError(
                    f"no column {name!r} in a message{hint(name, TYPES, COLUMNS)}: drop it, or set "
                    f"otherColumns=ignore. There are {', '.join(TYPES)}"
                )
            continue
        _check_type(name, kind, TYPES[known])
        if known in spelling:
            raise ConfigError(f"columns {spelling[known]!r} and {name!r} are the same one")
        spelling[known] = name
    _check_combination(spelling, options)
    return tuple(spelling.values())


def _check_type(name: str, kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds and not _is_text(kind, kinds):
        wanted = " or ".join(kinds)
        raise ConfigError(f"column {name!r} is {kind}, not {wanted}: cast it")


def _is_text(kind: str, kinds: tuple[str, ...]) -> bool:
    """Whether it is a string type with a length or a collation."""
    return "string" in kinds and kind.startswith(("varchar(", "char(", "string "))


def _check_combination(names: Mapping[str, str], options: SinkOptions) -> None:
    if "body" not in names:
        raise ConfigError("the column 'body' is missing: it is what a message holds")
    if "topic" not in names and options.topic is None:
        raise ConfigError("no topic: set .option('topic', 'orders'), or add a column 'topic'")
    if "key" in names and "keys" in names:
        raise ConfigError("columns 'key' and 'keys' mean the same: leave one out")
    if options.transactional and (delayed := [name for name in DELAY_COLUMNS if name in names]):
        raise ConfigError(
            f"column {delayed[0]!r} delays messages, and transactional=true cannot: "
            "Apache RocketMQ would lose them"
        )
