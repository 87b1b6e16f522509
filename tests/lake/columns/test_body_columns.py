"""Body columns: a schema in words, columns that are added and never changed."""

import pyarrow as pa
import pytest

from roquet.lake.columns.body_columns import (
    BODY_ERROR,
    FIELDS_MAX,
    BodyField,
    body_schema,
    check_format,
    fields_of,
    file_schema,
    may_be_column,
    new_fields,
    parse_fields,
)
from roquet.lake.columns.body_types import FIELD_TYPES
from roquet.lake.columns.partitioning import schema_of
from roquet.model.errors import ConfigError

ID = BodyField("id", "bigint")


def test_a_schema_is_written_as_spark_writes_it() -> None:
    assert parse_fields("id long, `name` STRING, paid: bool,") == (
        ID,
        BodyField("name", "string"),
        BodyField("paid", "boolean"),
    )
    assert parse_fields("a Array<Struct<x: long, Y:array<int>>>, b:struct<c:date,d:int>") == (
        BodyField("a", "array<struct<x:bigint,Y:array<int>>>"),
        BodyField("b", "struct<c:date,d:int>"),
    )
    assert parse_fields("  ") == ()


def test_a_column_may_have_another_name_than_its_field() -> None:
    assert parse_fields("flight_day=day int, ID=id bigint, `no`=`flight-no` string", "b_") == (
        BodyField("flight_day", "int", "day"),
        BodyField("ID", "bigint", "id"),
        BodyField("no", "string", "flight-no"),
    )
    assert parse_fields("day int, b=b int", "b_") == (
        BodyField("b_day", "int", "day"),
        BodyField("b", "int"),
    )


def test_a_column_of_another_name_is_known_from_the_schema_of_a_table() -> None:
    comments = [{"roquet.field": "day"}, {"doc": "roquet.field=day"}, {"doc": "the day"}, None]
    fields = [pa.field("b_day", pa.int32(), metadata=each) for each in comments]
    found = [fields_of(pa.schema([each]))[0].source for each in fields]
    assert found == ["day", "day", "b_day", "b_day"]


def test_a_field_has_one_column() -> None:
    with pytest.raises(ConfigError, match="has the column id bigint, which cannot become b_id=id"):
        new_fields([ID], parse_fields("id bigint", "b_"), "lake")
    assert (
        new_fields(parse_fields("id bigint", "b_"), parse_fields("id bigint", "b_"), "lake") == ()
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id", "id has the type ''.*types are boolean, int, bigint"),
        ("id strnig", "did you mean 'string'"),
        ("items array<strnig>", "items has the type 'strnig'; did you mean 'string'"),
        ("items struct<>", "items is a struct without fields"),
        ("items struct<a b:int>", "items has the type 'a b:int'"),
        ("items array<int", "items has the type 'array<int'"),
        ("user-id int", "'user-id int' is not NAME TYPE"),
        ("id int, ID int", "field 'ID' is named twice"),
        ("id int, b=id int", "field 'b' is named twice"),
        ("Key string", "'Key' is a column of every archive.*'body_Key=Key string'"),
        ("day=flight_day int", "'day' is a column of every archive"),
        ("body_error string", "'body_error' is a column of every archive"),
    ],
)
def test_what_is_no_schema_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"--body-schema: {says}|{says}"):
        parse_fields(text)


def test_a_field_is_added_and_a_column_keeps_its_type() -> None:
    assert new_fields([ID], [ID, BodyField("name", "string")], "lake") == (
        BodyField("name", "string"),
    )
    for changed in (BodyField("id", "string"), BodyField("ID", "bigint")):
        with pytest.raises(ConfigError, match="has the column id bigint, which cannot become"):
            new_fields([ID], [changed], "lake")


def test_a_table_has_not_too_many_columns() -> None:
    many = [BodyField(f"f{at}", "int") for at in range(FIELDS_MAX)]
    assert len(new_fields([], many, "lake")) == FIELDS_MAX
    with pytest.raises(ConfigError, match=f"more than {FIELDS_MAX} fields"):
        new_fields([ID], many, "lake")


def test_fields_are_found_in_the_schema_of_the_table() -> None:
    fields = tuple(BodyField(f"a_{name}", name) for name in FIELD_TYPES)
    schema = file_schema(("broker", "body", "stored_at"), fields)
    assert schema.names[:4] == ["broker", "body", "stored_at", BODY_ERROR]
    assert fields_of(schema) == fields
    theirs = [
        pa.field("day", pa.date32()),
        pa.field("text", pa.large_string()),
        pa.field("view", pa.string_view()),
        pa.field("at", pa.timestamp("us", "+00:00")),
        pa.field("struct", pa.struct({"a": pa.int32()})),
    ]
    assert fields_of(pa.schema([*schema_of(("broker",)), *theirs])) == (
        BodyField("text", "string"),
        BodyField("view", "string"),
        BodyField("at", "timestamp"),
        BodyField("struct", "struct<a:int>"),
    )


def test_bodies_that_are_not_parsed_have_no_columns() -> None:
    assert file_schema(("broker", "body"), None) == schema_of(("broker", "body"))
    assert body_schema(()).names == [BODY_ERROR]


@pytest.mark.parametrize("name", ["a b", "ünïcode", "", "1a", "x" * 200, "Topic", "day", "a.b"])
def test_not_every_name_can_be_a_column(name: str) -> None:
    assert not may_be_column(name)
    assert may_be_column("carrier_1")


def test_bad_bodies_need_a_column_to_stay_in() -> None:
    check_format("json", ("body",))
    check_format("", ())
    with pytest.raises(ConfigError, match="needs the column 'body'"):
        check_format("json", ("broker",))
    with pytest.raises(ConfigError, match="say --avro FILE"):
        check_format("avro", ("body",))
    check_format("avro", ("body",), has_source=True)
    with pytest.raises(ConfigError, match="'xml' is not json"):
        check_format("xml", ("body",))
