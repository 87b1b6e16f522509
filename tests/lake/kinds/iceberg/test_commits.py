"""Commits: tries are counted, files of refused changes go, a rollback that loses rows is seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, WaitingForLockException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from tests.lake.conftest import TableKind, patch_first, raising

from roquet.lake.kinds.iceberg import commits
from roquet.lake.kinds.iceberg.commits import CommitTries, check_lineage, is_locked
from roquet.lake.table import TableConflict, TableState
from roquet.model.errors import ConfigError


def locked() -> CommitFailedException:
    """The error of a Hive metastore whose lock another writer has."""
    error = CommitFailedException("failed to acquire lock for lake.all, state: 2")
    error.__cause__ = WaitingForLockException("wait on lock for lake.all")
    return error


def conflict() -> CommitFailedException:
    return CommitFailedException("branch main has changed")


def test_other_writers_are_always_faster() -> None:
    tries = CommitTries("lake.all", "nothing was committed")
    for _ in range(commits.CONFLICTS_MAX - 1):
        tries.refused(conflict())
    says = "other writers changed lake.all 20 times in a row; nothing was committed"
    with pytest.raises(TableConflict, match=says):
        tries.refused(conflict())


def test_a_lock_that_stays_says_how_it_ends() -> None:
    tries = CommitTries("lake.all", "no column was added")
    for _ in range(commits.CONFLICTS_MAX - 1):
        tries.refused(conflict())
    for _ in range(commits.LOCKED_MAX - 1):
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
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        refusals = refused_first(monkeypatch, commits.LOCKED_MAX - 1)
        iceberg.archive(table, 3, 5)
        assert table.state(()) == TableState(2, iceberg.offsets(5))
    assert len(refusals) == commits.LOCKED_MAX - 1
    assert iceberg.places() == iceberg.whole(5)


def test_a_table_is_made_when_the_lock_of_its_name_is_gone(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = refused_first(monkeypatch, 3)
    iceberg.fill(3)
    assert len(refusals) == 3
    assert iceberg.places() == iceberg.whole(3)


def test_a_table_whose_name_stays_locked_is_not_made(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_first(monkeypatch, commits.LOCKED_MAX)
    with pytest.raises(TableConflict, match="the table was not made"):
        iceberg.open()


def manifests(root: Path) -> set[Path]:
    return set(root.rglob("*.avro"))


def test_a_change_that_was_sent_twice_keeps_its_files(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first answer was lost, and its second request is refused: so clients of Glue do it."""

    def sent_twice(commit: Callable[..., Any], *args: Any) -> None:
        commit(*args)
        raise CommitFailedException("a concurrent update")

    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        patch_first(monkeypatch, SqlCatalog, "commit_table", sent_twice)
        iceberg.archive(table, 3, 5)
        iceberg.archive(table, 5, 7)
        assert table.state(()) == TableState(3, iceberg.offsets(7))
    assert iceberg.places() == iceberg.whole(7)


def test_the_files_of_a_refused_change_are_deleted(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        before = manifests(iceberg.root)
        monkeypatch.setattr(commits, "CONFLICTS_MAX", 3)
        monkeypatch.setattr(SqlCatalog, "commit_table", raising(CommitFailedException()))
        with pytest.raises(TableConflict, match=r"other writers changed .* 3 times in a row"):
            iceberg.archive(table, 3, 5)
    assert manifests(iceberg.root) == before
    assert iceberg.places() == iceberg.whole(3)


class Metadata:
    """The metadata of a table with these snapshots."""

    def __init__(self, snapshots: dict[int, Snapshot]) -> None:
        self._snapshots = snapshots

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        return self._snapshots.get(snapshot_id)


class Lake:
    """A table at one of its snapshots."""

    def __init__(self, parents: dict[int, int | None], current: int | None) -> None:
        self.snapshots = {
            number: Snapshot.model_validate(
                {
                    "snapshot-id": number,
                    "parent-snapshot-id": parent,
                    "sequence-number": number,
                    "timestamp-ms": number,
                    "manifest-list": f"{number}.avro",
                }
            )
            for number, parent in parents.items()
        }
        self._current = current
        self.metadata = Metadata(self.snapshots)

    def current_snapshot(self) -> Snapshot | None:
        return None if self._current is None else self.snapshots[self._current]

    def check(self, *whole: int) -> None:
        known = [self.snapshots[number] for number in whole if number in self.snapshots]
        check_lineage(cast("Table", cast("Any", self)), known, "the table")


LINE: dict[int, int | None] = {1: None, 2: 1, 3: 2}


@pytest.mark.parametrize(("parents", "current"), [(LINE, 2), ({**LINE, 4: 2}, 4)])
def test_a_current_snapshot_without_the_last_one_of_ours_is_refused(
    parents: dict[int, int | None], current: int
) -> None:
    with pytest.raises(
        ConfigError, match=r"^the table was set back to snapshot 2, from before .*3"
    ):
        Lake(parents, current).check(3)


@pytest.mark.parametrize(
    ("parents", "current", "last"),
    [
        (LINE, 3, 3),
        ({**LINE, 4: 3, 5: 4}, 5, 3),
        ({1: None, 5: 4}, 5, 1),  # what was between has expired
        ({5: 4}, 5, 3),  # the last one of ours, too
    ],
)
def test_later_snapshots_of_others_and_expired_ones_are_no_harm(
    parents: dict[int, int | None], current: int, last: int
) -> None:
    Lake(parents, current).check(last)


@pytest.mark.parametrize("current", [2, 3, 4])
def test_a_snapshot_of_ours_that_moved_no_offset_may_be_undone(current: int) -> None:
    Lake({**LINE, 4: 2}, current).check(2, 3)


def test_what_was_set_back_before_all_whole_snapshots_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set back to snapshot 1, .* last one \(3\)"):
        Lake({**LINE, 4: 1}, 4).check(2, 3)


def test_a_table_without_a_current_snapshot_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^the table was set back to no snapshot, from before "):
        Lake(LINE, None).check(3)
    Lake({}, None).check()
