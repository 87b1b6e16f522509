"""Which columns a message is made of, and of which types they may be."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from roquet.model.errors import ConfigError
from roquet.spark.kafka_names import COLUMNS, hint
from roquet.spark.sink.options import SinkOptions

STRING_TYPES: Final = ("string",)
INTEGER_TYPES: Final = ("tinyint", "smallint", "int")
DELAY_COLUMNS: Final = ("delay", "delay_level", "deliver_at")
"""The columns that delay a message; a row has a value in one of them at most."""

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
"""Every column there is, and its types as Spark calls them. `delay` is in seconds."""


def check_frame(fields: Iterable[tuple[str, str]], options: SinkOptions) -> tuple[str, ...]:
    """The columns that are written, as the frame calls them; ConfigError for a wrong frame."""
    found: dict[str, str] = {}
    for name, kind in fields:
        known = name.lower()
        if known not in TYPES:
            if not options.ignores_others:
                raise ConfigError(
                    f"no column {name!r} in a message{hint(name, TYPES, COLUMNS)}: drop it, or say "
                    f"otherColumns=ignore. There are {', '.join(TYPES)}"
                )
            continue
        _check_type(name, kind, TYPES[known])
        if known in found:
            raise ConfigError(f"columns {found[known]!r} and {name!r} are the same one")
        found[known] = name
    _check_combination(found, options)
    return tuple(found.values())


def _check_type(name: str, kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds and not _is_text(kind, kinds):
        wanted = " or ".join(kinds)
        raise ConfigError(f"column {name!r} is {kind}, {wanted} is wanted: cast it")


def _is_text(kind: str, kinds: tuple[str, ...]) -> bool:
    """Whether it is a string that Spark calls otherwise: of a length, or of a collation."""
    return "string" in kinds and kind.startswith(("varchar(", "char(", "string "))


def _check_combination(found: Mapping[str, str], options: SinkOptions) -> None:
    if "body" not in found:
        raise ConfigError("there is no column 'body', which a message is made of")
    if "topic" not in found and options.topic is None:
        raise ConfigError("to which topic? .option('topic', 'orders'), or a column 'topic'")
    if "key" in found and "keys" in found:
        raise ConfigError("columns 'key' and 'keys' say the same: leave one out")
    if options.transactional and (delayed := [name for name in DELAY_COLUMNS if name in found]):
        raise ConfigError(
            f"column {delayed[0]!r} delays messages, and transactional=true cannot: "
            "Apache RocketMQ would lose them"
        )
