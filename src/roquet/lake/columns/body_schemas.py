"""Body schemas: bodies in Avro or Protobuf, by the schema file of whoever writes them.

    schema = read_schema_file("avro", "order.avsc")         its columns: columns_of(schema)
    decode = decoder_of(schema)                             a body as a dictionary of plain values

An Avro body is one record in the binary encoding, without a header; a Protobuf body is one message.
Enums are their names, bytes are base64, times are times; a decimal, a map, a union of several types
and what is nested very deeply become text.
"""

import base64
import io
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.lake.columns.body_columns import (
    AVRO,
    PROTOBUF,
    BodyField,
    column_of,
    may_be_column,
)
from roquet.lake.columns.body_types import DEPTH_MAX, is_part
from roquet.model.errors import ConfigError
from roquet.model.settings import suggest

STRING: Final = "string"

_AVRO_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "boolean": "boolean",
        "int": "int",
        "long": "bigint",
        "float": "float",
        "double": "double",
        "int date": "date",
        "long timestamp-millis": "timestamp",
        "long timestamp-micros": "timestamp",
        "long local-timestamp-millis": "timestamp",
        "long local-timestamp-micros": "timestamp",
    }
)
"""Column types of Avro's types, with their logical types; all others become text."""

_PROTOBUF_TYPES: Final = (STRING, "int", "bigint", "bigint", "bigint", "double", "float", "boolean")
"""Column types by the numbers of `FieldDescriptor.cpp_type`, from 1 on; enums and texts are 0."""

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WELL_KNOWN: Final = "google.protobuf."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Decode = Callable[[bytes], Mapping[str, Any]]
"""Decodes a body to plain values by field; ValueError for one that does not fit the schema."""


class BodySchema(msgspec.Struct, frozen=True, kw_only=True):
    """The schema of bodies, as a table keeps it and as workers get it."""

    format: str
    """`avro` or `protobuf`."""
    text: str
    """Avro: the schema as JSON. Protobuf: a set of file descriptors in base64."""
    message_type: str = ""
    """Protobuf: the full name of the message, `shop.Order`."""


