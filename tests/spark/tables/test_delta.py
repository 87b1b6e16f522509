"""Delta table: its log decides, and other writers may add entries."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from roquet.model.errors import ConfigError, RoquetError
from roquet.spark.tables.staging import Staging
from roquet.spark.tables.table import TableConflict, TableDamaged, TableState

if TYPE_CHECKING:
    from tests.spark.tables.conftest import TableKind


@pytest.fixture
def delta(kinds: "Callable[[str], TableKind]") -> "TableKind":
    return kinds("delta")


def test_the_files_statistics_are_in_the_log(delta: "TableKind") -> None:
    with delta.open() as table:
        delta.archive(table, 0, 12)
    rows = pa.table(Log(str(delta.root)).get_add_actions(flatten=True)).to_pylist()
    statistics = {
        (row["min.queue_offset"], row["max.queue_offset"], row["num_records"]) for row in rows
    }
    assert statistics == {(0, 9, 10), (10, 11, 2)}
    assert {str(row["partition.day"]) for row in rows} == {"2026-01-31", "2026-02-01"}


def test_offsets_outlive_the_entries_of_the_log(delta: "TableKind") -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
    log = Log(str(delta.root))
    log.create_checkpoint()
    for entry in (delta.root / "_delta_log").glob("*.json"):
        entry.unlink()
    with delta.open() as table:
        assert table.state(delta.queues) == TableState(1, delta.offsets(3))


def test_entries_of_other_writers_do_not_disturb_the_archive(delta: "TableKind") -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        Log(str(delta.root)).optimize.compact()
        delta.archive(table, 3, 5)
        assert table.state(()) == TableState(2, delta.offsets(5)), (
            "queues are found by our own entries"
        )
    assert delta.places() == delta.whole(5)


def test_leftovers_that_cannot_be_removed_stop_no_archive(
    delta: "TableKind", monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> bool:
        raise RoquetError("no right to remove")

    with delta.open() as table:
        delta.archive(table, 0, 3)
    monkeypatch.setattr(Staging, "has_leftovers", refuse)
    with delta.open() as table:
        delta.archive(table, 3, 5)
    assert delta.places() == delta.whole(5)
    assert "leftovers of killed runs stay: no right to remove" in caplog.text


def test_an_entry_that_another_writer_adds_first_is_read(
    delta: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer adds an entry after the table was read and before ours is added."""
    other_entries = 0

    def write_after_another(log: Log, *args: object, **kwargs: object) -> None:
        nonlocal other_entries
        if not other_entries:
            other_entries += 1
            Log(str(delta.root)).alter.set_table_description(_description(delta.root))
        write(log, *args, **kwargs)

    write: Callable[..., None] = Log.create_write_transaction
    monkeypatch.setattr(Log, "create_write_transaction", write_after_another)
    with delta.open() as table:
        delta.archive(table, 0, 3)
    assert delta.places() == delta.whole(3)


def test_a_writer_that_is_always_too_late_gives_up_and_leaves_no_file(
    delta: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CommitFailedError("another writer came first")

    monkeypatch.setattr(Log, "create_write_transaction", refuse)
    with delta.open() as table, pytest.raises(TableConflict):
        delta.archive(table, 0, 3)
    assert delta.state() == TableState(0, {})
    assert delta.on_disk() == set()


def test_a_commit_that_is_there_counts_whatever_its_answer_was(
    delta: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is sent twice is refused the second time: by its own first one."""

    def write_twice(log: Log, *args: object, **kwargs: object) -> None:
        write(log, *args, **kwargs)
        raise CommitFailedError("an entry of this version exists")

    write: Callable[..., None] = Log.create_write_transaction
    monkeypatch.setattr(Log, "create_write_transaction", write_twice)
    with delta.open() as table:
        delta.archive(table, 0, 3)
        delta.archive(table, 3, 5)
        assert table.state(()) == TableState(2, delta.offsets(5))
    assert delta.places() == delta.whole(5)


def test_a_delta_table_that_is_no_archive_is_left_alone(tmp_path: Path, delta: "TableKind") -> None:
    write_deltalake(str(delta.root), pa.table({"id": [1]}))
    with pytest.raises(ConfigError, match="is a Delta table, but not an archive"):
        delta.open()
    assert Log(str(delta.root)).version() == 0


def overwrite(delta: "TableKind", columns: Sequence[str]) -> None:
    """Another writer gives the table these columns alone."""
    rows = delta.rows().select(list(columns))
    write_deltalake(
        str(delta.root), rows, mode="overwrite", schema_mode="overwrite", partition_by=["day"]
    )


def test_columns_that_another_writer_has_taken_are_a_sentence(delta: "TableKind") -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        overwrite(delta, ["topic", "broker", "queue_id", "queue_offset", "day"])
        with pytest.raises(ConfigError, match="has no column 'body' any more: another writer"):
            delta.archive(table, 3, 5)
    with pytest.raises(ConfigError, match="has no column 'body' any more: another writer"):
        delta.open()
    assert delta.places() == delta.whole(3)


def test_a_constraint_of_another_writer_is_not_broken(delta: "TableKind") -> None:
    delta.open().close()
    Log(str(delta.root)).alter.add_constraint({"small": "queue_offset < 4"})
    with pytest.raises(ConfigError, match="has the constraint 'small', which the rows of messages"):
        delta.open()


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_table_that_is_removed_under_its_archive_is_a_sentence(
    delta: "TableKind", is_made_anew: bool
) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        shutil.rmtree(delta.root / "_delta_log")
        if is_made_anew:
            write_deltalake(str(delta.root), pa.table({"id": [1]}))
        with pytest.raises(TableDamaged, match="perhaps because the table was removed or made an"):
            delta.archive(table, 3, 5)


def test_a_table_in_the_place_of_another_is_not_written_to(
    delta: "TableKind", tmp_path: Path
) -> None:
    """Another archive of the topic, with as many versions and more."""
    other = type(delta)("delta", tmp_path / "other")
    with other.open() as table:
        delta.archive(table, 0, 2)
        delta.archive(table, 2, 4)
    with delta.open() as table:
        delta.archive(table, 0, 3)
        shutil.rmtree(delta.root / "_delta_log")
        shutil.copytree(other.root / "_delta_log", delta.root / "_delta_log")
        before = TableState(1, delta.offsets(3))
        with pytest.raises(TableConflict, match="the table is at commit 2, not at 1"):
            table.commit(before.then(delta.offsets(5), table.begin().name, (), ()))


def test_rows_of_an_append_only_table_stay(delta: "TableKind") -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        Log(str(delta.root)).alter.set_table_properties({"delta.appendOnly": "true"})
        delta.archive(table, 3, 5)
        state = table.state(delta.queues)
        attempt = table.begin().name
        commit = state.then(state.offsets, attempt, (), tuple(table.files())[:1])
        with pytest.raises(ConfigError, match=r"is append-only .* nothing was committed"):
            table.commit(commit)
    assert delta.places() == delta.whole(5)


def _description(root: Path) -> str:
    return Log(str(root)).metadata().description or ""
