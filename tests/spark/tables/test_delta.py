"""Delta table: its log decides, and other writers may add entries."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from deltalake import write_deltalake

from roquet.model.errors import ConfigError
from roquet.spark.tables.delta import DeltaTable
from roquet.spark.tables.table import TableConflict, TableState


@pytest.fixture
def delta(kinds: Any) -> Any:
    return kinds("delta")


def test_the_files_statistics_are_in_the_log(delta: Any) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 12)
    rows = pa.table(Log(str(delta.root)).get_add_actions(flatten=True)).to_pylist()
    found = {(row["min.queue_offset"], row["max.queue_offset"], row["num_records"]) for row in rows}
    assert found == {(0, 9, 10), (10, 11, 2)}
    assert {str(row["partition.day"]) for row in rows} == {"2026-01-31", "2026-02-01"}


def test_offsets_outlive_the_entries_of_the_log(delta: Any) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
    log = Log(str(delta.root))
    log.create_checkpoint()
    for entry in (delta.root / "_delta_log").glob("*.json"):
        entry.unlink()
    with delta.open() as table:
        assert table.state(delta.queues) == TableState(1, delta.offsets(3))


def test_entries_of_others_are_no_hindrance(delta: Any) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        Log(str(delta.root)).optimize.compact()
        delta.archive(table, 3, 5)
        assert table.state(()) == TableState(2, delta.offsets(5)), (
            "queues are found by our own entries"
        )
    assert delta.places() == delta.whole(5)


def test_an_entry_that_comes_between_is_looked_at(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody cleans up after we have looked at the table and before we write."""
    others = [0]

    def first_another(self: Any, commit: Any) -> bool:
        if not others[0]:
            others[0] += 1
            Log(str(delta.root)).alter.set_table_description(_description(delta.root))
        return bool(entered(self, commit))

    entered = DeltaTable._entered
    monkeypatch.setattr(DeltaTable, "_entered", first_another)
    with delta.open() as table:
        delta.archive(table, 0, 3)
    assert delta.places() == delta.whole(3)


def test_who_is_always_late_gives_up_and_leaves_no_file(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaTable, "_entered", lambda self, commit: False)
    with delta.open() as table, pytest.raises(TableConflict):
        delta.archive(table, 0, 3)
    assert delta.state() == TableState(0, {})
    assert delta.on_disk() == set()


def test_a_delta_table_that_is_no_archive_is_left_alone(tmp_path: Path, delta: Any) -> None:
    write_deltalake(str(delta.root), pa.table({"id": [1]}))
    with pytest.raises(ConfigError, match="is a Delta table, but not an archive"):
        delta.open()
    assert Log(str(delta.root)).version() == 0


def _description(root: Path) -> str:
    return Log(str(root)).metadata().description or ""
