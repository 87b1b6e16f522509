"""Body parser: bodies of a batch, in JSON or by a schema, become typed columns, row by row.

A body that does not parse, or has another type in one of the fields, gets its reason in
`body_error` and null in all fields; it never stops a batch. Each body is parsed alone: joined into
one text, as pyarrow's JSON reader wants them, two broken bodies could pass for a whole one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.body_columns import BodyField, body_schema
from roquet.lake.columns.body_schemas import BodySchema, Decode, decoder_of
from roquet.lake.columns.body_types import arrow_type

ERROR_LENGTH_MAX: Final = 200
"""Characters of a reason."""

NO_BODY: Final = "the message has no body"

COUNTED_FIELDS_MAX: Final = 256
"""Fields without a column that are counted by name."""

OTHER_FIELDS: Final = "…"
"""Name under which all others are counted: random names shall not fill the memory."""

_NAME_SETS_MAX: Final = 1_000

_INT32: Final = msgspec.Meta(ge=-(2**31), le=2**31 - 1)
_INT64: Final = msgspec.Meta(ge=-(2**63), le=2**63 - 1)

_JSON_TYPES: Final[Mapping[pa.DataType, Any]] = MappingProxyType(
    {
        pa.bool_(): bool,
        pa.int32(): Annotated[int, _INT32],
        pa.int64(): Annotated[int, _INT64],
        pa.float32(): float,
        pa.float64(): float,
        pa.date32(): date,
        pa.timestamp("us", "UTC"): datetime,
    }
)
"""Types of values that are decoded as such; texts, arrays and objects are conformed later."""

_BAD_BODY: Final = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError)
"""Errors of a body alone; UnicodeError and Arrow's own are among ValueError."""


class FieldCounter:
    """Counts bodies with a value in a field that has no column, by the field's name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._names = frozenset(names)
        self._unknown: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

    def add(self, body: bytes) -> None:
        """Count the fields of a body that is an object."""
        values = self._decode(body)
        names = tuple(values)
        unknown = self._unknown.get(names)  # many bodies have the same names
        if unknown is None:
            if len(self._unknown) >= _NAME_SETS_MAX:
                self._unknown.clear()
            unknown = tuple(name for name in names if name not in self._names)
            self._unknown[names] = unknown
        for name in unknown:
            if bytes(values[name]) != b"null":
                add_counts(self.counts, {name: 1})


def add_counts(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Add counts by field, those of too many fields together."""
    for name, count in more.items():
        shown = name[:ERROR_LENGTH_MAX]
        is_room = shown in counts or len(counts) < COUNTED_FIELDS_MAX
        counts[shown if is_room else OTHER_FIELDS] += count


