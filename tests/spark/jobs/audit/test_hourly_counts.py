"""Messages by hour: of a topic without reading it, and by a producer's own count."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import ConfigError
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.audit.findings import HOUR_MS
from roquet.spark.jobs.audit.hourly_counts import (
    hour_starts,
    hour_text,
    read_producer_counts,
    search_hours,
)
from roquet.spark.options import SourceOptions

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import Topic

NOON = 1_769_860_800_000 // HOUR_MS


@given(st.dictionaries(st.integers(0, 200), st.integers(1, 9), min_size=1))
def test_the_hours_with_messages_are_found(counts: dict[int, int]) -> None:
    probed = list[int]()

    def at(hour: int) -> int:
        probed.append(hour)
        return sum(count for known, count in counts.items() if known < hour)

    hours = list(search_hours(at, (min(counts), 0), (201, sum(counts.values()))))
    assert hours == [(hour, at(hour)) for hour in sorted(counts)]


def test_a_quiet_time_costs_few_questions() -> None:
    probed = list[int]()

    def at(hour: int) -> int:
        probed.append(hour)
        return 5 if hour <= 70_000 else 10

    assert list(search_hours(at, (0, 0), (100_000, 10))) == [(0, 0), (70_000, 5)]
    assert len(probed) < 60


def test_a_topic_is_counted_by_hour(topic: "Topic") -> None:
    topic.send(5)
    cluster = ClusterClient(SourceOptions(namesrv=(topic.namesrv,), topics=(topic.name,)))
    queue = (topic.name, "broker-a", 0)
    [(hour, offset)] = hour_starts(cluster, queue, (0, 5))[:1]
    assert offset == 0
    assert abs(hour - cluster.now_ms() // HOUR_MS) <= 1
    assert hour_starts(cluster, queue, (5, 5)) == ()


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
