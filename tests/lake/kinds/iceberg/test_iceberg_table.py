"""Iceberg table: snapshot and offsets in one change, in this catalog or another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from tests.lake.conftest import TableKind, patch_first, raising

from roquet.lake.kinds.iceberg.iceberg_table import STATE, IcebergTable
from roquet.lake.table import ArchiveIdentity, TableConflict, TableDamaged, TableState
from roquet.model.errors import ConfigError

Begin = Callable[[Table], Transaction]


def test_the_partition_is_the_day_of_the_stored_time(iceberg: TableKind) -> None:
    iceberg.fill(12)
    with iceberg.loaded() as loaded:
        assert [str(field.transform) for field in loaded.spec().fields] == ["day"]
        late = loaded.scan("stored_at >= '2026-02-01T00:00:00+00:00'")
        assert len(list(late.plan_files())) == 2
        assert late.to_arrow().num_rows == 4
        snapshot = loaded.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["roquet.number"] == "1"


def test_topics_share_a_catalog(iceberg: TableKind) -> None:
    iceberg.fill(3)
    with iceberg.open(wanted=ArchiveIdentity(topic="bills-2026", columns=())) as table:
        assert table.state(()) == TableState(0, {})
    assert iceberg.places() == iceberg.whole(3)
    with SqlCatalog("roquet", uri=f"sqlite:///{iceberg.root}/catalog.db") as lake:
        assert sorted(lake.list_tables("roquet")) == [
            ("roquet", "bills_2026"),
            ("roquet", "orders"),
        ]


def test_topics_with_the_same_table_name_are_an_error(iceberg: TableKind) -> None:
    iceberg.open(wanted=ArchiveIdentity(topic="a-b", columns=())).close()
    with pytest.raises(ConfigError, match="archive of topic 'a-b', not of 'a_b'"):
        iceberg.open(wanted=ArchiveIdentity(topic="a_b", columns=()))


def test_another_catalog_and_another_name(tmp_path: Path, iceberg: TableKind) -> None:
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/mine.db",
        "warehouse": f"file://{tmp_path}/w",
    }
    made = IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options)
    with made as table:
        iceberg.archive(table, 0, 3)
    with SqlCatalog("roquet", **options) as lake:
        assert lake.load_table("lake.all").scan().to_arrow().num_rows == 6


def test_a_warehouse_that_is_no_directory_is_an_error(tmp_path: Path, iceberg: TableKind) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/mine.db", "warehouse": "s3://bucket/w"}
    with pytest.raises(ConfigError, match="is no directory"):
        IcebergTable(iceberg.root, iceberg.wanted, catalog=options)


def test_a_table_that_is_no_archive_is_left_alone(iceberg: TableKind) -> None:
    iceberg.open().close()
    with iceberg.loaded() as loaded, loaded.transaction() as change:
        change.remove_properties("roquet.archive")
    with pytest.raises(ConfigError, match=r"roquet\.orders of .* is not an archive"):
        iceberg.open()


def test_changes_of_other_writers_do_not_disturb_the_archive(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer changes the table after it was read and before our change."""

    def begin_after_another(begin: Begin, table: Table) -> Transaction:
        with iceberg.loaded() as loaded:
            begin(loaded).set_properties({"owner": "me"}).commit_transaction()
        return begin(table)

    patch_first(monkeypatch, Table, "transaction", begin_after_another)
    iceberg.fill(3)
    assert iceberg.places() == iceberg.whole(3)


def test_a_writer_that_is_always_too_late_gives_up_and_leaves_no_file(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "transaction", raising(CommitFailedException()))
    with iceberg.open() as table, pytest.raises(TableConflict, match="other writers changed"):
        iceberg.archive(table, 0, 3)
    assert iceberg.state() == TableState(0, {})
    assert iceberg.on_disk() == set()


