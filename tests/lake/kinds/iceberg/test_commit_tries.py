"""Commit tries: conflicts with other writers are counted apart from waits for a lock."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, WaitingForLockException

from roquet.lake.kinds.iceberg import commit_tries
from roquet.lake.kinds.iceberg.commit_tries import CommitTries, is_locked
from roquet.lake.table import TableConflict, TableState

if TYPE_CHECKING:
    from tests.lake.conftest import TableKind


@pytest.fixture
def iceberg(kinds: "Callable[[str], TableKind]") -> "TableKind":
    return kinds("iceberg")


def locked() -> CommitFailedException:
    """The error of a Hive metastore whose lock another writer has."""
    error = CommitFailedException("failed to acquire lock for lake.all, state: 2")
    error.__cause__ = WaitingForLockException("wait on lock for lake.all")
    return error


def conflict() -> CommitFailedException:
    return CommitFailedException("branch main has changed")


def test_other_writers_are_always_faster() -> None:
    tries = CommitTries("lake.all", "nothing was committed")
    for _ in range(commit_tries.CONFLICTS_MAX - 1):
        tries.refused(conflict())
    says = "other writers changed lake.all 20 times in a row; nothing was committed"
    with pytest.raises(TableConflict, match=says):
        tries.refused(conflict())


def test_a_lock_that_stays_says_how_it_ends() -> None:
    tries = CommitTries("lake.all", "no column was added")
    for _ in range(commit_tries.CONFLICTS_MAX - 1):
        tries.refused(conflict())
    for _ in range(commit_tries.LOCKED_MAX - 1):
        tries.refused(locked())
    says = r"lock of lake\.all .* all of 40 tries; no column was added\. .*metastore\.txn\.timeout"
    with pytest.raises(TableConflict, match=says):
        tries.refused(locked())


def test_only_a_wait_for_a_lock_is_one() -> None:
    assert is_locked(locked())
    assert not is_locked(conflict())


def refused_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[CommitFailedException]:
    """Have the catalog refuse so many changes because of a lock; the refusals so far."""
    commit: Callable[..., Any] = SqlCatalog.commit_table
    refusals = list[CommitFailedException]()

    def refuse(*args: Any) -> Any:
        if len(refusals) == times:
            return commit(*args)
        refusals.append(locked())
        raise refusals[-1]

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    return refusals


def test_a_commit_waits_for_a_lock_longer_than_for_conflicts(
    iceberg: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        refusals = refused_first(monkeypatch, commit_tries.LOCKED_MAX - 1)
        iceberg.archive(table, 3, 5)
        assert table.state(()) == TableState(2, iceberg.offsets(5))
    assert len(refusals) == commit_tries.LOCKED_MAX - 1
    assert iceberg.places() == iceberg.whole(5)


def test_a_table_is_made_when_the_lock_of_its_name_is_gone(
    iceberg: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = refused_first(monkeypatch, 3)
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
    assert len(refusals) == 3
    assert iceberg.places() == iceberg.whole(3)


def test_a_table_whose_name_stays_locked_is_not_made(
    iceberg: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_first(monkeypatch, commit_tries.LOCKED_MAX)
    with pytest.raises(TableConflict, match="the table was not made"):
        iceberg.open()
