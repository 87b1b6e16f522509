"""Small files of a day are merged; large ones and those of other writers stay."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.jobs.archive import compaction
from roquet.spark.jobs.archive.compaction import (
    GROUP_COLUMN_BYTES_MAX,
    TARGET_BYTES,
    SizedFile,
    compact,
    merge,
    merge_groups,
    sized_files,
)
from roquet.spark.jobs.task_set import TaskResult, TaskSet
from roquet.spark.queue_offsets import QueueOffsets
from roquet.spark.tables.open_table import open_table
from roquet.spark.tables.parquet import ParquetTable
from roquet.spark.tables.parquet_writer import COMPRESSION, PartitionedWriter
from roquet.spark.tables.partitioning import schema_of
from roquet.spark.tables.table import (
    ArchiveIdentity,
    ArchiveTable,
    DataFile,
    TableConflict,
    TableState,
)

COLUMNS = ("broker", "queue_id", "queue_offset", "stored_at")
QUEUE = ("orders", "broker-a", 0)


def sized_file(name: str, size: int, columns: int = 1, day: str = "2026-01-31") -> SizedFile:
    return SizedFile(DataFile(name=name, day=day, rows=1, size=size), columns)


def names(groups: Sequence[Sequence[DataFile]]) -> list[list[str]]:
    return [[file.name for file in group] for group in groups]


def test_small_files_of_a_day_are_one_group() -> None:
    files = [
        sized_file("b", 5),
        sized_file("a", 5),
        sized_file("c", 5, day="2026-02-01"),
        sized_file("d", 1),
    ]
    assert names(list(merge_groups(files))) == [["a", "b", "d"]]


def test_large_files_stay_by_their_bytes_or_those_of_their_columns() -> None:
    large = (
        sized_file("large", TARGET_BYTES // 2),
        sized_file("wide", 1, GROUP_COLUMN_BYTES_MAX // 2),
    )
    assert list(merge_groups([*large, sized_file("small", 1)])) == []


def test_fewer_than_wanted_wait() -> None:
    files = [sized_file(str(number), 1) for number in range(3)]
    assert list(merge_groups(files, 4)) == []
    assert len(next(merge_groups(files, 3))) == 3


sizes = st.tuples(st.integers(1, TARGET_BYTES), st.integers(1, GROUP_COLUMN_BYTES_MAX))


@given(st.lists(sizes, max_size=60))
def test_groups_are_never_too_large_and_no_file_is_in_two(ranges: list[tuple[int, int]]) -> None:
    files = [sized_file(f"{at:03}", size, columns) for at, (size, columns) in enumerate(ranges)]
    by_name = {one.file.name: one for one in files}
    chosen = list(merge_groups(files))
    members = [file.name for group in chosen for file in group]
    assert len(members) == len(set(members))
    for group in chosen:
        assert len(group) > 1
        assert sum(by_name[file.name].bytes for file in group) <= GROUP_COLUMN_BYTES_MAX
        assert sum(file.size for file in group[:-1]) < TARGET_BYTES


def run_here(task_set: TaskSet) -> list[TaskResult]:
    return [task_set.run(number) for number in range(len(task_set))]


def table_with_commits(root: Path, commits: int) -> ParquetTable:
    table = ParquetTable(root, ArchiveIdentity(topic="orders", columns=COLUMNS))
    fill(table, commits)
    return table


def fill(table: ArchiveTable, commits: int) -> None:
    """Commit a message at a time, in turn to one of two days."""
    for at in range(commits):
        directory = table.begin()
        writer = PartitionedWriter(directory, schema_of(COLUMNS))
        moment = datetime(2026, 1, 30 + at % 2, tzinfo=UTC)
        row = {"broker": ["broker-a"], "queue_id": [0], "queue_offset": [at], "stored_at": [moment]}
        writer.write(pa.RecordBatch.from_pydict(row, schema=schema_of(COLUMNS)))
        after: QueueOffsets = {QUEUE: at + 1}
        table.commit(table.state(()).then(after, directory.name, writer.close(), ()))


def test_merging_keeps_rows_and_offsets(tmp_path: Path) -> None:
    with table_with_commits(tmp_path, 6) as table:
        assert compact(table, run_here) == 6
        assert [(file.day, file.rows) for file in table.files()] == [
            ("2026-01-30", 3),
            ("2026-01-31", 3),
        ]
        assert table.state() == TableState(7, {QUEUE: 6})
        assert compact(table, run_here) == 0, "and is done"


def test_many_groups_take_several_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMMIT_GROUPS_MAX", 1)
    with table_with_commits(tmp_path, 6) as table:
        assert compact(table, run_here) == 6
        assert table.state() == TableState(8, {QUEUE: 6})


def test_files_of_other_writers_are_left_alone(tmp_path: Path) -> None:
    with table_with_commits(tmp_path, 2) as table:
        for file in table.files():
            path = Path(table.path(file))
            path.with_name(f"mine-{path.name}").write_bytes(path.read_bytes())
        assert compact(table, run_here) == 0


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_that_another_writer_merged_first_are_not_merged_again(
    tmp_path: Path, kind: str
) -> None:
    """The other one comes after the files were listed: its files hold the same rows."""
    wanted = ArchiveIdentity(topic="orders", columns=COLUMNS)
    with open_table(kind, str(tmp_path / "lake"), wanted) as table:
        fill(table, 4)
        listed, before = sized_files(table), table.state(())
        assert compact(table, run_here) == 4
        merged = {file.name for file in table.files()}

        class ListsEarly:
            """The table as a process sees it that listed the files before."""

            def __getattr__(self, name: str) -> Any:
                return getattr(table, name)

            def files(self) -> list[DataFile]:
                return [each.file for each in listed]

        early: Any = ListsEarly()
        with pytest.raises(TableConflict, match="nothing was committed"):
            merge(early, table.state(()), run_here, [[each.file for each in listed]], COMPRESSION)
        with pytest.raises(TableConflict, match="nothing was committed"):
            merge(early, before, run_here, [[each.file for each in listed]], COMPRESSION)
        assert {file.name for file in table.files()} == merged


def test_the_offsets_are_read_before_the_files_are_listed(tmp_path: Path) -> None:
    """Otherwise a commit between the two would look as if it came before both."""
    calls = list[str]()
    with table_with_commits(tmp_path, 4) as table:

        class Notes:
            def __getattr__(self, name: str) -> Any:
                calls.append(name)
                return getattr(table, name)

        noting: Any = Notes()
        assert compact(noting, run_here) == 4
    assert calls.index("state") < calls.index("files")
    assert calls.count("state") == 1
