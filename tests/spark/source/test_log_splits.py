"""Log splits: each byte is in one of them, and each file knows the next one in use."""

from pathlib import Path

import pytest

from roquet.model.errors import ConfigError
from roquet.spark.options import SourceOptions
from roquet.spark.session import CORES_VARIABLE
from roquet.spark.source import log_splits
from roquet.spark.source.log_splits import LogSplit, log_files, plan_splits

GIVEN = SourceOptions(namesrv=("none:1",), max_partitions=3)
SIZE = 40_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files in use, and one that is made before it is needed."""
    monkeypatch.setattr(log_splits, "SPLIT_BYTES_MIN", 9_000)
    (tmp_path / "commitlog").mkdir()
    for number in range(4):
        data = (b"x" if number < 3 else b"\0") * SIZE
        (tmp_path / "commitlog" / f"{number * SIZE:020d}").write_bytes(data)
    (tmp_path / "commitlog" / "checkpoint").write_bytes(b"x")
    return tmp_path


def parts(folder: Path) -> list[LogSplit]:
    return [part for task in plan_splits(folder, GIVEN) for part in task]


def test_parts_follow_one_another_and_tasks_are_even(folder: Path) -> None:
    splits = parts(folder)
    for number in range(3):
        own = [part for part in splits if part.position == number * SIZE]
        assert own[0].start == 0
        assert [part.stop for part in own[:-1]] == [part.start for part in own[1:]]
        assert own[-1].stop == SIZE
    sizes = [sum(part.stop - part.start for part in task) for task in plan_splits(folder, GIVEN)]
    assert len(sizes) in (3, 4)
    assert max(sizes[:3]) - min(sizes[:3]) <= 4


def test_a_file_knows_where_the_next_one_in_use_begins(folder: Path) -> None:
    untils = {part.position: part.until for part in parts(folder)}
    assert untils[0] == SIZE
    assert untils[SIZE] == 2 * SIZE
    assert untils[2 * SIZE] is None, "behind it there is only one for later"


def test_an_emptied_file_is_read_because_others_follow(folder: Path) -> None:
    (folder / "commitlog" / f"{SIZE:020d}").write_bytes(b"")
    (own,) = [part for part in parts(folder) if part.position == SIZE]
    assert (own.start, own.stop, own.until) == (0, 0, 2 * SIZE)


def test_the_directory_of_the_log_itself_is_accepted(folder: Path) -> None:
    assert log_files(folder) == log_files(folder / "commitlog")
    with pytest.raises(ConfigError, match="is no directory on this machine"):
        log_files(folder / "commitlog" / "checkpoint")
    (folder / "other").mkdir()
    with pytest.raises(ConfigError, match="holds no commit log"):
        log_files(folder / "other")


def test_where_the_cores_are_unknown_splits_go_by_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbounded = SourceOptions(namesrv=("none:1",))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.delenv(CORES_VARIABLE, raising=False)
    assert len(plan_splits(folder, unbounded)) == 2
    monkeypatch.setattr(log_splits, "SPLIT_BYTES", 2 * 9_000)
    assert len(plan_splits(folder, unbounded)) in (7, 9), "with or without the file of zeros"
    monkeypatch.setenv(CORES_VARIABLE, "4")
    assert len(plan_splits(folder, unbounded)) == 4
