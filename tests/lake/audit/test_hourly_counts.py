"""Messages by hour, by a producer's own count."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.lake.audit.findings import HOUR_MS
from roquet.lake.audit.hourly_counts import hour_text, read_producer_counts
from roquet.model.errors import ConfigError

NOON = 1_769_860_800_000 // HOUR_MS


ROWS = [
    {"hour": "2026-01-31T12:00", "topic": "orders", "count": 5},
    {"hour": "2026-01-31T13:30+01:00", "topic": "orders", "count": 2},
    {"hour": NOON * HOUR_MS + 3_600_000, "count": 1},
    {"hour": "2026-01-31T12:00", "topic": "paid", "count": 100},
]


def test_a_producers_counts_are_rows_of_json(tmp_path: Path) -> None:
    for text in (json.dumps(ROWS), "\n".join(map(json.dumps, ROWS))):
        (tmp_path / "counts.json").write_text(text)
        assert read_producer_counts(tmp_path / "counts.json", "orders") == {NOON: 7, NOON + 1: 1}


def test_or_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "counts.parquet"
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    pq.write_table(pa.table({"hour": [moment, moment], "count": [3, 4]}), path)
    assert read_producer_counts(path, "orders") == {NOON: 7}


@pytest.mark.parametrize(("text", "says"), [
    ("[{]", "is not JSON"),
    ('[{"hour": "2026-01-31T12:00"}]', "row 0: .*'count'"),
    ('[{"hour": 5, "count": 5}]', "row 0"),
    ('[{"hour": "soon", "count": 5}]', "row 0"),
    ('[{"hour": true, "count": 5}]', "is not a time"),
    ('[{"hour": "2026-01-31T12:00", "count": -1}]', "not a whole number"),
    ('[{"hour": "2026-01-31T12:00", "count": "many"}]', "not a whole number"),
    ("[5]", "row 0"),
    ('[{"hour": "2026-01-31T12:00", "count": 1, "topic": "paid"}]', "no counts of topic 'orders'"),
    ("", "no counts of topic 'orders'"),
])  # fmt: skip
def test_a_file_of_counts_that_cannot_be_read_is_an_error(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "counts.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_producer_counts(tmp_path / "counts.json", "orders")


def test_a_day_is_no_hour(tmp_path: Path) -> None:
    path = tmp_path / "counts.parquet"
    day = datetime(2026, 1, 31, tzinfo=UTC).date()
    pq.write_table(pa.table({"hour": [day], "count": [3]}), path)
    with pytest.raises(ConfigError, match="is a day without an hour"):
        read_producer_counts(path, "orders")


def test_a_file_that_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"counts\.json: No such file"):
        read_producer_counts(tmp_path / "counts.json", "orders")


def test_an_hour_is_printed_in_utc() -> None:
    assert hour_text(NOON) == "2026-01-31 12:00"
