"""Columns get the values of older bodies, other columns stay, and a commit of others wins."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from tests.lake.conftest import commit_rows

from roquet.lake.columns.body_columns import BODY_ERROR, parse_fields
from roquet.lake.columns.body_parser import BodyParser
from roquet.lake.columns.partitioning import schema_of
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.maintain import refill as refill_module
from roquet.lake.maintain.maintenance import run_here
from roquet.lake.maintain.refill import RefillCounts, fill, refill
from roquet.lake.table import ArchiveIdentity, TableConflict
from roquet.lake.task_set import TaskResult, TaskSet

COLUMNS = ("broker", "queue_id", "queue_offset", "body", "stored_at")
QUEUE = ("orders", "broker-a", 0)
WANTED = ArchiveIdentity(topic="orders", columns=COLUMNS, body_format="json")


def rows_of(at: int, bodies: tuple[bytes, ...], schema: str) -> pa.RecordBatch:
    """Messages of one queue with the body columns of a schema."""
    rows = [
        {"broker": "broker-a", "queue_id": 0, "queue_offset": at + number, "body": body}
        for number, body in enumerate(bodies)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema_of(COLUMNS))
    return next(BodyParser(parse_fields(schema)).add_columns([batch]))


def archive(table: DeltaTable, at: int, *bodies: bytes) -> None:
    """Commit a file of messages with the body columns that the table has."""
    fields = table.body_fields()
    schema = ", ".join(f"{field.name} {field.type}" for field in fields)
    commit_rows(table, {QUEUE: at + len(bodies)}, rows_of(at, bodies, schema))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of three files, the last of which has the column `crew`."""
    with DeltaTable(tmp_path / "lake", WANTED) as table:
        table.add_body_fields(parse_fields("id int"))
        archive(table, 0, b'{"id": 1, "crew": 10}', b'{"id": 2}')
        archive(table, 2, b'{"id": 3, "crew": 30}')
        table.add_body_fields(parse_fields("crew int"))
        archive(table, 3, b'{"id": 4, "crew": 40}')
    return tmp_path / "lake"


def crews(root: Path) -> list[tuple[int, int | None]]:
    rows = Log(str(root)).to_pyarrow_table().sort_by("queue_offset").to_pylist()
    return [(row["id"], row["crew"]) for row in rows]


def test_a_value_that_is_there_stays_and_a_bad_body_too() -> None:
    bodies = (b'{"id": 1, "crew": 10}', b'{"id": 2, "crew": "x"}', b"[", b'{"crew": null}')
    rows = rows_of(0, bodies, "id int, crew int")
    emptied = rows.set_column(
        rows.schema.get_field_index("crew"), "crew", pa.array([7, None, None, None], pa.int32())
    )
    emptied = emptied.set_column(
        rows.schema.get_field_index(BODY_ERROR), BODY_ERROR, pa.array([None, None, "bad", None])
    )
    filled, count, unfit = fill(emptied, parse_fields("crew int"))
    assert (count, unfit) == (0, 1)
    assert filled.column("crew").to_pylist() == [7, None, None, None]
    assert filled.column(BODY_ERROR).to_pylist() == [None, None, "bad", None]


def test_files_are_filled_a_few_at_a_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refill_module, "COMMIT_FILES_MAX", 1)
    before = Log(str(root)).version()
    with DeltaTable(root, WANTED) as table:
        done = refill(table, run_here, ["crew"], is_preview=False)
        assert table.state((QUEUE,)).offsets == {QUEUE: 4}
    assert done == RefillCounts(files=2, filled=2)
    assert Log(str(root)).version() == before + 2, "the third file lacks nothing"
    assert crews(root) == [(1, 10), (2, None), (3, 30), (4, 40)]


def test_an_archive_that_commits_meanwhile_wins(root: Path) -> None:
    with DeltaTable(root, WANTED) as table:

        def late(task_set: TaskSet) -> list[TaskResult]:
            results = run_here(task_set)
            archive(table, 4, b'{"id": 5}')
            return results

        with pytest.raises(TableConflict, match="another archive writes to it"):
            refill(table, late, ["crew"], is_preview=False)
    assert crews(root) == [(1, None), (2, None), (3, None), (4, 40), (5, None)]
