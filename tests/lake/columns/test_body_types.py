"""Types of body columns in words: what is written is read again, and other types are left alone."""

import pyarrow as pa
import pytest

from roquet.lake.columns.body_types import DEPTH_MAX, FIELD_TYPES, arrow_type, split_list, type_text

NESTED = "array<struct<sku:string,parts:array<struct<on:date,n:int>>>>"


@pytest.mark.parametrize("text", [*FIELD_TYPES, NESTED, "struct<a:array<double>>"])
def test_a_type_that_is_written_is_read_again(text: str) -> None:
    assert type_text(arrow_type(text)) == text


def test_libraries_return_some_types_in_several_forms() -> None:
    theirs = pa.large_list(pa.struct([("a", pa.large_string()), ("b", pa.timestamp("us", "Z"))]))
    assert type_text(theirs) == "array<struct<a:string,b:timestamp>>"


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal128(5, 2),
        pa.timestamp("us"),
        pa.struct([]),
        pa.struct([("a b", pa.int32())]),
        pa.list_(pa.binary()),
        pa.map_(pa.string(), pa.string()),
    ],
    ids=str,
)
def test_columns_of_other_types_are_left_to_who_added_them(kind: pa.DataType) -> None:
    assert type_text(kind) is None


@pytest.mark.parametrize(
    "text", ["", "array", "array<>", "map<string,int>", "int<int>", "array<int>x", "struct<a>"]
)
def test_what_is_no_type_is_named(text: str) -> None:
    with pytest.raises(KeyError):
        arrow_type(text)


def test_a_type_has_an_end() -> None:
    with pytest.raises(KeyError):
        arrow_type("array<" * (DEPTH_MAX + 2) + "int" + ">" * (DEPTH_MAX + 2))


def test_a_list_is_split_outside_of_brackets() -> None:
    assert list(split_list("a int, b struct<c:int,d:struct<e:int,f:int>>,, g int ")) == [
        "a int", "b struct<c:int,d:struct<e:int,f:int>>", "", "g int"
    ]  # fmt: skip
