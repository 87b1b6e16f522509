"""Typed columns of bodies: JSON by Spark's own `from_json`, Avro and Protobuf by schema files.

    frame = read_json(spark, {"namesrv": "127.0.0.1:9876", "topic": "orders"}, "id long, sum int")
    frame = typed(messages, read_schema_file("avro", "order.avsc"))

The Python source returns bytes; Spark's JVM parses JSON, many times faster than Python could.
Workers parse the other formats, a batch of Arrow at a time.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from roquet.lake.columns.body_schemas import BodySchema, columns_of, read_schema_file
from roquet.model.errors import ConfigError, UsageError
from roquet.model.settings import suggest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["BodySchema", "Mode", "fields_of", "read_json", "read_schema_file", "typed"]

Mode: TypeAlias = Literal["permissive", "failfast", "dropmalformed"]

CORRUPT_RECORD: Final = "_corrupt_record"
"""Field (string) that holds the text of a body that does not parse, when the schema has it."""

_PARSED: Final = "_roquet_parsed"

_OWN_OPTIONS: Final = frozenset({"bodyformat", "bodyschema"})


def read_json(
    spark: "SparkSession",
    options: Mapping[str, str],
    schema: "StructType | str | None" = None,
    *,
    mode: Mode = "permissive",
    stream: bool = False,
) -> "DataFrame":
    """A DataFrame of `format("roquet")` with these options and the bodies' fields as columns.

    The schema may also be given in the options, as `bodySchema` with `bodyFormat=json`.
    """
    spelling = {name.lower(): name for name in options}
    text = options[spelling["bodyformat"]] if "bodyformat" in spelling else "json"
    if text.strip().lower() != "json":
        raise ConfigError(f"bodyFormat: {text!r} is not json")
    if schema is None and "bodyschema" in spelling:
        schema = options[spelling["bodyschema"]]
    if schema is None:
        raise ConfigError("the bodies need a schema: read_json(spark, options, 'id long, sum int')")
    rest = {name: text for name, text in options.items() if name.lower() not in _OWN_OPTIONS}
    reader = spark.readStream if stream else spark.read
    return typed(reader.format("roquet").options(**rest).load(), schema, mode=mode)


def typed(
    frame: "DataFrame",
    schema: "StructType | str | BodySchema",
    *,
    mode: Mode = "permissive",
    into: str | None = None,
) -> "DataFrame":
    """The frame with the fields of its bodies instead of column `body`.

    `schema` is a StructType, its JSON, or SQL: `id long, items array<string>`; for bodies in Avro
    or Protobuf it is that of their schema file (`read_schema_file`). `into` names one
    struct column for all fields, for fields called like a message's columns. For a body that does
    not parse, `permissive` gives null fields (and the text in a field `_corrupt_record`, when the
    schema has one), `failfast` raises, `dropmalformed` drops the row.
    """
    from pyspark.sql import functions

    if mode not in (modes := get_args(Mode)):
        raise ConfigError(f"mode {mode!r} is none of {', '.join(modes)}{suggest(mode, modes)}")
    if isinstance(schema, BodySchema):
        return _typed_by_file(frame, schema, mode, into)
    fields = fields_of(schema)
    _check_names(frame.columns, fields.fieldNames(), into)
    json_fields = _with_corrupt(fields) if mode == "dropmalformed" else fields
    json_mode = {"mode": "FAILFAST" if mode == "failfast" else "PERMISSIVE"}
    text = functions.col("body").cast("string")
    parsed = frame.withColumn(_PARSED, functions.from_json(text, json_fields, json_mode))
    if mode == "dropmalformed":
        is_whole = functions.col(f"{_PARSED}.{CORRUPT_RECORD}").isNull()
        parsed = parsed.where(functions.col(_PARSED).isNotNull() & is_whole)
    other_columns = [functions.col(name) for name in frame.columns if name != "body"]
    columns = [functions.col(_PARSED)[name].alias(name) for name in fields.fieldNames()]
    return parsed.select(
        *other_columns, *([functions.struct(*columns).alias(into)] if into else columns)
    )


def _typed_by_file(
    frame: "DataFrame", source: BodySchema, mode: Mode, into: str | None
) -> "DataFrame":
    from pyspark.sql.types import StructField, StructType

    columns = columns_of(source)
    _check_names(frame.columns, [column.name for column in columns], into)
    fields = fields_of(", ".join(f"`{column.name}` {column.type}" for column in columns))
    kept = [field for field in frame.schema.fields if field.name != "body"]
    made = [StructField(into, fields)] if into else fields.fields
    parse = partial(parse_batches, source=source, mode=mode, into=into)
    return frame.mapInArrow(parse, StructType([*kept, *made]))


def parse_batches(
    batches: "Iterable[pa.RecordBatch]", *, source: BodySchema, mode: Mode, into: str | None
) -> "Iterator[pa.RecordBatch]":
    """Batches with the fields of their bodies instead of column `body`, as `typed` says."""
    import pyarrow as pa

    from roquet.lake.columns.body_parser import BodyParser

    parser = BodyParser(columns_of(source), source=source)
    for batch in batches:
        errors, *values = parser.parse(batch.column("body"))
        if mode == "failfast" and parser.bad_bodies:
            raise UsageError(f"a body that does not parse: {errors.drop_null()[0].as_py()}")
        names = parser.schema.names[1:]
        if into:
            values, names = [pa.StructArray.from_arrays(values, names)], [into]
        others = [name for name in batch.schema.names if name != "body"]
        rows = pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in others), *values], [*others, *names]
        )
        yield rows.filter(errors.is_null()) if mode == "dropmalformed" else rows


def fields_of(schema: "StructType | str") -> "StructType":
    """The bodies' schema as a StructType; ConfigError when it has no fields or does not parse."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        fields = schema if isinstance(schema, StructType) else _parse_schema(schema.strip())
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(f"bodySchema: {schema!r} is no schema: {reason}") from None
    if not isinstance(fields, StructType) or not fields.fields:
        raise ConfigError(f"bodySchema: {schema!r} has no fields: 'id long, sum int' has two")
    return fields


def _parse_schema(text: str) -> "DataType":
    from pyspark.sql.types import StructType

    if text.startswith("{"):
        return StructType.fromJson(json.loads(text))
    return StructType.fromDDL(text)


def _with_corrupt(fields: "StructType") -> "StructType":
    from pyspark.sql.types import StructType

    return (
        fields
        if CORRUPT_RECORD in fields.fieldNames()
        else StructType(fields.fields).add(CORRUPT_RECORD, "string")
    )


def _check_names(columns: list[str], fields: list[str], into: str | None) -> None:
    if "body" not in columns:
        raise ConfigError("the frame has no column 'body': read it with the others")
    taken = {name.lower() for name in columns if name != "body"}
    for name in [into] if into else fields:
        if name.lower() in taken:
            raise ConfigError(
                f"field {name!r} is a column of the message, too: choose fewer columns, or put the "
                "fields into one column of their own: typed(frame, schema, into='value')"
            )
