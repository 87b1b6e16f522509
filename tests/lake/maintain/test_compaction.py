"""Small files of a partition are merged; large ones and those of other writers stay."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lake.conftest import commit_rows

from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files.parquet_writer import COMPRESSION
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.maintain import compaction
from roquet.lake.maintain.compaction import TARGET_BYTES, compact, merge, merge_groups
from roquet.lake.open_table import open_table
from roquet.lake.queue_offsets import QueueOffsets
from roquet.lake.table import ArchiveIdentity, ArchiveTable, DataFile, TableConflict, TableState
from roquet.lake.task_set import TaskResult, TaskSet

COLUMNS = ("broker", "queue_id", "queue_offset", "stored_at")
QUEUE = ("orders", "broker-a", 0)


def small_file(name: str, size: int, day: str = "2026-01-31", within: str = "") -> DataFile:
    return DataFile(name=f"roquet-{name}", day=day, within=within, rows=1, size=size)


def names(groups: Iterable[Sequence[DataFile]]) -> list[list[str]]:
    return [[file.name.removeprefix("roquet-") for file in group] for group in groups]


def test_small_files_of_a_partition_are_one_group() -> None:
    files = [
        small_file("b", 5),
        small_file("a", 5),
        small_file("c", 5, day="2026-02-01"),
        small_file("d", 1),
        small_file("e", 1, within="hour=1"),
        small_file("f", 1, within="hour=1"),
    ]
    assert names(merge_groups(files)) == [["a", "b", "d"], ["e", "f"]]


def test_large_files_and_those_of_others_stay() -> None:
    large = small_file("large", TARGET_BYTES // 2)
    theirs = DataFile(name="part-0.parquet", day="2026-01-31", rows=1, size=1)
    assert list(merge_groups([large, theirs, small_file("small", 1)])) == []


def test_fewer_than_wanted_wait() -> None:
    files = [small_file(str(number), 1) for number in range(3)]
    assert list(merge_groups(files, 4)) == []
    assert len(next(merge_groups(files, 3))) == 3


@given(st.lists(st.integers(1, TARGET_BYTES), max_size=60))
def test_groups_become_files_of_the_aimed_size_and_no_file_is_in_two(sizes: list[int]) -> None:
    chosen = list(merge_groups([small_file(f"{at:03}", size) for at, size in enumerate(sizes)]))
    members = [file.name for group in chosen for file in group]
    assert len(members) == len(set(members))
    for group in chosen[:-1]:
        assert TARGET_BYTES <= sum(file.size for file in group) < 2 * TARGET_BYTES
    for group in chosen:
        assert len(group) > 1
        assert sum(file.size for file in group[:-1]) < TARGET_BYTES


def run_here(task_set: TaskSet) -> list[TaskResult]:
    return [task_set.run(number) for number in range(len(task_set))]


def table_with_commits(root: Path, commits: int) -> DeltaTable:
    table = DeltaTable(root, ArchiveIdentity(topic="orders", columns=COLUMNS))
    fill(table, commits)
    return table


def message(at: int, moment: datetime, queue_id: int = 0, **more: object) -> pa.RecordBatch:
    """One message of a queue."""
    row = {"broker": "broker-a", "queue_id": queue_id, "queue_offset": at, "stored_at": moment}
    return pa.RecordBatch.from_pylist([{**row, **more}], schema_of((*COLUMNS, *more)))


def fill(table: ArchiveTable, commits: int) -> None:
    """Commit a message at a time, in turn to one of two days."""
    for at in range(commits):
        commit_rows(table, {QUEUE: at + 1}, message(at, datetime(2026, 1, 30 + at % 2, tzinfo=UTC)))


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
        listed, before = table.files(), table.state(())
        assert compact(table, run_here) == 4
        merged = {file.name for file in table.files()}

        class ListsEarly:
            """The table as a process sees it that listed the files before."""

            def __getattr__(self, name: str) -> Any:
                return getattr(table, name)

            def files(self) -> Sequence[DataFile]:
                return listed

        early: Any = ListsEarly()
        with pytest.raises(TableConflict, match="nothing was committed"):
            merge(early, table.state(()), run_here, [listed], COMPRESSION)
        with pytest.raises(TableConflict, match="nothing was committed"):
            merge(early, before, run_here, [listed], COMPRESSION)
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


def test_files_grow_to_the_aimed_size_and_are_left_alone_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 1,024th of the real sizes: an archive that merges after each of its commits."""
    scale, rng = 1024, random.Random(7)
    monkeypatch.setattr(compaction, "TARGET_BYTES", TARGET_BYTES // scale)
    columns, merged = (*COLUMNS, "body"), set[str]()
    with DeltaTable(tmp_path, ArchiveIdentity(topic="orders", columns=columns)) as table:
        for at in range(36):
            body = rng.randbytes(rng.choice([5_000, 20_000, 150_000]))
            rows = message(at, datetime(2026, 1, 30, tzinfo=UTC), body=body)
            commit_rows(table, {QUEUE: at + 1}, rows)
            if at % 7 == 0:
                compact(table, run_here)
                *large, last = sorted(table.files(), key=lambda file: -file.size)
                sizes = [file.size * scale / 1024**2 for file in large]
                assert all(128 <= size <= 512 for size in sizes), "MiB; all but one"
                assert last.size * scale <= 512 * 1024**2
                assert merged <= {file.name for file in table.files()}, "nor written again"
                merged = {file.name for file in large}
    assert len(merged) > 3


@pytest.mark.spark_suite
def test_a_week_of_hourly_runs_leaves_a_file_a_day(tmp_path: Path) -> None:
    """Each run writes four files and merges what is small: files do not add up."""
    hour, queues, most = timedelta(hours=1), 4, 0
    with DeltaTable(tmp_path, ArchiveIdentity(topic="orders", columns=COLUMNS)) as table:
        for at in range(7 * 24):
            moment = datetime(2026, 1, 26, tzinfo=UTC) + at * hour
            after: QueueOffsets = {("orders", "broker-a", q): at + 1 for q in range(queues)}
            commit_rows(table, after, *(message(at, moment, each) for each in range(queues)))
            most = max(most, *Counter(file.day for file in table.files()).values())
            compact(table, run_here)
        assert most <= queues + 1, "at any moment, the merged file and those of one run"
        assert Counter(file.day for file in table.files()) == {
            f"2026-{moment:%m-%d}": 1
            for moment in (datetime(2026, 1, 26, tzinfo=UTC) + d * 24 * hour for d in range(7))
        }
        assert sum(file.rows for file in table.files()) == 7 * 24 * queues
