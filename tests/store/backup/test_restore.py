import os
from pathlib import Path

import pytest
from tests.store.backup.conftest import OpenStore
from tests.store.conftest import NOW, fill, read_bodies

from roquet.model.errors import StoreError
from roquet.store.backup.backup import back_up
from roquet.store.backup.manifest import DATA_NAME
from roquet.store.backup.restore import damaged_files, find_backup, restore


@pytest.fixture
def backup(in_use: OpenStore) -> Path:
    fill(in_use.store, 120)
    in_use.store.flush_all(NOW)
    return back_up(in_use.directory, in_use.backups, NOW).path


def log_file(backup: Path) -> Path:
    return backup / DATA_NAME / "commitlog" / f"{0:020d}"


def test_the_newest_backup_of_a_directory_is_found(
    backup: Path, in_use: OpenStore, tmp_path: Path
) -> None:
    newer = back_up(in_use.directory, in_use.backups, NOW + 1).path
    assert find_backup(in_use.backups) == newer
    assert find_backup(backup) == backup
    with pytest.raises(StoreError, match="is not a backup"):
        find_backup(tmp_path / "none")


def test_files_keep_their_full_length_and_are_private(backup: Path, in_use: OpenStore) -> None:
    manifest = restore(backup, in_use.restored, {"bootId": b"another machine"})
    for file in manifest.files:
        assert (in_use.restored / file.path).stat().st_size == file.size
    assert in_use.restored.stat().st_mode & 0o777 == 0o700
    assert (in_use.restored / "bootId").read_bytes() == b"another machine"
    assert (in_use.restored / "abort").exists()


def test_an_empty_directory_is_filled_and_any_other_refused(
    backup: Path, in_use: OpenStore
) -> None:
    in_use.restored.mkdir()
    restore(backup, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert len(read_bodies(restored)) == 120
    restored.close(NOW)
    with pytest.raises(StoreError, match="is not empty"):
        restore(backup, in_use.restored)
    with pytest.raises(StoreError, match="is not empty"):
        restore(backup, backup / "manifest.json")


def test_a_link_to_an_empty_directory_stays_a_link(backup: Path, in_use: OpenStore) -> None:
    place = in_use.restored.with_name("disk")
    place.mkdir()
    in_use.restored.symlink_to(place)
    restore(backup, in_use.restored)
    assert in_use.restored.is_symlink()
    assert (place / "abort").exists()


def test_a_mount_point_is_refused_before_anything_is_copied(
    backup: Path, in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_use.restored.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == in_use.restored.resolve())
    with pytest.raises(StoreError, match="is a mount point: give a directory in it"):
        restore(backup, in_use.restored)
    assert list(in_use.restored.iterdir()) == []


def test_a_restore_that_was_killed_is_begun_again(backup: Path, in_use: OpenStore) -> None:
    left = in_use.restored.with_name("restored.restoring")
    left.mkdir()
    (left / "half").write_text("")
    restore(backup, in_use.restored)
    assert not (in_use.restored / "half").exists()
    assert not left.exists()


@pytest.mark.parametrize("fault", ["changed", "truncated", "missing"])
def test_a_damaged_file_is_named_and_nothing_is_restored(
    backup: Path, in_use: OpenStore, fault: str
) -> None:
    path = log_file(backup)
    assert list(damaged_files(backup)) == []
    data = bytearray(path.read_bytes())
    if fault == "changed":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif fault == "truncated":
        path.write_bytes(data[:-1])
    else:
        path.unlink()
    (found,) = damaged_files(backup)
    assert found.startswith(str(path))
    with pytest.raises(StoreError, match=f"{path} is (damaged|missing)"):
        restore(backup, in_use.restored)
    assert not in_use.restored.exists()
    assert not in_use.restored.with_name("restored.restoring").exists()


def test_a_directory_that_cannot_be_made_is_named(backup: Path, in_use: OpenStore) -> None:
    with pytest.raises(StoreError, match="restored"):
        restore(backup, backup / "manifest.json" / "restored")


def replace_log_file(backup: Path, kind: str, target: Path) -> Path:
    file = log_file(backup)
    if kind == "link to a directory":
        file.parent.rename(target)
        file.parent.symlink_to(target)
        return file
    file.rename(target)
    os.mkfifo(file) if kind == "pipe" else file.symlink_to(target)
    return file


@pytest.mark.parametrize("kind", ["pipe", "link", "link to a directory"])
def test_a_pipe_or_a_link_in_a_backup_is_named_and_nothing_is_restored(
    backup: Path, in_use: OpenStore, tmp_path: Path, kind: str
) -> None:
    file = replace_log_file(backup, kind, tmp_path / "outside")
    with pytest.raises(StoreError, match=r"(no file, but a pipe|a link).*nothing was restored"):
        restore(backup, in_use.restored)
    assert not in_use.restored.exists()
    assert any(str(file) in line for line in damaged_files(backup))
