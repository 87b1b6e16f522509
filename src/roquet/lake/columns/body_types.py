"""Types of body columns, in Spark's words and in Arrow's: `array<struct<sku:string,count:int>>`."""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import pyarrow as pa

FIELD_TYPES: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
)
"""Types without parts, with Spark's names. A string has values of other types as JSON."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"bool": "boolean", "integer": "int", "long": "bigint", "real": "float"}
)

DEPTH_MAX: Final = 8
"""Arrays and objects within each other; what is deeper is text."""

_WORDS: Final = {kind: word for word, kind in FIELD_TYPES.items()}


@cache
def arrow_type(text: str, depth: int = 0) -> pa.DataType:
    """The type of a text such as `array<int>`; KeyError, with the part that is none."""
    text = text.strip()
    head, _, rest = text.partition("<")
    head = head.strip().lower()
    if depth > DEPTH_MAX or (rest and not rest.endswith(">")):
        raise KeyError(text)
    if head == "array" and rest:
        return pa.list_(arrow_type(rest[:-1], depth + 1))
    if head == "struct" and rest:
        return pa.struct([_part(part, depth) for part in split_list(rest[:-1])])
    if rest or (word := ALIASES.get(head, head)) not in FIELD_TYPES:
        raise KeyError(text)
    return FIELD_TYPES[word]


def type_text(kind: pa.DataType) -> str | None:
    """The text of a type; None for one that no body column has."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_timestamp(kind) and kind.tz:
        return "timestamp"
    if pa.types.is_struct(kind):
        parts = [(field.name, type_text(field.type)) for field in kind]
        if not parts or any(part is None or not is_part(name) for name, part in parts):
            return None
        return f"struct<{','.join(f'{name}:{part}' for name, part in parts)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = type_text(kind.value_type)
        return None if inner is None else f"array<{inner}>"
    return _WORDS.get(kind)


def is_part(name: str) -> bool:
    """Whether a name can be that of a part of an object in every kind of table."""
    return name.isidentifier() and name.isascii()


def split_list(text: str) -> Iterator[str]:
    """The parts of a list at its commas, but for those within `<…>`; empty ones are left out."""
    depth, begin = 0, 0
    for at, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:].strip()


def _part(text: str, depth: int) -> pa.Field:
    name, _, kind = text.partition(":")
    name = name.strip(" `")
    if not is_part(name):
        raise KeyError(text)
    return pa.field(name, arrow_type(kind, depth + 1))
