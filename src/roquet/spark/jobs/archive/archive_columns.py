"""Body columns of a run: those of the user's schema, and those that samples of its batches show.

    {"id": 7, "price": 1.5, "on": "2026-01-31", "tags": ["a"], "buyer": {"name": "x"}}
    id bigint, price double, on date, tags array<string>, buyer struct<name:string>

Numbers with and without a fraction are double. Texts are dates or timestamps if all are, the latter
with a zone. Fields of different types are text, and so are objects of very many names. A field that
is null, or empty, in the whole sample has no type yet, and no column.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, datetime
from functools import reduce
from typing import Any, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.body_columns import (
    FIELDS_MAX,
    JSON,
    BodyField,
    column_of,
    may_be_column,
    parse_fields,
)
from roquet.lake.columns.body_schemas import BodySchema, columns_of
from roquet.lake.columns.body_types import is_part, type_text
from roquet.lake.queue_offsets import OffsetRange
from roquet.lake.table import ArchiveTable
from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.spark.options import SourceOptions
from roquet.spark.source.tasks import ReadTask, read_task

SAMPLE_MAX: Final = 1_000
"""Bodies of a batch that are looked at."""

SAMPLED_TASKS_MAX: Final = 16
"""Tasks of a batch whose first and last bodies are looked at; each costs some requests."""

NESTED_MAX: Final = 4
"""Arrays and objects within each other; what is deeper is text."""

PARTS_MAX: Final = 64
"""Names of an object that become parts of a column: objects of ids as names are text."""

_SCALARS: Final = {type(None): pa.null(), bool: pa.bool_(), float: pa.float64()}
_INT64: Final = range(-(2**63), 2**63)
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?", re.ASCII)
_DATE_LENGTH: Final = len("2026-01-31")


def infer_fields(
    bodies: Iterable[bytes],
    known: Sequence[BodyField] = (),
    prefix: str = "",
    own_columns: Collection[str] = (),
) -> list[BodyField]:
    """Fields of the bodies that are not among the known ones, in the order of their first use.

    Columns are named after them with the prefix; `own_columns` are taken. Bodies that are no JSON
    objects are passed over, and so are names that no column can have.
    """
    taken = {*own_columns, *(field.name.lower() for field in known)}
    sources = {field.source.lower() for field in known}
    types, spelled = dict[str, pa.DataType](), dict[str, str]()
    for body in bodies:
        for name, value in _items(body):
            if value is None or name.lower() in sources:
                continue
            column = f"{prefix}{name}"
            if not may_be_column(column) or column.lower() in taken:
                continue
            if spelled.setdefault(name.lower(), name) != name:
                continue  # another field's name but for the case: it stays in the body
            kind = _type_of(value)
            types[name] = _common(types.get(name, kind), kind)
    room = FIELDS_MAX - len(known)
    known_types = ((name, _known(kind)) for name, kind in types.items())
    found = [(name, type_text(kind)) for name, kind in known_types if kind is not None]
    return [column_of(name, text, prefix) for name, text in found if text is not None][:room]


def sample_bodies(settings: SourceOptions, tasks: Sequence[ReadTask]) -> Iterator[bytes]:
    """The first and the last bodies of some tasks of a batch, spread over all of them."""
    step = -(-len(tasks) // SAMPLED_TASKS_MAX)
    chosen = tasks[:: step or 1]
    for task in chosen:
        count = -(-SAMPLE_MAX // len(chosen))
        rows = sum(map(len, task.value))
        if rows <= count:
            yield from _first_bodies(settings, task, count)
            continue
        yield from _first_bodies(settings, task, -(-count // 2))
        end = ReadTask(last_ranges(task.value, count // 2), task.addresses, task.replicas)
        yield from _first_bodies(settings, end, count // 2)


def last_ranges(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """The ends of ranges, with so many offsets in all; each has about the same part of them."""
    part = -(-count // max(1, len(ranges)))
    ends = [each.cut(max(each.start, each.end - part), each.end) for each in ranges]
    return [each for each in ends if len(each)]


def _first_bodies(settings: SourceOptions, task: ReadTask, count: int) -> Iterator[bytes]:
    for batch in read_task(settings, ("body",), task):
        bodies = batch.column("body").slice(0, count).to_pylist()
        yield from (body for body in bodies if body is not None)
        count -= len(bodies)
        if count <= 0:
            return


def _items(body: bytes) -> Iterable[tuple[str, Any]]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ()
    return value.items() if isinstance(value, dict) else ()


def _type_of(value: Any, depth: int = 0) -> pa.DataType:
    """The type of a value; Arrow's null for one that says none."""
    if (kind := _SCALARS.get(type(value))) is not None:
        return kind
    if isinstance(value, int):
        return pa.int64() if value in _INT64 else pa.string()
    if isinstance(value, str):
        return _type_of_text(value)
    if depth == NESTED_MAX:
        return pa.string()
    if isinstance(value, list):
        kinds = (_type_of(each, depth + 1) for each in value)
        return pa.list_(reduce(_common, kinds, pa.null()))
    return pa.struct([(name, _type_of(each, depth + 1)) for name, each in value.items()])


