"""Delta actions: files as entries of the log, and what tables of earlier Roquets lack in them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Log
from deltalake.transaction import AddAction
from tests.lake.conftest import commit_rows
from tests.lake.kinds.delta.delta_log import actions as actions_of
from tests.lake.kinds.delta.delta_log import age, allow_deletion_vectors, delete_rows

from roquet.cli.spark_jobs.maintain import report_lines
from roquet.lake.arrow_dataset import arrow_dataset
from roquet.lake.columns.column_statistics import ColumnStatistics
from roquet.lake.columns.partitioning import NO_DAY, schema_of
from roquet.lake.kinds.delta import actions as delta_actions
from roquet.lake.kinds.delta.actions import (
    FILES_AT_ONCE,
    ListedFile,
    actions,
    file_of,
    files_of,
    is_complete,
    restated,
)
from roquet.lake.kinds.delta.columns import STATISTICS
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.maintain.maintenance import Params, run, run_here
from roquet.lake.table import ArchiveIdentity, DataFile, TableCommit
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

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


COLUMNS = ("broker", "queue_id", "queue_offset", "key", "tag", "stored_at")


QUEUE = ("orders", "broker-a", 0)


WANTED = ArchiveIdentity(topic="orders", columns=COLUMNS)


def fill(table: DeltaTable, at: int, *keys: str | None) -> None:
    """Commit a file with a message for each key."""
    rows: dict[str, Any] = {name: [None] * len(keys) for name in COLUMNS}
    rows |= {"broker": ["broker-a"] * len(keys), "queue_id": [0] * len(keys)}
    rows |= {"queue_offset": range(at, at + len(keys)), "key": keys, "tag": ["UA"] * len(keys)}
    batch = pa.RecordBatch.from_pydict(rows, schema=schema_of(COLUMNS))
    commit_rows(table, {QUEUE: at + len(keys)}, batch)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A table of an earlier Roquet: two files, in one of which some messages have no key."""
    root = tmp_path / "lake"
    with DeltaTable(root, WANTED) as table:
        fill(table, 0, "a", None, "b")
        fill(table, 3, "c")
    age(root)
    return root


def found(rows: "Dataset") -> list[int]:
    """The rows that some conditions find."""
    column = pc.field
    conditions = [column("tag") == "UA", column("key") == "b", column("key").is_null()]
    conditions += [column("stored_at").is_null(), column("queue_offset") == 3]
    return [rows.count_rows(filter=each) for each in conditions]


def test_our_readers_find_every_row_of_an_old_table(old: Path) -> None:
    assert found(Log(str(old)).to_pyarrow_dataset()) == [0, 1, 0, 0, 1], "what deltalake finds"
    assert found(arrow_dataset(str(old))) == [4, 1, 1, 4, 1]


def test_an_old_table_is_completed_without_a_change_of_its_rows(old: Path) -> None:
    before = actions_of(old, "add")
    with DeltaTable(old, WANTED) as table:
        assert len(table.incomplete_files()) == 2
        state = table.state((QUEUE,))
        assert (table.complete_statistics(), table.complete_statistics()) == (2, 0)
        assert (table.state((QUEUE,)), table.incomplete_files()) == (state, [])
    added = actions_of(old, "add")[len(before) :]
    assert {each["path"] for each in added} == {each["path"] for each in before}
    assert [each["dataChange"] for each in added] == [False, False]
    same = ("path", "size", "partitionValues", "modificationTime")
    assert sorted(str([each[name] for name in same]) for each in added) == sorted(
        str([each[name] for name in same]) for each in before
    )
    assert found(Log(str(old)).to_pyarrow_dataset()) == [4, 1, 1, 4, 1]


def test_maintenance_completes_what_it_does_not_merge(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with DeltaTable(root, WANTED) as table:
        fill(table, 0, "a", None, "b")
    age(root)
    params = Params(target=str(root))
    report = run(params, run_here, 0)
    assert report_lines("lake", report, is_preview=True)[1:] == [
        "  statistics of 1 file would be completed",
        "  1 file would be left; --yes does it",
    ]
    params = msgspec.structs.replace(params, is_preview=False)
    assert [run(params, run_here, 0).restated_files for _ in range(2)] == [1, 0]
    assert found(Log(str(root)).to_pyarrow_dataset())[:4] == [3, 1, 1, 3]


def test_an_archive_that_goes_on_says_which_columns_have_statistics(old: Path) -> None:
    with DeltaTable(old, WANTED) as table:
        fill(table, 4, "d", None)
        assert len(table.incomplete_files()) == 2, "those of before"
    assert Log(str(old)).metadata().configuration == {
        STATISTICS: "queue_id,queue_offset,key,stored_at"
    }
    rows = Log(str(old)).to_pyarrow_dataset()
    assert rows.count_rows(filter=pc.field("tag") == "UA") == 6


def test_a_table_that_names_other_columns_has_files_without_ranges(old: Path) -> None:
    Log(str(old)).alter.set_table_properties({STATISTICS: "tag,key"})
    with DeltaTable(old, WANTED) as table:
        fill(table, 4, "d", None)
        assert not table.incomplete_files()
    assert "minValues" not in actions_of(old, "add")[-1]["stats"]
    rows = Log(str(old)).to_pyarrow_dataset()
    assert rows.count_rows(filter=pc.field("tag") == "UA") == 2, "those of the new file"


def interrupted(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], object]) -> None:
    """Let another writer change the table, given a file's path, before the entries are added."""

    def late(files: Sequence[ListedFile], *args: Any) -> Any:
        change(files[0].file.path)
        return restated(files, *args)

    monkeypatch.setattr(delta_actions, "restated", late)


def test_another_entry_that_comes_first_is_read(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive in an object store that goes on meanwhile, whose compaction takes a file away."""
    interrupted(monkeypatch, lambda _: Log(str(old)).delete("key = 'c'"))
    with DeltaTable(old, WANTED) as table:
        table.complete_statistics()
    assert sorted(arrow_dataset(str(old)).to_table()["queue_offset"].to_pylist()) == [0, 1, 2]
    assert len(Log(str(old)).file_uris()) == 1


def test_rows_that_another_writer_deletes_meanwhile_stay_deleted(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_deletion_vectors(old)
    interrupted(monkeypatch, lambda path: delete_rows(old, path, 0))
    with DeltaTable(old, WANTED) as table, pytest.raises(ConfigError, match="deletion vectors"):
        table.complete_statistics()
    assert "deletionVector" in actions_of(old, "add")[-1]


@pytest.mark.parametrize(
    ("action", "is_whole"),
    [
        ({"null_count.a": 0, "null_count.b": 0}, True),
        ({"null_count.a": 0, "null_count.b": 0, "min.a": 1, "max.a": 1}, False),
        ({"null_count.a": 0, "null_count.b": 3, "min.a": 1, "max.a": 1}, True),
        ({"null_count.a": 0, "null_count.b": None, "min.a": 1, "max.a": 1}, False),
        ({"null_count.a": 0, "null_count.b": 1, "min.a": 1, "max.a": 1, "min.b": 1}, False),
        ({}, False),
    ],
)
def test_statistics_are_complete_with_a_range_of_each_column_or_of_none(
    action: dict[str, Any], is_whole: bool
) -> None:
    assert is_complete({"num_records": 3, **action}, ["a", "b"]) == is_whole
