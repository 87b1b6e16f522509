"""Column check: what another writer may have done to the columns of a table."""

import pyarrow as pa
import pytest

from roquet.lake.columns.column_check import check_columns
from roquet.model.errors import ConfigError

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
