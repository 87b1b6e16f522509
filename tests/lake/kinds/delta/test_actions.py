"""Delta actions: partitions as texts, statistics, and whether a commit is news."""

import json

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction

from roquet.lake.columns.column_statistics import ColumnStatistics
from roquet.lake.columns.partitioning import NO_DAY
from roquet.lake.kinds.delta.actions import FILES_AT_ONCE, actions, file_of, files_of
from roquet.lake.table import DataFile, TableCommit

FILE = DataFile(
    name="roquet-1.parquet",
    day="2026-01-31",
    within="hour=5",
    rows=3,
    size=9,
    statistics=ColumnStatistics(
        least={"queue_offset": 1}, most={"queue_offset": 3}, nulls={"queue_offset": 0}
    ),
)
TIMELESS = DataFile(name="b.parquet", day=NO_DAY, within=f"hour={NO_DAY}", rows=1, size=1)


def commit(added: tuple[DataFile, ...], removed: tuple[DataFile, ...]) -> TableCommit:
    return TableCommit(number=1, attempt="a", before={}, after={}, added=added, removed=removed)


@pytest.mark.parametrize(
    ("added", "removed", "is_news"),
    [((FILE,), (), True), ((), (FILE,), True), ((FILE,), (TIMELESS,), False)],
)
def test_only_a_merge_is_no_news(
    added: tuple[DataFile, ...], removed: tuple[DataFile, ...], is_news: bool
) -> None:
    made = actions(commit(added, removed), 5, has_ranges=True)
    assert [action.data_change for action in made] == [is_news] * len(made)


def test_a_file_has_its_partition_and_its_bounds() -> None:
    [added, removed] = actions(commit((FILE,), (TIMELESS,)), 5, has_ranges=True)
    assert added.path == "day=2026-01-31/hour=5/roquet-1.parquet"
    assert added.partition_values == {"day": "2026-01-31", "hour": "5"}
    assert removed.partition_values == {"day": None, "hour": None}
    assert isinstance(added, AddAction)
    assert json.loads(added.stats) == {
        "numRecords": 3,
        "minValues": {"queue_offset": 1},
        "maxValues": {"queue_offset": 3},
        "nullCount": {"queue_offset": 0},
    }


def test_a_file_says_no_ranges_where_a_table_expects_those_of_other_columns() -> None:
    """deltalake 1.6 finds no row by a column whose range is missing beside those of others."""
    [added] = actions(commit((FILE,), ()), 5, has_ranges=False)
    assert isinstance(added, AddAction)
    assert json.loads(added.stats) == {"numRecords": 3, "nullCount": {"queue_offset": 0}}


def test_a_file_of_the_log_is_a_file_of_the_table() -> None:
    row = {"path": FILE.path, "partition.day": "2026-01-31", "num_records": 3, "size_bytes": 9}
    assert file_of(row) == DataFile(
        name=FILE.name, day=FILE.day, within=FILE.within, rows=3, size=9
    )


def test_files_are_read_from_few_columns_of_the_log_and_a_part_at_a_time() -> None:
    count = FILES_AT_ONCE + 1
    added = pa.table(
        {
            "path": [f"day=2026-01-31/roquet-{number}.parquet" for number in range(count)],
            "size_bytes": range(count),
            "num_records": [3] * count,
            "min.queue_offset": [1] * count,
            "partition.day": ["2026-01-31"] * count,
        }
    )
    files = files_of(added)
    assert [file.size for file in files] == [*range(count)]
    assert {(file.day, file.rows, len(file.statistics.least)) for file in files} == {
        ("2026-01-31", 3, 0)
    }


def test_files_of_a_table_without_days_have_the_partition_of_their_path() -> None:
    added = pa.table({"path": ["bucket=3/a.parquet"], "size_bytes": [9], "num_records": [1]})
    assert files_of(added) == [
        DataFile(name="a.parquet", day="", within="bucket=3", rows=1, size=9)
    ]
