"""Avro and Protobuf bodies become columns by the schema of whoever writes them."""

import base64
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.columns.body_columns import AVRO, BODY_ERROR, PROTOBUF
from roquet.lake.columns.body_parser import BodyParser
from roquet.lake.columns.body_schemas import BodySchema, columns_of, read_schema_file
from roquet.model.errors import ConfigError

fastavro = pytest.importorskip("fastavro", reason="pip install 'roquet[avro]'")
descriptor_pb2 = pytest.importorskip(
    "google.protobuf.descriptor_pb2", reason="pip install 'roquet[protobuf]'"
)
any_pb2 = pytest.importorskip("google.protobuf.any_pb2")

BUYER = {"type": "record", "name": "Buyer", "fields": [{"name": "name", "type": "string"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {"name": "sum", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {"name": "buyer", "type": BUYER},
        {"name": "payer", "type": ["null", "Buyer"]},
        {"name": "key", "type": "int"},
    ],
}  # fmt: skip
VALUES: dict[str, Any] = {
    "id": 2**40, "paid": True, "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "on": date(2026, 1, 31), "sum": Decimal("1.50"), "state": "PAID", "tags": ["a", "b"],
    "more": {"x": 1}, "buyer": {"name": "ann"}, "payer": None, "key": 7,
}  # fmt: skip
AVRO_SCHEMA = BodySchema(format=AVRO, text=json.dumps(ORDER))


def avro(values: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), values)
    return stream.getvalue()


def parsed(schema: BodySchema, *bodies: bytes | None) -> list[dict[str, Any]]:
    parser = BodyParser(columns_of(schema), source=schema)
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    [rows] = parser.add_columns([batch])
    return [{name: row[name] for name in row if name != "body"} for row in rows.to_pylist()]


def test_an_avro_record_becomes_columns() -> None:
    assert [f"{field.name} {field.type}" for field in columns_of(AVRO_SCHEMA)] == [
        "id bigint", "paid boolean", "at timestamp", "on date", "sum string", "state string",
        "tags array<string>", "more string", "buyer struct<name:string>",
        "payer struct<name:string>", "body_key int",
    ]  # fmt: skip
    [row] = parsed(AVRO_SCHEMA, avro(VALUES))
    expected = {**VALUES, "sum": "1.50", "more": '{"x":1}', "body_key": 7, BODY_ERROR: None}
    del expected["key"]
    assert row == expected


def test_columns_have_the_prefix_that_is_said() -> None:
    names = [field.name for field in columns_of(AVRO_SCHEMA, "o_")]
    assert (names[0], names[-1]) == ("o_id", "o_key")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no Avro record of this schema: EOFError"),
        (avro(VALUES)[:-1], "no Avro record"),
        (avro(VALUES) + b"x", "bytes are left behind it"),
        (b"\xff" * 40, "no Avro record"),
        (None, "the message has no body"),
    ],
)
def test_a_bad_avro_body_has_its_reason_and_stops_nothing(body: bytes | None, reason: str) -> None:
    bad, good = parsed(AVRO_SCHEMA, body, avro(VALUES))
    assert reason in bad[BODY_ERROR]
    assert bad["id"] is None
    assert good["id"] == 2**40


@pytest.mark.parametrize(
    "items", ["null", {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}]
)
def test_arrays_of_items_without_bytes_are_refused(items: Any) -> None:
    field = {"name": "all", "type": {"type": "array", "items": items}}
    text = json.dumps({"type": "record", "name": "R", "fields": [field]})
    with pytest.raises(ConfigError, match="an array of empty items has no bound"):
        columns_of(BodySchema(format=AVRO, text=text))


def test_a_body_deeper_than_any_stack_stops_nothing() -> None:
    fields = [{"name": "next", "type": ["null", "Item"]}, {"name": "x", "type": "int"}]
    items = {"type": "record", "name": "Item", "namespace": "shop", "fields": fields}
    schema = BodySchema(format=AVRO, text=json.dumps(items))
    deep, good = parsed(schema, b"\2" * 500_000, b"\2\0\4\6")
    assert "RecursionError" in deep[BODY_ERROR]
    assert (good["x"], good["next"]["x"], good[BODY_ERROR]) == (3, 2, None)