def read_schema_file(body_format: str, path: str, message_type: str = "") -> BodySchema:
    """The schema in a file; ConfigError for one that cannot be used.

    Avro's is an `.avsc` file; Protobuf's is the output of `protoc --descriptor_set_out`.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--{body_format} {path}: {error.strerror}") from error
    if body_format == AVRO:
        schema = BodySchema(format=AVRO, text=data.decode("utf-8", "replace"))
    else:
        text = base64.b64encode(data).decode()
        schema = BodySchema(format=PROTOBUF, text=text, message_type=message_type)
    try:
        columns_of(schema)
    except ConfigError as error:
        raise ConfigError(f"--{body_format} {path}: {error}") from error
    return schema


def columns_of(schema: BodySchema, prefix: str = "") -> tuple[BodyField, ...]:
    """The columns for the fields of a schema, named after them with the prefix.

    A field whose name no column can have, such as `key`, has the prefix `body_` for it. Raises
    ConfigError for what is no schema.
    """
    if schema.format == AVRO:
        named = dict[str, Any]()
        parsed = _avro_schema(schema, named)
        fields = [(field["name"], _avro_type(field["type"], named)) for field in parsed["fields"]]
    else:
        fields = [*_protobuf_fields(_message_class(schema).DESCRIPTOR)]
    if not fields:
        raise ConfigError("the schema has no fields")
    return tuple(
        column_of(name, kind, prefix if may_be_column(f"{prefix}{name}") else f"body_{prefix}")
        for name, kind in fields
    )


def decoder_of(schema: BodySchema) -> Decode:
    """The decoder of bodies with this schema."""
    if schema.format == AVRO:
        parsed = _avro_schema(schema, {})
        return partial(_decode_avro, parsed, _avro_reader(parsed))
    return partial(_decode_protobuf, _message_class(schema))


def _avro_schema(schema: BodySchema, named: dict[str, Any]) -> dict[str, Any]:
    """The parsed schema of a record; adds the types that it names to `named`."""
    try:
        import fastavro
    except ImportError as error:
        raise ConfigError("Avro bodies need fastavro: pip install 'roquet[avro]'") from error
    try:
        parsed = fastavro.parse_schema(msgspec.json.decode(schema.text), named)
    except Exception as error:  # of many classes, KeyError and TypeError among them
        raise ConfigError(f"no Avro schema: {type(error).__name__} {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigError("no Avro schema of a record: bodies are records with named fields")
    for each in _inline_types(parsed):
        if _is_a(each, "array") and _takes_no_bytes(each["items"], named):
            raise ConfigError("no bodies of this Avro schema: an array of empty items has no bound")
    return parsed


def _avro_reader(parsed: dict[str, Any]) -> Callable[..., Any]:
    """The reader of bodies: for types within themselves the one in Python.

    The compiled one goes as deep as a body says, and ends the process beyond its stack.
    """
    import fastavro
    from fastavro import _read_py

    records = (each for each in _inline_types(parsed) if _is_a(each, "record"))
    # A type is named only behind its definition, or within: only the latter makes a circle.
    is_recursive = any(each["name"] in [*_inline_types(each)] for each in records)
    reader: Callable[..., Any] = (_read_py if is_recursive else fastavro).schemaless_reader
    return reader


def _inline_types(kind: Any) -> Iterator[Any]:
    """An Avro type and all within it; types defined elsewhere are their names."""
    yield kind
    parts: list[Any] = []
    if isinstance(kind, list):
        parts = kind
    elif isinstance(kind, dict):
        parts = [each["type"] for each in kind.get("fields", ())]
        parts += [kind[name] for name in ("items", "values") if name in kind]
    for part in parts:
        yield from _inline_types(part)


def _is_a(kind: Any, name: str) -> bool:
    return isinstance(kind, dict) and kind["type"] == name


def _takes_no_bytes(kind: Any, named: Mapping[str, Any]) -> bool:
    """Whether values of an Avro type are encoded as nothing."""
    kind = named.get(kind, kind) if isinstance(kind, str) else kind
    if _is_a(kind, "record"):
        return all(
            isinstance(each["type"], str | dict) and _takes_no_bytes(each["type"], named)
            for each in kind["fields"]
        )
    return kind == "null" or _is_a(kind, "null") or (_is_a(kind, "fixed") and not kind["size"])


def _avro_type(kind: Any, named: Mapping[str, Any], depth: int = 0) -> str:
    """The column type of an Avro type; `named` are those that a type may name."""
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        return _avro_type(kinds[0], named, depth) if len(kinds) == 1 else STRING
    kind = named.get(kind, kind) if isinstance(kind, str) else kind
    if isinstance(kind, str) or depth == DEPTH_MAX:
        return _AVRO_TYPES.get(kind, STRING) if isinstance(kind, str) else STRING
    name = kind["type"]
    if name == "array":
        return f"array<{_avro_type(kind['items'], named, depth + 1)}>"
    if name == "record":
        fields = kind["fields"]
        return _struct(
            [(each["name"], _avro_type(each["type"], named, depth + 1)) for each in fields]
        )
    if logical := kind.get("logicalType"):
        return _AVRO_TYPES.get(f"{name} {logical}", STRING)
    return _AVRO_TYPES.get(name, STRING)


def _struct(parts: list[tuple[str, str]]) -> str:
    if not parts or not all(is_part(name) for name, _ in parts):
        return STRING
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in parts)}>"


def _decode_avro(
    schema: dict[str, Any], read: Callable[..., Any], body: bytes
) -> Mapping[str, Any]:
    stream = io.BytesIO(body)
    try:
        record = read(stream, schema, None)
        values: Mapping[str, Any] = msgspec.to_builtins(record, builtin_types=(date, datetime))
    except Exception as error:  # of many classes, IndexError and EOFError among them
        raise ValueError(f"no Avro record of this schema: {type(error).__name__} {error}") from None
    if stream.read(1):
        raise ValueError("no Avro record of this schema: bytes are left behind it")
    return values


def _message_class(schema: BodySchema) -> Any:
    """The class of a Protobuf message."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ConfigError(
            "Protobuf bodies need protobuf: pip install 'roquet[protobuf]'"
        ) from error
    pool, known = descriptor_pool.DescriptorPool(), list[str]()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema.text))
        for file in files.file:
            pool.Add(file)
            known += (
                ".".join(filter(None, (file.package, each.name))) for each in file.message_type
            )
    except Exception as error:  # of many classes, TypeError and DecodeError among them
        raise ConfigError(
            f"no set of Protobuf descriptors ({error}): make it by `protoc --include_imports "
            "--descriptor_set_out=FILE`"
        ) from error
    try:
        found = pool.FindMessageTypeByName(schema.message_type)
    except KeyError:
        names = ", ".join(known) or "none"
        raise ConfigError(
            f"no message {schema.message_type!r} among {names}: name one (--message-type)"
            f"{suggest(schema.message_type, known)}"
        ) from None
    return message_factory.GetMessageClass(found)


def _protobuf_fields(message: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The fields of a message with their column types."""
    for field in message.fields:
        kind = _protobuf_type(field, depth)
        is_list = field.is_repeated and not _is_map(field)
        yield field.name, f"array<{kind}>" if is_list else kind


def _protobuf_type(field: Any, depth: int) -> str:
    message = field.message_type
    if message is None:
        return _PROTOBUF_TYPES[field.cpp_type] if field.cpp_type < len(_PROTOBUF_TYPES) else STRING
    if message.full_name == _TIMESTAMP:
        return "timestamp"
    if _is_map(field) or message.full_name.startswith(_WELL_KNOWN) or depth >= DEPTH_MAX - 1:
        return STRING
    return _struct([*_protobuf_fields(message, depth + 2)])


def _is_map(field: Any) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def _decode_protobuf(message_class: Any, body: bytes) -> Mapping[str, Any]:
    try:
        return _message_values(message_class.FromString(body))
    except Exception as error:  # of many classes, TypeError for an Any of an unknown type
        raise ValueError(f"no Protobuf message of this type: {error}") from None


def _message_values(message: Any) -> dict[str, Any]:
    """The values of a message's fields; None for one that is not there and has no default."""
    return {field.name: _field_value(message, field) for field in message.DESCRIPTOR.fields}


def _field_value(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return {str(name): _plain_value(value[name], kind) for name in value}
    if field.is_repeated:
        return [_plain_value(each, field) for each in value]
    return _plain_value(value, field)


def _plain_value(value: Any, field: Any) -> Any:
    message = field.message_type
    if message is None:
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            return value if named is None else named.name
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value
    if message.full_name == _TIMESTAMP:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if message.full_name.startswith(_WELL_KNOWN):
        from google.protobuf import json_format

        return json_format.MessageToDict(value)
    return _message_values(value)
