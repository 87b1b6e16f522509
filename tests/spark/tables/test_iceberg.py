"""Iceberg table: snapshot and offsets in one change, in this catalog or another."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from roquet.model.errors import ConfigError
from roquet.spark.tables.iceberg import IcebergTable
from roquet.spark.tables.table import ArchiveIdentity, TableConflict, TableState


@pytest.fixture
def iceberg(kinds: Any) -> Any:
    return kinds("iceberg")


def catalog(root: Path) -> SqlCatalog:
    return SqlCatalog("roquet", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")


def test_the_partition_is_the_day_of_the_stored_time(iceberg: Any) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 12)
    with catalog(iceberg.root) as found:
        loaded = found.load_table("roquet.orders")
        assert [str(field.transform) for field in loaded.spec().fields] == ["day"]
        late = loaded.scan("stored_at >= '2026-02-01T00:00:00+00:00'")
        assert len(list(late.plan_files())) == 2
        assert late.to_arrow().num_rows == 4
        snapshot = loaded.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["roquet.number"] == "1"


def test_topics_share_a_catalog(iceberg: Any) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
    with iceberg.open(wanted=ArchiveIdentity(topic="bills-2026", columns=())) as table:
        assert table.state(()) == TableState(0, {})
    assert iceberg.places() == iceberg.whole(3)
    with catalog(iceberg.root) as found:
        assert sorted(found.list_tables("roquet")) == [
            ("roquet", "bills_2026"),
            ("roquet", "orders"),
        ]


def test_topics_whose_names_make_the_same_table_are_told_apart(iceberg: Any) -> None:
    iceberg.open(wanted=ArchiveIdentity(topic="a-b", columns=())).close()
    with pytest.raises(ConfigError, match="archive of topic 'a-b', not of 'a_b'"):
        iceberg.open(wanted=ArchiveIdentity(topic="a_b", columns=()))


def test_another_catalog_and_another_name(tmp_path: Path, iceberg: Any) -> None:
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/mine.db",
        "warehouse": f"file://{tmp_path}/w",
    }
    made = IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options)
    with made as table:
        iceberg.archive(table, 0, 3)
    with SqlCatalog("roquet", **options) as found:
        assert found.load_table("lake.all").scan().to_arrow().num_rows == 6


def test_a_warehouse_that_is_no_directory_is_said(tmp_path: Path, iceberg: Any) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/mine.db", "warehouse": "s3://bucket/w"}
    with pytest.raises(ConfigError, match="is no directory"):
        IcebergTable(iceberg.root, iceberg.wanted, catalog=options)


def test_a_table_that_is_no_archive_is_left_alone(iceberg: Any) -> None:
    iceberg.open().close()
    with catalog(iceberg.root) as found, found.load_table("roquet.orders").transaction() as change:
        change.remove_properties("roquet.archive")
    with pytest.raises(ConfigError, match=r"roquet\.orders of .* is not an archive"):
        iceberg.open()


def test_changes_of_others_are_no_hindrance(iceberg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody changes the table after we have looked at it and before our change."""
    others = [0]

    def first_another(self: Any, commit: Any) -> None:
        others[0] += 1
        if others[0] == 1:
            with catalog(iceberg.root) as found:
                change = found.load_table("roquet.orders").transaction()
                change.set_properties({"owner": "me"}).commit_transaction()
            raise CommitFailedException("somebody came first")
        changed(self, commit)

    changed = IcebergTable._change
    monkeypatch.setattr(IcebergTable, "_change", first_another)
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
    assert iceberg.places() == iceberg.whole(3)


def test_who_is_always_late_gives_up_and_leaves_no_file(
    iceberg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(self: Any, commit: Any) -> None:
        raise CommitFailedException("somebody came first")

    monkeypatch.setattr(IcebergTable, "_change", late)
    with iceberg.open() as table, pytest.raises(TableConflict, match="other writers changed"):
        iceberg.archive(table, 0, 3)
    assert iceberg.state() == TableState(0, {})
    assert iceberg.on_disk() == set()


def test_a_change_that_was_refused_is_not_tried_again_by_itself(iceberg: Any) -> None:
    """pyiceberg would add the same files for the newer snapshot, and so twice."""
    with iceberg.open() as first:
        iceberg.archive(first, 0, 3)
        stale = first._table
        commit = TableState(1, iceberg.offsets(3)).then(iceberg.offsets(4), "", (), ())
        assert stale.properties["commit.retry.num-retries"] == "0"
        with catalog(iceberg.root) as found:
            old = found.load_table("roquet.orders")
            iceberg.archive(first, 3, 5)
            first._table = old
            with pytest.raises(CommitFailedException):
                first._change(commit)
