"""Bodies become columns row by row; a bad one has a reason, and stops nothing."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.columns.body_columns import BODY_ERROR, BodyField, parse_fields
from roquet.lake.columns.body_parser import (
    COUNTED_FIELDS_MAX,
    ERROR_LENGTH_MAX,
    NO_BODY,
    OTHER_FIELDS,
    BodyParser,
    FieldCounter,
)
from roquet.lake.columns.body_types import FIELD_TYPES
from roquet.model.errors import ConfigError

ALL = tuple(BodyField(f"a_{name}", name) for name in FIELD_TYPES)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def parsed(schema: str, *bodies: bytes | None) -> list[dict[str, Any]]:
    parser = BodyParser(parse_fields(schema))
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    [rows] = parser.add_columns([batch])
    return [{name: row[name] for name in row if name != "body"} for row in rows.to_pylist()]


def counted(schema: str, *bodies: bytes | None) -> dict[str, int]:
    counter = FieldCounter(field.source for field in parse_fields(schema))
    parser = BodyParser(parse_fields(schema), counter)
    for body in bodies:
        parser.parse(pa.array([body, body], pa.binary()))
    return counter.counts


def test_fields_without_a_column_are_counted_in_every_body() -> None:
    assert counted(
        "id bigint, on=day date",
        b'{"id": 7, "crew": 1, "ID": 2}',
        b'{"day": "2026-01-31", "crew": {"a": [null]}, "x": null, "on": "", "": 0}',
        b'{"id": 1}',
        b"{}",
        b"[1]",
        b'{"id": "wrong", "lost": 1}',
        b'{"id": 1, "cut": ',
        None,
    ) == {"crew": 4, "ID": 2, "on": 2, "": 2}


def test_bodies_of_random_fields_do_not_fill_the_memory() -> None:
    names = [b"%04d%b" % (number, b"x" * 300) for number in range(COUNTED_FIELDS_MAX + 50)]
    found = counted("id bigint", *(b'{"%b": 1}' % name for name in names))
    assert (len(found), found[OTHER_FIELDS]) == (COUNTED_FIELDS_MAX + 1, 100)
    assert max(map(len, found)) == ERROR_LENGTH_MAX


def test_fields_are_columns_and_absent_ones_are_null() -> None:
    rows = parsed(
        "id bigint, name string, price double, paid boolean, on date, at timestamp",
        b'{"id": 7, "name": "x", "price": 2, "paid": true, "on": "2026-01-31",'
        b' "at": "2026-01-31T12:00:00+02:00", "more": [1]}',
        b'{"id": null, "at": "2026-01-31T12:00:00"}',
    )
    assert rows == [
        {
            BODY_ERROR: None,
            "id": 7,
            "name": "x",
            "price": 2.0,
            "paid": True,
            "on": date(2026, 1, 31),
            "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
        },
        {
            BODY_ERROR: None,
            "id": None,
            "name": None,
            "price": None,
            "paid": None,
            "on": None,
            "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        },
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no json", "malformed"),
        (b"", "truncated"),
        (b'{"id": 1', "truncated"),
        (b'{"id": 1}}', "malformed"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"id": "1"}', r"Expected `int \| null`, got `str` - at `\$.id`"),
        (b'{"id": 1.5}', "Expected `int"),
        (b'{"id": 99999999999}', "Expected `int`"),
        (b'{"id": 1, "name": "\xff"}', "Invalid UTF-8|invalid"),
        (b"[" * 100_000, "recursion|malformed|truncated|object"),
        (None, NO_BODY),
    ],
)
def test_a_bad_body_has_a_reason_and_no_fields(body: bytes | None, reason: str) -> None:
    good = {BODY_ERROR: None, "id": 3, "name": "ok"}
    whole = b'{"id": 3, "name": "ok"}'
    [before, bad, after] = parsed("id int, name string", whole, body, whole)
    assert before == after == good, "the others are parsed"
    error = bad.pop(BODY_ERROR)
    assert bad == {"id": None, "name": None}
    assert pa.compute.match_substring_regex(pa.scalar(error), reason).as_py(), error


def test_two_broken_bodies_do_not_make_a_whole_one() -> None:
    rows = parsed("id int", b'{"id": 1', b"}", b'{"id": 1}{"id": 2}', b"")
    assert [row["id"] for row in rows] == [None] * 4
    assert all(row[BODY_ERROR] for row in rows)


def test_a_text_column_keeps_other_values_as_json() -> None:
    rows = parsed("a string", b'{"a": {"b": [1, null]}}', b'{"a": 1.5}', b'{"a": "x"}')
    assert [row["a"] for row in rows] == ['{"b":[1,null]}', "1.5", "x"]


def test_names_may_be_words_of_python() -> None:
    assert parsed("class int, self int, field_0 int", b'{"class": 1, "self": 2, "field_0": 3}') == [
        {BODY_ERROR: None, "class": 1, "self": 2, "field_0": 3}
    ]


def test_a_reason_has_a_length() -> None:
    name = "x" * 100
    [row] = parsed(f"{name} int", b'{"%b": "no"}' % name.encode())
    assert len(row[BODY_ERROR]) <= ERROR_LENGTH_MAX


@given(
    st.lists(st.binary() | JSON_VALUES.map(lambda value: json.dumps(value).encode()), max_size=9)
)
def test_no_body_stops_a_batch(bodies: list[bytes]) -> None:
    [errors, *columns] = BodyParser(ALL).parse(pa.array(bodies, pa.binary()))
    assert all(len(column) == len(bodies) for column in (errors, *columns))


@given(st.dictionaries(st.sampled_from([field.name for field in ALL]), JSON_VALUES, max_size=8))
def test_an_object_has_its_values_or_a_reason(value: dict[str, Any]) -> None:
    [errors, *columns] = BodyParser(ALL).parse(pa.array([json.dumps(value)], pa.binary()))
    assert [column.type for column in columns] == list(FIELD_TYPES.values())
    if errors[0].as_py() is not None:
        assert all(column.null_count == 1 for column in columns)
    else:
        nulls = {
            field.name for field, column in zip(ALL, columns, strict=True) if column.null_count
        }
        assert nulls == {field.name for field in ALL if value.get(field.name) is None}


def test_a_column_without_fields_is_the_reason_alone() -> None:
    [errors] = BodyParser(()).parse(pa.array([b"{}", b"x"], pa.binary()))
    assert errors[0].as_py() is None
    assert errors[1].as_py()


def test_a_body_of_any_depth_is_a_row_of_its_own() -> None:
    bodies = [b'{"a":' + b"[" * depth + b"]" * depth + b"}" for depth in range(850, 1_050)]
    rows = parsed("a string", *bodies, b'{"a": "last"}')
    assert len(rows) == len(bodies) + 1
    assert rows[-1] == {BODY_ERROR: None, "a": "last"}
    assert all((row["a"] is None) == (row[BODY_ERROR] is not None) for row in rows)


def test_names_that_partitions_or_engines_use_are_no_fields() -> None:
    for name in ("key_bucket", "_pos", "day"):
        with pytest.raises(ConfigError, match=name):
            parse_fields(f"{name} int")
