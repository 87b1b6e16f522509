"""Tables of earlier Roquets: what their log says of files is completed, and no row changes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Log
from tests.lake.kinds.delta.delta_log import actions, age, allow_deletion_vectors, delete_rows

from roquet.cli.spark_jobs.maintain import report_lines
from roquet.lake.arrow_dataset import arrow_dataset
from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files.parquet_writer import PartitionedWriter
from roquet.lake.kinds.delta import delta_table as delta
from roquet.lake.kinds.delta.columns import STATISTICS
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.kinds.delta.statistics import ListedFile, is_complete, restated
from roquet.lake.maintain.maintenance import Params, run, run_here
from roquet.lake.table import ArchiveIdentity
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

COLUMNS = ("broker", "queue_id", "queue_offset", "key", "tag", "stored_at")
QUEUE = ("orders", "broker-a", 0)
WANTED = ArchiveIdentity(topic="orders", columns=COLUMNS)


def fill(table: DeltaTable, at: int, *keys: str | None) -> None:
    """Commit a file with a message for each key."""
    rows: dict[str, Any] = {name: [None] * len(keys) for name in COLUMNS}
    rows |= {"broker": ["broker-a"] * len(keys), "queue_id": [0] * len(keys)}
    rows |= {"queue_offset": range(at, at + len(keys)), "key": keys, "tag": ["UA"] * len(keys)}
    directory = table.begin()
    writer = PartitionedWriter(directory, schema_of(COLUMNS))
    writer.write(pa.RecordBatch.from_pydict(rows, schema=schema_of(COLUMNS)))
    after = {QUEUE: at + len(keys)}
    table.commit(table.state((QUEUE,)).then(after, directory.name, writer.close(), ()))


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
    before = actions(old, "add")
    with DeltaTable(old, WANTED) as table:
        assert len(table.incomplete_files()) == 2
        state = table.state((QUEUE,))
        assert (table.complete_statistics(), table.complete_statistics()) == (2, 0)
        assert (table.state((QUEUE,)), table.incomplete_files()) == (state, [])
    added = actions(old, "add")[len(before) :]
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
    assert "minValues" not in actions(old, "add")[-1]["stats"]
    rows = Log(str(old)).to_pyarrow_dataset()
    assert rows.count_rows(filter=pc.field("tag") == "UA") == 2, "those of the new file"


def interrupted(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], object]) -> None:
    """Let another writer change the table, given a file's path, before the entries are added."""

    def late(files: Sequence[ListedFile], *args: Any) -> Any:
        change(files[0].file.path)
        return restated(files, *args)

    monkeypatch.setattr(delta, "restated", late)


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
    assert "deletionVector" in actions(old, "add")[-1]


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
