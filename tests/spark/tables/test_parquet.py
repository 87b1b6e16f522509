"""Parquet directory: the newest commit decides, wherever its files are."""

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roquet.spark.tables import parquet
from roquet.spark.tables.parquet import ParquetTable
from roquet.spark.tables.table import ArchiveIdentity, TableConflict, TableDamaged, TableState

if TYPE_CHECKING:
    from tests.spark.tables.conftest import TableKind

WANTED = ArchiveIdentity(
    topic="orders", columns=("broker", "queue_id", "queue_offset", "stored_at")
)
QUEUE = ("orders", "broker-a", 0)


def advance(table: ParquetTable, count: int) -> None:
    for _ in range(count):
        state = table.state()
        after = {QUEUE: state.number + 1}
        table.commit(state.then(after, table.begin().name, (), ()))


def test_a_commit_is_a_file_for_eyes(tmp_path: Path) -> None:
    with ParquetTable(tmp_path, WANTED) as table:
        advance(table, 2)
    commit = json.loads((tmp_path / "_roquet" / "commits" / "0000000002.json").read_text("utf-8"))
    assert commit["before"] == {"orders": {"broker-a": {"0": 1}}}
    assert commit["after"] == {"orders": {"broker-a": {"0": 2}}}


def test_old_commits_go_and_the_newest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "KEPT_COMMITS", 3)
    with ParquetTable(tmp_path, WANTED) as table:
        advance(table, 9)
        assert table.state() == TableState(9, {QUEUE: 9})
    names = sorted(path.stem for path in (tmp_path / "_roquet" / "commits").iterdir())
    assert names == ["0000000007", "0000000008", "0000000009"]


def test_one_of_two_simultaneous_commits_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ParquetTable(tmp_path, WANTED) as table:
        monkeypatch.setattr(parquet, "check_base", lambda commit, names: None)
        commit = TableState(0, {}).then({QUEUE: 1}, table.begin().name, (), ())
        table.commit(commit)
        with pytest.raises(TableConflict, match="commit 1 was made by another archive"):
            table.commit(commit)


def test_a_commit_that_cannot_be_read_is_not_skipped(tmp_path: Path) -> None:
    with ParquetTable(tmp_path, WANTED) as table:
        advance(table, 1)
    (tmp_path / "_roquet" / "commits" / "0000000001.json").write_text("{")
    with pytest.raises(TableDamaged, match=r"0000000001\.json is no commit"):
        ParquetTable(tmp_path, WANTED)


def test_lost_committed_files_are_an_error(kinds: "Callable[[str], TableKind]") -> None:
    parquet, root = kinds("parquet"), kinds("parquet").root
    for steps in itertools.count(1):
        parquet.root = root / str(steps)
        with (
            suppress(parquet.crash),
            parquet.open(parquet.crashing_disk(steps, last_is_done=True)) as table,
        ):
            parquet.archive(table, 0, 4)
        waiting = list(parquet.root.glob("_roquet/staging/*/*.parquet"))
        if waiting and list(parquet.root.glob("_roquet/commits/*.json")):
            break  # the decision was made, and not all files were placed
    waiting[0].unlink()
    with pytest.raises(TableDamaged, match="is missing, and so is"):
        parquet.open()