def order_descriptors() -> Any:
    """What protoc makes of a message with fields of several kinds."""
    kinds = descriptor_pb2.FieldDescriptorProto
    stamps = descriptor_pb2.FileDescriptorProto(
        name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3"
    )
    stamp = stamps.message_type.add(name="Timestamp")
    stamp.field.add(name="seconds", number=1, type=kinds.TYPE_INT64, label=1)
    stamp.field.add(name="nanos", number=2, type=kinds.TYPE_INT32, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    file.dependency.append(stamps.name)
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    file.message_type.add(name="Buyer").field.add(
        name="name", number=1, type=kinds.TYPE_STRING, label=1
    )
    order = file.message_type.add(name="Order")
    fields = (
        ("id", kinds.TYPE_UINT64, 1, ""), ("price", kinds.TYPE_DOUBLE, 1, ""),
        ("raw", kinds.TYPE_BYTES, 1, ""), ("state", kinds.TYPE_ENUM, 1, ".shop.State"),
        ("tags", kinds.TYPE_STRING, 3, ""), ("buyer", kinds.TYPE_MESSAGE, 1, ".shop.Buyer"),
        ("at", kinds.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
        ("more", kinds.TYPE_MESSAGE, 3, ".shop.Order.MoreEntry"),
        ("parent", kinds.TYPE_MESSAGE, 1, ".shop.Order"),
    )  # fmt: skip
    for number, (name, kind, label, type_name) in enumerate(fields, 1):
        named = {"type_name": type_name} if type_name else {}
        order.field.add(name=name, number=number, type=kind, label=label, **named)
    entry = order.nested_type.add(name="MoreEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    return descriptor_pb2.FileDescriptorSet(file=[stamps, file])


@pytest.fixture
def protobuf(tmp_path: Path) -> BodySchema:
    path = tmp_path / "order.desc"
    path.write_bytes(order_descriptors().SerializeToString())
    return read_schema_file(PROTOBUF, str(path), "shop.Order")


def test_a_protobuf_message_becomes_columns(protobuf: BodySchema) -> None:
    types = {field.name: field.type for field in columns_of(protobuf)}
    assert types.pop("parent").startswith("struct<id:bigint,price:double,")
    assert types == {
        "id": "bigint", "price": "double", "raw": "string", "state": "string",
        "tags": "array<string>", "buyer": "struct<name:string>", "at": "timestamp",
        "more": "string",
    }  # fmt: skip
    body = bytes.fromhex(
        "0805" "11000000000000f83f" "1a0161" "2001" "2a0162" "32050a03616e6e"
        "3a0708804010c0843d" "42050a01781001"
    )  # fmt: skip
    [row] = parsed(protobuf, body)
    assert {name: row[name] for name in types} == {
        "id": 5, "price": 1.5, "raw": "YQ==", "state": "PAID", "tags": ["b"],
        "buyer": {"name": "ann"}, "at": datetime(1970, 1, 1, 2, 16, 32, 1000, tzinfo=UTC),
        "more": '{"x":1}',
    }  # fmt: skip
    assert (row["parent"], row[BODY_ERROR]) == (None, None)


def test_a_bad_protobuf_body_has_its_reason_and_stops_nothing(protobuf: BodySchema) -> None:
    huge = bytes.fromhex("08ffffffffffffffffff01")
    bad, beyond, empty = parsed(protobuf, b"\xff\xff", huge, b"")
    assert "no Protobuf message of this type" in bad[BODY_ERROR]
    assert bad["id"] is None
    assert beyond[BODY_ERROR] is not None, "an unsigned number beyond bigint"
    assert (empty["id"], empty["tags"], empty["buyer"], empty[BODY_ERROR]) == (0, [], None, None)


def test_an_any_of_an_unknown_type_stops_nothing() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    any_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    kinds = descriptor_pb2.FieldDescriptorProto
    file = files.file.add(name="n.proto", syntax="proto3", dependency=[files.file[0].name])
    file.message_type.add(name="Note").field.add(
        name="about", number=1, type=kinds.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Any"
    )
    text = base64.b64encode(files.SerializeToString()).decode()
    body = any_pb2.Any(type_url="x/shop.Unknown", value=b"x").SerializeToString()
    schema = BodySchema(format=PROTOBUF, text=text, message_type="Note")
    bad, good = parsed(schema, bytes((0x0A, len(body))) + body, b"")
    assert "Can not find message descriptor" in bad[BODY_ERROR]
    assert (good["about"], good[BODY_ERROR]) == (None, None)


@pytest.mark.parametrize(
    ("body_format", "data", "text"),
    [
        (AVRO, b"{", "no Avro schema"),
        (AVRO, b'"string"', "of a record"),
        (AVRO, b'{"type": "record", "name": "R", "fields": []}', "has no fields"),
        (PROTOBUF, b"\xff", "make it by `protoc --include_imports"),
        (PROTOBUF, b"", "no message 'shop.Odrer' among none"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(
    tmp_path: Path, body_format: str, data: bytes, text: str
) -> None:
    path = tmp_path / "schema"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=text):
        read_schema_file(body_format, str(path), "shop.Odrer")
    with pytest.raises(ConfigError, match="No such file"):
        read_schema_file(body_format, str(tmp_path / "nothing"))


def test_a_misspelt_message_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "order.desc"
    path.write_bytes(order_descriptors().SerializeToString())
    with pytest.raises(ConfigError, match=r"did you mean 'shop\.Order'"):
        read_schema_file(PROTOBUF, str(path), "shop.Ordre")


@given(st.binary(max_size=60))
def test_no_body_stops_a_batch(body: bytes) -> None:
    assert len(parsed(AVRO_SCHEMA, body)) == 1