def _type_of_text(text: str) -> pa.DataType:
    if not _TIME.fullmatch(text):
        return pa.string()
    kind, python = (pa.date32(), date) if len(text) == _DATE_LENGTH else (_TIMESTAMP, datetime)
    try:
        msgspec.convert(text, python)
    except msgspec.ValidationError:
        return pa.string()
    return kind


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that values of both have, whatever the order in which they come."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_common(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        parts = {part.name: part.type for part in one}
        for part in other:
            parts[part.name] = _common(parts.get(part.name, pa.null()), part.type)
        return pa.struct([*parts.items()])
    return pa.string()


def _known(kind: pa.DataType) -> pa.DataType | None:
    """The type that a column can have; None while nothing is known of the values."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        inner = _known(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if not pa.types.is_struct(kind):
        return kind
    names = {part.name.lower() for part in kind}
    is_plain = len(names) == kind.num_fields <= PARTS_MAX
    if not is_plain or not all(map(is_part, names)):
        return pa.string()
    parts = [(part.name, known) for part in kind if (known := _known(part.type)) is not None]
    return pa.struct(parts) if parts else None


log = logger(__name__)


def set_body_columns(
    table: ArchiveTable,
    body_schema: str,
    prefix: str = "",
    *,
    infer: bool,
    source: BodySchema | None = None,
) -> None:
    """Add the columns that the user's schema of the bodies names.

    Without it those of all fields of `source`, the schema file of this run, for bodies that are no
    JSON. A prefix, and whether columns are inferred, may be the table's own.

    Raises ConfigError for a schema without a table for it, and for a table without any schema.
    """
    if not table.identity.body_format:
        if body_schema or infer:
            raise ConfigError(
                "--body-schema and --infer are for tables made with --body-format json: say it "
                "when the table is made"
            )
        return
    if infer and table.identity.body_format != JSON:
        raise ConfigError("--infer is for JSON: the schema has all fields")
    prefix = prefix or table.identity.body_prefix
    fields = parse_fields(body_schema, prefix)
    if source is not None and not fields:
        fields = columns_of(source, prefix)
    for field in fields:
        if field.name.lower() in table.own_columns:
            raise ConfigError(
                f"--body-schema: {field.name!r} is a column of the table; give the field another "
                f"one, 'json_{field.name}={field.source} {field.type}'"
            )
    table.add_body_fields(fields)
    if not infer and not table.identity.infer_body and not table.body_fields():
        raise ConfigError(
            "--body-format json needs the fields: --body-schema 'id bigint, name string', or "
            "--infer"
        )


def batch_fields(
    table: ArchiveTable,
    settings: SourceOptions,
    tasks: Sequence[ReadTask],
    prefix: str = "",
    *,
    infer: bool,
) -> tuple[BodyField, ...] | None:
    """The body columns of a batch; inferred ones are added to the table first.

    None for a table whose bodies are not parsed.
    """
    if not table.identity.body_format:
        return None
    fields, prefix = table.body_fields(), prefix or table.identity.body_prefix
    infer = infer or table.identity.infer_body
    if not infer:
        return fields
    sample = sample_bodies(settings, tasks)
    found = infer_fields(sample, fields, prefix, table.own_columns)
    if not found:
        return fields
    log.info("new columns: %s", ", ".join(f"{field.name} {field.type}" for field in found))
    table.add_body_fields(found)
    return table.body_fields()
