"""Snapshot commit: the files of a change go only if the table has not got it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from roquet.lake.kinds.iceberg import commit_tries
from roquet.lake.table import TableConflict, TableState

if TYPE_CHECKING:
    from tests.lake.conftest import TableKind


@pytest.fixture
def iceberg(kinds: "Callable[[str], TableKind]") -> "TableKind":
    return kinds("iceberg")


def manifests(root: Path) -> set[Path]:
    return set(root.rglob("*.avro"))


def test_a_change_that_was_sent_twice_keeps_its_files(
    iceberg: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first answer was lost, and its second request is refused: so clients of Glue do it."""
    commit: Callable[..., Any] = SqlCatalog.commit_table

    def sent_twice(*args: Any) -> None:
        commit(*args)
        raise CommitFailedException("a concurrent update")

    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", sent_twice)
            iceberg.archive(table, 3, 5)
        iceberg.archive(table, 5, 7)
        assert table.state(()) == TableState(3, iceberg.offsets(7))
    assert iceberg.places() == iceberg.whole(7)


def test_the_files_of_a_refused_change_are_deleted(
    iceberg: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 0

    def refuse(*_: Any) -> None:
        nonlocal refusals
        refusals += 1
        raise CommitFailedException("another writer came first")

    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        before = manifests(iceberg.root)
        monkeypatch.setattr(commit_tries, "CONFLICTS_MAX", 3)
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", refuse)
            with pytest.raises(TableConflict, match="other writers changed"):
                iceberg.archive(table, 3, 5)
    assert refusals == 3
    assert manifests(iceberg.root) == before
    assert iceberg.places() == iceberg.whole(3)