class BodyParser:
    """Parses bodies into the columns of these fields."""

    def __init__(
        self,
        fields: Sequence[BodyField],
        counter: FieldCounter | None = None,
        source: BodySchema | None = None,
    ) -> None:
        """`source` is the schema of bodies that are no JSON; their unknown fields do not count."""
        self._fields = fields
        self._counter = counter
        self.bad_bodies = 0
        """Bodies so far that got a reason in `body_error`."""
        self._unknown_parts: Counter[str] = Counter()
        self.schema = body_schema(fields)
        """The schema of `body_error` and the columns."""
        # Field names of bodies need not be identifiers, and some are Python's keywords.
        spec = [
            (
                f"field_{at}",
                kind | None if (kind := _JSON_TYPES.get(arrow_type(field.type))) else Any,
                msgspec.field(default=None, name=field.source),
            )
            for at, field in enumerate(fields)
        ]
        body = msgspec.defstruct("Body", spec)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(body).decode
        if source is not None:
            counter, self._counter = None, None
            self._decode = partial(_decode_by, decoder_of(source), body)
        self._none = body()
        self._decode_known = self._decode
        if counter is not None:
            known = msgspec.defstruct("KnownBody", spec, forbid_unknown_fields=True)
            self._decode_known = msgspec.json.Decoder(known).decode

    def add_columns(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each batch with `body_error` and the columns of the fields behind its own."""
        for batch in batches:
            schema = pa.schema([*batch.schema, *self.schema])
            columns = [*batch.columns, *self.parse(batch.column("body"))]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def parse(self, bodies: pa.Array, skipped: pa.Array | None = None) -> list[pa.Array]:
        """`body_error` and a column for each field; null in all of them where `skipped` is true."""
        rows, errors = list[Any](), list[str | None]()
        decode: Callable[[bytes], Any] = self._decode_known
        none = self._none
        flags = repeat(False) if skipped is None else skipped.to_pylist()
        for body, is_skipped in zip(bodies.to_pylist(), flags, strict=False):
            error = NO_BODY if body is None and not is_skipped else None
            row = none
            if body is not None and not is_skipped:
                try:
                    row = decode(body)
                except _BAD_BODY:  # for a field without a column, perhaps
                    decode = self._decode_counted
                    try:
                        row = decode(body)
                    except _BAD_BODY as reason:
                        error = _text(reason)
            rows.append(row)
            errors.append(error)
        columns = self._columns(rows, errors)
        if any(column is None for column in columns):  # a value that Arrow alone refused
            columns = self._columns(rows, errors)
        if self._counter is not None:
            add_counts(self._counter.counts, self._unknown_parts)
        reasons = pa.array(errors, pa.string())
        self.bad_bodies += len(reasons) - reasons.null_count
        return [reasons, *columns]

    def _decode_counted(self, body: bytes) -> Any:
        """Decode a body whatever its fields are, and count those without a column."""
        row = self._decode(body)
        if self._counter is not None:
            self._counter.add(body)
        return row

    def _columns(self, rows: list[Any], errors: list[str | None]) -> list[pa.Array | None]:
        """The columns of all fields; None for one in which some rows have turned out to be bad."""
        self._unknown_parts.clear()
        return [self._column(at, rows, errors) for at in range(len(self._fields))]

    def _conformed(
        self, field: BodyField, values: list[Any], rows: list[Any], errors: list[str | None]
    ) -> tuple[list[Any], bool]:
        """Texts, arrays and objects as Arrow takes them; True when some rows turn out to be bad."""
        kind, conformed, is_bad = arrow_type(field.type), list[Any](), False
        is_text = pa.types.is_string(kind)
        for number, value in enumerate(values):
            if value is None or (is_text and type(value) is str):
                conformed.append(value)
                continue
            unknown = set[str]()
            try:
                conformed.append(_conform(value, kind, field.source, unknown))
            except _BAD_BODY as reason:
                rows[number], errors[number] = self._none, f"{field.name}: {_text(reason)}"
                is_bad = True
            else:
                self._unknown_parts.update(unknown)
        return conformed, is_bad

    def _column(self, at: int, rows: list[Any], errors: list[str | None]) -> pa.Array | None:
        """The column of one field; None when some rows have turned out to be bad."""
        field, kind = self._fields[at], self.schema.types[at + 1]
        name = f"field_{at}"
        values = [getattr(row, name) for row in rows]
        if kind not in _JSON_TYPES:
            values, is_bad = self._conformed(field, values, rows, errors)
            if is_bad:
                return None
        try:
            return pa.array(values, kind)
        except _BAD_BODY:
            for number, value in enumerate(values):
                if (reason := _refusal(value, kind)) is not None:
                    rows[number], errors[number] = self._none, f"{field.name}: {reason}"
            return None


def _decode_by(decode: Decode, body: Any, data: bytes) -> Any:
    return msgspec.convert(decode(data), body)


def _conform(value: Any, kind: pa.DataType, path: str, unknown: set[str]) -> Any:
    """A value of JSON as one of an Arrow type; ValueError or msgspec's for one of another type.

    Parts of objects that the type does not have are added to `unknown` by their paths.
    """
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if type(value) is str else _json_text(value)
    if pa.types.is_struct(kind) and isinstance(value, dict):
        parts = {part.name: part.type for part in kind}
        unknown |= {f"{path}.{name}" for name in value.keys() - parts if value[name] is not None}
        return {
            name: _conform(value.get(name), part, f"{path}.{name}", unknown)
            for name, part in parts.items()
        }
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_conform(each, kind.value_type, path, unknown) for each in value]
    if pa.types.is_nested(kind):
        raise ValueError(f"{path} is no {'object' if pa.types.is_struct(kind) else 'array'}")
    return msgspec.convert(value, _JSON_TYPES[kind])


def _refusal(value: Any, kind: pa.DataType) -> str | None:
    """Why Arrow refuses a value; None if it does not."""
    try:
        pa.array([value], kind)
    except _BAD_BODY as error:
        return _text(error)
    return None


_json_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode


def _json_text(value: Any) -> str:
    return _json_encode(value).decode()


def _text(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:ERROR_LENGTH_MAX]
