"""Staging: files wait hidden, move to their days once, and are removed without a commit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.lake.files.disk import Disk
from roquet.lake.files.staging import KIND_MARKERS, Staging, check_target
from roquet.lake.table import DataFile, TableConflict, TableDamaged, TableState
from roquet.model.errors import ConfigError

FILE = DataFile(name="roquet-1.parquet", day="2026-01-31", rows=3, size=4)


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[Staging]:
    opened = Staging(tmp_path, tmp_path, Disk())
    yield opened
    opened.close()


def waiting(staging: Staging) -> str:
    attempt = staging.begin()
    (attempt / FILE.name).write_bytes(b"rows")
    return attempt.name


def test_placing_twice_is_placing_once(staging: Staging) -> None:
    commit = TableState(0, {}).then({}, waiting(staging), [FILE], ())
    for _ in range(2):
        staging.publish(commit)
        assert Path(staging.address(FILE)).read_bytes() == b"rows"
    assert (staging.home / "staging" / commit.attempt).is_dir()


def test_a_missing_file_is_an_error(staging: Staging) -> None:
    with pytest.raises(TableDamaged, match=r"roquet-1\.parquet is missing, and so is"):
        staging.publish(TableState(0, {}).then({}, staging.begin().name, [FILE], ()))


def test_a_new_attempt_ends_all_earlier_ones(staging: Staging) -> None:
    old = waiting(staging)
    assert staging.begin().is_dir()
    assert not (staging.home / "staging" / old).exists()


@pytest.mark.parametrize(("number", "is_there"), [(0, False), (1, True)])
def test_placed_files_are_removed_unless_the_commit_was_made(
    staging: Staging, number: int, is_there: bool
) -> None:
    commit = TableState(0, {}).then({}, waiting(staging), [FILE], ())
    staging.publish(commit)
    staging.settle(number)
    assert Path(staging.address(FILE)).exists() == is_there
    staging.settle(0)
    assert Path(staging.address(FILE)).exists() == is_there, "it is settled once and for all"


def test_one_archive_at_a_time_holds_the_directory(tmp_path: Path, staging: Staging) -> None:
    with pytest.raises(TableConflict, match="another archive writes to"):
        Staging(tmp_path, tmp_path, Disk())
    staging.close()
    Staging(tmp_path, tmp_path, Disk()).close()


def test_unfinished_notes_are_deleted(tmp_path: Path, staging: Staging) -> None:
    staging.close()
    torn = staging.home / "intent.json.0a1b2c3d"
    torn.write_bytes(b"{")
    Staging(tmp_path, tmp_path, Disk()).close()
    assert not torn.exists()


@pytest.mark.parametrize("kind", KIND_MARKERS)
@pytest.mark.parametrize("other", KIND_MARKERS)
def test_a_table_of_another_kind_is_no_target(tmp_path: Path, kind: str, other: str) -> None:
    (tmp_path / KIND_MARKERS[other]).parent.mkdir(exist_ok=True)
    (tmp_path / KIND_MARKERS[other]).touch()
    if kind == other:
        check_target(tmp_path, kind)
        return
    with pytest.raises(ConfigError, match=f"holds a table of kind {other}"):
        check_target(tmp_path, kind)


def test_a_missing_an_empty_and_an_unfinished_directory_are_targets(tmp_path: Path) -> None:
    check_target(tmp_path / "none", "delta")
    check_target(tmp_path, "delta")
    (tmp_path / "_roquet").mkdir()
    check_target(tmp_path, "delta")
    assert [path.name for path in tmp_path.iterdir()] == ["_roquet"], "a check changes nothing"
