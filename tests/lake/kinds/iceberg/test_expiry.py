"""Expiry: older snapshots go, with the files that only they have; nothing else does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from tests.lake.conftest import TableKind, patch_first, raising

from roquet.lake.table import ArchiveTable, ExpiredVersions, TableConflict

FUTURE_MS = 4_000_000_000_000


def merged(iceberg: TableKind, table: ArchiveTable) -> None:
    """Two batches, and a merge that replaces their four files."""
    iceberg.archive(table, 0, 3)
    iceberg.archive(table, 3, 8)
    iceberg.merge(table, 8, table.files())


def metadata_files(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*.avro")}


def test_replaced_files_go_with_the_last_snapshot_that_has_them(iceberg: TableKind) -> None:
    with iceberg.open() as table:
        merged(iceberg, table)
        before = iceberg.on_disk() | metadata_files(iceberg.root)
        preview = table.expire(FUTURE_MS, is_preview=True)
        assert iceberg.on_disk() | metadata_files(iceberg.root) == before, "a preview removes none"
        assert table.expire(FUTURE_MS, is_preview=False) == preview
        after = iceberg.on_disk() | metadata_files(iceberg.root)
        assert len(before - after) == preview.files
        assert preview.versions == 1, "the first one says where the archive began"
        assert table.expire(FUTURE_MS, is_preview=False) == ExpiredVersions()
    assert iceberg.places() == iceberg.whole(8)
    with iceberg.loaded() as loaded:
        for snapshot in loaded.snapshots():
            loaded.scan(snapshot_id=snapshot.snapshot_id).to_arrow()


def test_young_snapshots_and_those_with_a_name_stay(iceberg: TableKind) -> None:
    with iceberg.open() as table:
        merged(iceberg, table)
        assert table.expire(1, is_preview=False) == ExpiredVersions()
        with iceberg.loaded() as loaded:
            second = loaded.snapshots()[1].snapshot_id
            loaded.manage_snapshots().create_tag(second, "audited").commit()
        assert table.expire(FUTURE_MS, is_preview=False) == ExpiredVersions()
    with iceberg.loaded() as loaded:
        assert loaded.scan(snapshot_id=second).to_arrow().num_rows == 16


def test_a_change_of_another_writer_is_met_again(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with iceberg.open() as table:
        merged(iceberg, table)
        refused = raising(CommitFailedException("another came first"))
        calls = patch_first(monkeypatch, SqlCatalog, "commit_table", refused)
        assert table.expire(FUTURE_MS, is_preview=False).versions == 1
    assert len(calls) == 2


def test_a_table_that_is_turned_back_meanwhile_keeps_what_it_was_turned_to(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turned_back(commit: Callable[..., Any], *args: Any) -> Any:
        with iceberg.loaded() as loaded:
            second = loaded.snapshots()[1].snapshot_id
            loaded.manage_snapshots().rollback_to_snapshot(second).commit()
        return commit(*args)

    with iceberg.open() as table:
        merged(iceberg, table)
        patch_first(monkeypatch, SqlCatalog, "commit_table", turned_back)
        table.expire(FUTURE_MS, is_preview=False)
    assert len(iceberg.places()) == 16


def test_a_writer_that_is_always_too_late_removes_nothing(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with iceberg.open() as table:
        merged(iceberg, table)
        before = iceberg.on_disk()
        monkeypatch.setattr(SqlCatalog, "commit_table", raising(CommitFailedException()))
        with pytest.raises(TableConflict, match="nothing expired"):
            table.expire(FUTURE_MS, is_preview=False)
    assert iceberg.on_disk() == before
