"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from roquet.lake.files.disk import Disk, sync

DISK = Disk()


def test_a_file_is_put_in_place_of_another(tmp_path: Path) -> None:
    DISK.put(tmp_path / "note", b"first")
    DISK.put(tmp_path / "note", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("note", b"second")]


def test_a_file_is_moved_and_removed(tmp_path: Path) -> None:
    DISK.make(tmp_path / "a" / "b")
    (tmp_path / "file").write_bytes(b"x")
    DISK.move(tmp_path / "file", tmp_path / "a" / "b" / "file")
    DISK.sync(tmp_path / "a" / "b")
    sync(tmp_path / "a" / "b" / "file")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("f*")] == ["a/b/file"]
    for _ in range(2):
        DISK.remove(tmp_path / "a" / "b" / "file")
    assert list(tmp_path.rglob("f*")) == []


def test_a_cleared_directory_leaves_late_writers_no_place(tmp_path: Path) -> None:
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    with (attempt / "file").open("wb") as late:
        DISK.clear(attempt)
        late.write(b"whoever has a file open may go on")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        (attempt / "another").open("wb")


def test_files_of_a_killed_clearing_are_deleted_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "attempt.gone").mkdir()
    (tmp_path / "attempt.gone" / "file").touch()
    (tmp_path / "attempt").mkdir()
    DISK.clear(tmp_path / "attempt")
    DISK.clear(tmp_path / "attempt")
    assert list(tmp_path.iterdir()) == []
