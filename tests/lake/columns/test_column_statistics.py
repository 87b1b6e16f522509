"""Statistics of a file's columns hold for all of its rows, or there are none."""

import io
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.lake.columns.column_statistics import (
    PREFIX_LENGTH,
    ColumnStatistics,
    statistics_of,
    unbounded_columns,
)

LAST = "\U0010ffff"


def footer_of(*groups: pa.Table) -> pq.FileMetaData:
    """The footer of a file with these row groups."""
    file = io.BytesIO()
    with pq.ParquetWriter(file, groups[0].schema) as writer:
        for rows in groups:
            writer.write_table(rows)
    return pq.read_metadata(file)


def keys(*values: str | None) -> pa.Table:
    return pa.table({"key": pa.array(values, pa.string())})


def test_nulls_are_counted_beside_the_range_of_the_others() -> None:
    found = statistics_of(footer_of(keys("b", None), keys("a", None, None)), ["key"])
    assert found == ColumnStatistics(least={"key": "a"}, most={"key": "b"}, nulls={"key": 3})


@pytest.mark.parametrize("name", ["key", "added_later"])
def test_a_column_without_a_value_has_nulls_alone(name: str) -> None:
    assert statistics_of(footer_of(keys(None), keys(None)), [name]) == ColumnStatistics(
        nulls={name: 2}
    )


@pytest.mark.parametrize(
    ("key", "behind"),
    [
        ("k" * 256, "k" * 256),
        ("k" * 257, "k" * 256 + LAST),
        ("k" * 256 + LAST * 2 + "k", "k" * 256 + LAST * 3),
        ("k" * 256 + LAST, "k" * 256 + LAST),
    ],
    ids=["not cut", "cut", "cut behind the last character", "ends with it"],
)
def test_a_long_text_is_cut_to_bounds_that_hold(key: str, behind: str) -> None:
    found = statistics_of(footer_of(keys(key)), ["key"])
    assert (found.least["key"], found.most["key"]) == (key[:PREFIX_LENGTH], behind)
    assert found.least["key"] <= key <= found.most["key"]


def test_no_column_has_a_range_if_a_row_group_does_not_say_that_of_one() -> None:
    """Parquet keeps no bounds of more than 4 KiB."""
    rows = [keys(key).append_column("queue_id", pa.array([7])) for key in ("a", "z" * 5_000)]
    footer = footer_of(*rows)
    assert unbounded_columns(footer) == {"key"}
    nulls = {"key": 0, "queue_id": 0}
    assert statistics_of(footer, ["key", "queue_id"]) == ColumnStatistics(nulls=nulls)
    assert statistics_of(footer, ["queue_id"]).least == {"queue_id": 7}


def test_times_have_one_form_so_that_they_compare_as_text() -> None:
    times = [datetime(2026, 1, 31, 5, 0, 0, 1, UTC), datetime(2026, 1, 31, 5, tzinfo=UTC)]
    rows = pa.table({"stored_at": pa.array(times, pa.timestamp("us", "UTC"))})
    found = statistics_of(footer_of(rows), ["stored_at"])
    assert found.least == {"stored_at": "2026-01-31T05:00:00.000000+00:00"}
    assert found.most == {"stored_at": "2026-01-31T05:00:00.000001+00:00"}