def test_a_change_of_an_outdated_snapshot_is_refused_and_made_once(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg would repeat the change by itself, and so add the same files twice."""

    def begin_before_another(begin: Begin, table: Table) -> Transaction:
        change = begin(table)
        with iceberg.loaded() as other:
            other.append(other.scan().to_arrow().slice(0, 0))
        return change

    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        begins = patch_first(monkeypatch, Table, "transaction", begin_before_another)
        iceberg.archive(table, 3, 5)
    assert len(begins) == 3, "ours, the other writer's, and ours again"
    assert iceberg.places() == iceberg.whole(5)
    with iceberg.loaded() as loaded:
        assert loaded.properties["commit.retry.num-retries"] == "0"


def test_a_change_is_found_even_if_another_one_followed(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, and the property with the state is that of the next change."""

    def loses(commit: Callable[..., Any], *args: Any) -> None:
        commit(*args)
        with iceberg.loaded() as loaded, loaded.transaction() as next_:
            next_.set_properties({STATE: '{"number":2,"offsets":{},"attempt":"another"}'})
        raise CommitStateUnknownException("the answer was lost")

    with iceberg.open() as table:
        patch_first(monkeypatch, SqlCatalog, "commit_table", loses)
        iceberg.archive(table, 0, 3)
    assert iceberg.places() == iceberg.whole(3)


def drop_body(table: Table) -> None:
    with table.update_schema() as change:
        change.delete_column("body")


def add_partition(table: Table) -> None:
    with table.update_spec() as change:
        change.add_field("queue_id", IdentityTransform(), "queue")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop_body, "has no column 'body' any more: another writer changed the table"),
        (
            add_partition,
            r"is not partitioned by day\(stored_at\) any more: another writer changed the table",
        ),
    ],
)
def test_a_change_that_our_files_do_not_fit_is_a_sentence(
    iceberg: TableKind, change: Callable[[Table], None], says: str
) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        with iceberg.loaded() as loaded:
            change(loaded)
        with pytest.raises(ConfigError, match=says):
            iceberg.archive(table, 3, 5)
    with pytest.raises(ConfigError, match=says):
        iceberg.open()
    assert iceberg.places() == iceberg.whole(3)


def test_a_column_that_another_writer_made_wider_is_written_on(iceberg: TableKind) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        with iceberg.loaded() as loaded, loaded.update_schema() as to:
            to.update_column("queue_id", LongType())
        iceberg.archive(table, 3, 5)
    assert iceberg.places() == iceberg.whole(5)


def test_a_table_that_was_set_back_is_not_written_on(iceberg: TableKind) -> None:
    """Its offsets are those of before: what lies between would be missing for ever."""
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        iceberg.archive(table, 3, 5)
        with iceberg.loaded() as loaded:
            [first, last] = [each.snapshot_id for each in loaded.snapshots()]
            loaded.manage_snapshots().set_current_snapshot(first).commit()
        with pytest.raises(ConfigError, match=f"was set back to snapshot {first}, from before .*"):
            iceberg.archive(table, 5, 9)
    with pytest.raises(ConfigError, match=rf"the archive's last one \({last}\), so rows up to"):
        iceberg.open()
    with iceberg.loaded() as loaded:
        loaded.manage_snapshots().set_current_snapshot(last).commit()
    with iceberg.open() as table:
        iceberg.archive(table, 5, 9)
    assert iceberg.places() == iceberg.whole(9)


def test_a_table_that_was_set_back_with_its_state_goes_on_from_there(iceberg: TableKind) -> None:
    """Its next commit has the number of the one that was given up."""
    iceberg.fill(3, 5)
    with iceberg.loaded() as loaded:
        first = loaded.snapshots()[0]
        assert first.summary is not None
        with loaded.transaction() as to:
            to.set_properties({STATE: first.summary["roquet.offsets"] or ""})
        loaded.manage_snapshots().set_current_snapshot(first.snapshot_id).commit()
    with iceberg.open() as table:
        iceberg.archive(table, 3, 7)
    with iceberg.open() as table:
        iceberg.archive(table, 7, 9)
    assert iceberg.places() == iceberg.whole(9)


def test_a_table_without_its_state_does_not_begin_again(iceberg: TableKind) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        with iceberg.loaded() as loaded, loaded.transaction() as to:
            to.remove_properties(STATE)
        with pytest.raises(TableDamaged, match=f"has no property {STATE} any more, so its offsets"):
            table.state(iceberg.queues)
