"""Rows go to the day in which they were stored, in UTC."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.columns import partitioning
from roquet.lake.columns.partitioning import (
    NO_DAY,
    archive_columns,
    check_columns,
    day_of,
    schema_of,
    split_by_day,
)
from roquet.lake.schema import DEFAULT
from roquet.model.errors import ConfigError

SCHEMA = schema_of(("queue_offset", "stored_at"))

MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - UTC below


def batch(*stored: datetime | None) -> pa.RecordBatch:
    rows: dict[str, list[Any]] = {"queue_offset": list(range(len(stored))), "stored_at": [*stored]}
    return pa.RecordBatch.from_pydict(rows, schema=SCHEMA)


@given(st.lists(st.none() | MOMENTS))
def test_each_row_is_in_its_own_day_and_no_other(moments: list[datetime | None]) -> None:
    stored = [moment and moment.replace(tzinfo=UTC) for moment in moments]
    rows_by_day = {day: rows.to_pylist() for day, rows in split_by_day(batch(*stored))}
    assert all(rows_by_day.values()), "no day is empty"
    rows = [(row["queue_offset"], day) for day, rows in rows_by_day.items() for row in rows]
    wanted = [str(moment.date()) if moment else NO_DAY for moment in stored]
    assert sorted(rows) == list(enumerate(wanted))


def test_one_day_is_passed_on_without_a_copy() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    rows = batch(noon, noon + timedelta(hours=11))
    [(day, day_rows)] = split_by_day(rows)
    assert day == "2026-01-31"
    assert day_rows is rows


def test_a_day_ends_at_midnight_in_utc_to_the_microsecond() -> None:
    midnight = datetime(2026, 2, 1, tzinfo=UTC)
    rows_by_day = dict(split_by_day(batch(midnight - timedelta(microseconds=1), midnight)))
    assert {day: len(rows) for day, rows in rows_by_day.items()} == {
        "2026-01-31": 1,
        "2026-02-01": 1,
    }


def test_a_partition_is_named_by_its_day() -> None:
    assert day_of("2026-01-31") == date(2026, 1, 31)
    assert day_of(NO_DAY) is None


def test_the_default_columns_are_those_of_a_message() -> None:
    assert archive_columns(()) == archive_columns(None) == DEFAULT


@pytest.mark.parametrize("name", partitioning.REQUIRED_COLUMNS)
def test_columns_that_identify_a_message_cannot_be_left_out(name: str) -> None:
    with pytest.raises(ConfigError, match=f"needs the column '{name}'"):
        archive_columns([column for column in DEFAULT if column != name])


def test_a_column_that_there_is_not_is_named_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'body'"):
        archive_columns([*partitioning.REQUIRED_COLUMNS, "bdoy"])


WANTED = pa.schema(
    {
        "queue_id": pa.int32(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "stored_at": pa.timestamp("us", "UTC"),
    }
)


TABLE = WANTED.append(pa.field("note", pa.string()))


def test_columns_that_are_added_are_no_harm() -> None:
    check_columns(WANTED, WANTED, "lake")
    check_columns(TABLE, WANTED, "lake")


def test_types_may_be_those_of_another_library_or_wider() -> None:
    texts = pa.large_string()
    kinds = {
        "queue_id": pa.int64(),
        "body": pa.large_binary(),
        "properties": pa.map_(texts, pa.string_view()),
        "stored_at": pa.timestamp("us", "+00:00"),
    }
    check_columns(pa.schema(kinds), WANTED, "lake")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (TABLE.remove(1), "lake has no column 'body' any more: another writer changed the table"),
        (
            TABLE.set(1, pa.field("body", pa.string())),
            "lake has the column 'body' as string and not as binary: another writer changed",
        ),
        (
            TABLE.set(3, pa.field("stored_at", pa.timestamp("us"))),
            r"'stored_at' as timestamp\[us\] and not as timestamp\[us, tz=UTC\]",
        ),
        (
            TABLE.set(4, pa.field("note", pa.string(), nullable=False)),
            "lake requires a value in the column 'note', which no message has",
        ),
    ],
)
def test_a_change_that_files_do_not_fit_is_a_sentence(table: pa.Schema, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_columns(table, WANTED, "lake")
