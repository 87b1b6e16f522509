"""Body columns: typed columns for the fields of JSON bodies, beside the columns of a message.

    id bigint, name string, paid boolean, at timestamp, flight_day=day int

A column has the name of its field, or another one where it says so: `flight_day` is of the field
`day`, whose own name is that of a partition. The table's own schema is where they are kept. A field
that is named later is added as one more column; a column never changes its type. `body_error` says
why a body has none of its fields.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.body_types import FIELD_TYPES, arrow_type, split_list, type_text
from roquet.lake.columns.partitioning import schema_of
from roquet.lake.schema import TYPES as MESSAGE_TYPES
from roquet.model.errors import ConfigError
from roquet.model.settings import suggest

BODY_ERROR: Final = "body_error"
"""Column (string) with the reason why a body could not be parsed; null for one that was."""

JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
FORMATS: Final = (JSON, AVRO, PROTOBUF)

FIELDS_MAX: Final = 256
"""Body columns of a table: bodies of random field names shall not widen it without end."""

RESERVED: Final = frozenset(
    {
        *(*MESSAGE_TYPES, "day", "hour", BODY_ERROR),
        *(f"{name}_bucket" for name in MESSAGE_TYPES),  # names of Iceberg's partition fields
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_metadata"),  # Iceberg's, Spark's
    }
)

FIELD: Final = "roquet.field"
"""Metadata of a column with the name of its field, if that is another one; in Iceberg the begin of
its comment."""

_GAP: Final = re.compile(r"\s*:\s*|\s+")
"""Between a name and its type."""

_NAME: Final = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)


class BodyField(msgspec.Struct, frozen=True, order=True):
    """The column of a field of the bodies."""

    name: str
    type: str
    field: str = ""
    """The field's name; empty if it is the column's."""

    @property
    def source(self) -> str:
        """The name of the field in the bodies."""
        return self.field or self.name

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata of the column in the table's schema."""
        return {FIELD: self.field} if self.field else {}


def parse_fields(text: str, prefix: str = "") -> tuple[BodyField, ...]:
    """The columns of a schema such as `id bigint, flight_day=day int`; empty for an empty text.

    `prefix` begins the names of columns that are not said. Raises ConfigError for what is no
    schema, for repeated names, and for names of message columns.
    """
    check_prefix(prefix)
    fields = [_parse_field(part, prefix) for part in split_list(text) if part]
    names, sources = set[str](), set[str]()
    for field in fields:
        if field.name.lower() in RESERVED:
            raise ConfigError(
                f"--body-schema: {field.name!r} is a column of every archive; give the field "
                f"another one, 'body_{field.name}={field.source} {field.type}', or all of them "
                "with --body-prefix"
            )
        if field.name.lower() in names or field.source in sources:
            raise ConfigError(f"--body-schema: field {field.name!r} is named twice")
        names.add(field.name.lower())
        sources.add(field.source)
    return tuple(fields)


def check_prefix(prefix: str) -> None:
    """Raise ConfigError for what no column's name can begin with."""
    if prefix and not _NAME.fullmatch(prefix):
        raise ConfigError(f"--body-prefix {prefix!r}: letters, digits and _, such as body_")


def column_of(source: str, kind: str, prefix: str = "") -> BodyField:
    """The column of a field, named after it with a prefix."""
    name = f"{prefix}{source}"
    return BodyField(name, kind, "" if name == source else source)


def may_be_column(name: str) -> bool:
    """Whether a field's name can be that of a body column in every kind of table."""
    return _NAME.fullmatch(name) is not None and name.lower() not in RESERVED


def new_fields(
    existing: Sequence[BodyField], wanted: Iterable[BodyField], where: object
) -> tuple[BodyField, ...]:
    """The wanted fields that a table has not yet; ConfigError for one that would change its type.

    Spark compares names without regard to case, and so does this.
    """
    known = {field.name.lower(): field for field in existing}
    sources = {field.source: field for field in existing}
    added = []
    for field in wanted:
        found = known.get(field.name.lower())
        found = found or sources.get(field.source)
        if found is None:
            added.append(field)
        elif found != field:
            raise ConfigError(
                f"--body-schema: {where} has the column {_text(found)}, which cannot "
                f"become {_text(field)}: leave the field out, or give another directory"
            )
    if len(existing) + len(added) > FIELDS_MAX:
        raise ConfigError(f"--body-schema: more than {FIELDS_MAX} fields; leave some in the body")
    return tuple(added)


def fields_of(schema: pa.Schema, own_columns: Collection[str] = ()) -> tuple[BodyField, ...]:
    """The body columns of a table's schema, without `own_columns` of the table.

    Columns of other types are left to who added them.
    """
    return tuple(
        BodyField(field.name, kind, _source_of(field))
        for field in schema
        if field.name not in own_columns
        and may_be_column(field.name)
        and (kind := type_text(field.type)) is not None
    )


def _source_of(field: pa.Field) -> str:
    """The name of the field of a column, where it is another one."""
    metadata = field.metadata or {}
    _, mark, comment = metadata.get(b"doc", b"").partition(f"{FIELD}=".encode())
    return str(metadata.get(FIELD.encode()) or (comment if mark else b""), "utf-8", "replace")


def _text(field: BodyField) -> str:
    return (
        f"{field.name}={field.field} {field.type}" if field.field else f"{field.name} {field.type}"
    )


def file_schema(columns: Sequence[str], fields: Sequence[BodyField] | None) -> pa.Schema:
    """The schema of an archive's files; `fields` is None when bodies are not parsed."""
    schema = schema_of(columns)
    if fields is None:
        return schema
    return pa.schema([*schema, *body_schema(fields)])


def body_schema(fields: Iterable[BodyField]) -> pa.Schema:
    """The schema of `body_error` and the body columns."""
    typed = [pa.field(field.name, arrow_type(field.type)) for field in fields]
    return pa.schema([pa.field(BODY_ERROR, pa.string()), *typed])


def check_format(body_format: str, columns: Sequence[str], *, has_source: bool = False) -> None:
    """Raise ConfigError for a format there is not, and without the column that keeps bad bodies."""
    if body_format not in ("", *FORMATS):
        raise ConfigError(f"--body-format {body_format!r} is not json")
    if body_format in (AVRO, PROTOBUF) and not has_source:
        raise ConfigError(f"--body-format {body_format}: say --{body_format} FILE, with the schema")
    if body_format and "body" not in columns:
        raise ConfigError("--body-format needs the column 'body', which keeps what does not parse")


def _parse_field(text: str, prefix: str) -> BodyField:
    given, _, kind = _GAP.sub(" ", text, count=1).partition(" ")
    name, _, source = given.replace("`", "").partition("=")
    name, source = (name, source) if source else (f"{prefix}{name}", name)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--body-schema: {text!r} is not NAME TYPE, with letters, digits and _ in the name"
        )
    try:
        typed = type_text(arrow_type(kind))
    except KeyError as error:
        [part] = error.args
        raise ConfigError(
            f"--body-schema: {name} has the type {part!r}{suggest(part, FIELD_TYPES)}; types are "
            f"{', '.join(FIELD_TYPES)}, array<TYPE> and struct<NAME:TYPE,…>"
        ) from None
    if typed is None:
        raise ConfigError(f"--body-schema: {name} is a struct without fields")
    return BodyField(name, typed, "" if name == source else source)
