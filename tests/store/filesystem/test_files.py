"""The file system operations of the store, with both kinds of files."""

import errno
import os
import resource
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roquet.model.errors import StoreError, StoreFull
from roquet.store.filesystem import files as real_files
from roquet.store.filesystem import libc
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles


@pytest.fixture(params=[RealFiles, MemoryFiles])
def files(request: pytest.FixtureRequest) -> Files:
    made: Files = request.param()
    return made


def test_a_file_has_its_full_length_at_once(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    files.create(path, 10_000)
    assert files.list(path.parent) == {"file": 10_000}
    assert files.list(tmp_path) == {"a": None}
    assert files.list(tmp_path / "missing") == {}
    assert files.read(path) == bytes(10_000)


def test_creating_again_keeps_what_is_there_and_makes_it_longer(
    files: Files, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    files.create(path, 4096)
    files.map(path, 4096)[:5] = b"hello"
    files.create(path, 8192)
    files.create(path, 100)
    assert files.read(path) == b"hello".ljust(8192, b"\0")


def test_bytes_written_through_a_map_are_in_the_file(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.create(path, 8192)
    files.allocate(path, 0, 8192)
    view = files.map(path, 8192)
    view[4000:4010] = b"0123456789"
    files.sync(path, view)
    files.release_pages(view, 8192)
    assert bytes(files.map(path, 8192, writable=False)[4000:4010]) == b"0123456789"
    assert 4010 <= files.data_end(path, 8192) <= 8192


def test_a_read_only_map_cannot_be_written(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.create(path, 4096)
    with pytest.raises(TypeError):
        files.map(path, 4096, writable=False)[0] = 1


def test_allocation_keeps_the_content_of_a_range(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.create(path, 200_000)
    files.allocate(path, 0, 4096)
    files.map(path, 200_000)[100:103] = b"abc"
    files.allocate(path, 0, 200_000)
    assert files.read(path)[100:103] == b"abc"


def test_a_replaced_file_keeps_a_backup(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    files.replace(path, b"one", keep=True)
    files.replace(path, b"two", keep=True)
    files.replace(path, b"three", keep=True)
    assert files.read(path) == b"three"
    assert files.read(tmp_path / "config" / "topics.json.bak") == b"two"
    assert set(files.list(path.parent)) == {"topics.json", "topics.json.bak"}


def test_a_missing_file_cannot_be_read(files: Files, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "none")


def test_files_and_whole_directories_are_removed(files: Files, tmp_path: Path) -> None:
    files.replace(tmp_path / "d" / "a", b"1")
    files.replace(tmp_path / "d" / "e" / "b", b"2")
    files.remove(tmp_path / "d" / "a")
    files.remove(tmp_path / "d" / "a")
    assert files.list(tmp_path / "d") == {"e": None}
    files.remove(tmp_path / "d")
    assert files.list(tmp_path / "d") == {}


def test_a_directory_is_moved_with_all_it_holds(files: Files, tmp_path: Path) -> None:
    path, target = tmp_path / "queues" / "T", tmp_path / "removed" / "1"
    files.create(path / "0" / "file", 4096)
    files.allocate(path / "0" / "file", 0, 4096)
    files.map(path / "0" / "file", 4096)[:5] = b"hello"
    files.create(tmp_path / "queues" / "Told", 100)
    files.move(path, target)
    assert files.list(path.parent) == {"Told": 100}
    assert files.peek(target / "0" / "file", 0, 5) == b"hello"
    files.move(path, tmp_path / "removed" / "2")
    assert files.list(target.parent) == {"1": None}


def test_a_directory_is_moved_nowhere_where_something_is_in_the_way(tmp_path: Path) -> None:
    files = RealFiles()
    files.create(tmp_path / "T" / "file", 100)
    files.create(tmp_path / "removed", 100)
    with pytest.raises(StoreError, match="removed"):
        files.move(tmp_path / "T", tmp_path / "removed" / "1")
    assert files.list(tmp_path / "T") == {"file": 100}


def test_directories_can_be_synced_and_disks_be_asked(files: Files, tmp_path: Path) -> None:
    files.replace(tmp_path / "a", b"1")
    files.sync(tmp_path)
    usage = files.usage(tmp_path)
    assert 0 < usage.free <= usage.total


def test_a_refused_write_is_a_full_disk_or_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = RealFiles(), tmp_path / "file"
    files.create(path, 4096)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(StoreFull, match="the disk is full"):
        files.allocate(path, 0, 4096)
    with pytest.raises(StoreError, match="cannot be used"):
        files.map(tmp_path / "none", 4096)
    with pytest.raises(StoreError, match="cannot be used"):
        files.list(path)


def test_a_limit_on_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    import signal

    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, old[1]))
    try:
        with pytest.raises(StoreFull):
            RealFiles().create(tmp_path / "file", 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def test_blocks_are_written_and_contents_kept_without_fallocate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = RealFiles(), tmp_path / "file"
    files.create(path, 200_000)
    files.map(path, 200_000)[150_000:150_003] = b"abc"
    monkeypatch.setattr(sys, "platform", "freebsd")
    files.allocate(path, 1000, 199_000)
    monkeypatch.undo()
    assert files.read(path)[150_000:150_003] == b"abc"
    assert path.stat().st_blocks * 512 >= 199_000


def test_a_hole_at_the_end_is_known_to_hold_nothing(tmp_path: Path) -> None:
    files, path = RealFiles(), tmp_path / "file"
    files.create(path, 1 << 30)
    assert files.data_end(path, 1 << 30) in (0, 1 << 30)
    files.map(path, 1 << 30)[:3] = b"abc"
    files.sync(path)
    assert files.data_end(path, 1 << 30) >= 3


def test_maps_leave_descriptors_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "maps_keep_descriptors", lambda: False)
    assert RealFiles().maps_max() == real_files.MAPS_MAX
    monkeypatch.setattr(libc, "maps_keep_descriptors", lambda: True)
    for limit, maps in (
        (10_000, (10_000 - real_files.DESCRIPTORS_KEPT) * 3 // 4),
        (256, real_files.MAPS_MIN),
        (resource.RLIM_INFINITY, real_files.MAPS_MAX),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert RealFiles().maps_max() == maps
    monkeypatch.setitem(sys.modules, "resource", None)
    assert RealFiles().maps_max() == real_files.MAPS_MIN


def test_bytes_go_to_a_file_without_a_map(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.create(path, 4096)
    files.allocate(path, 0, 4096)
    files.write(path, 10, b"abc")
    assert files.read(path)[9:14] == b"\0abc\0"
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "none", 0, b"abc")
    assert "none" not in files.list(tmp_path)


def test_an_open_file_takes_many_writes_which_its_map_shows_at_once(
    files: Files, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    files.create(path, 4096)
    files.allocate(path, 0, 4096)
    view = files.map(path, 4096)
    view[20:22] = b"by"
    writer = files.open_writer(path)
    for at, data in ((10, b"abc"), (22, memoryview(b" map")), (11, b"x")):
        writer.write(at, data)
        assert view[at : at + len(data)] == data
    writer.close()
    assert files.read(path)[9:27] == b"\0axc" + bytes(7) + b"by map\0"
    with pytest.raises(FileNotFoundError):
        files.open_writer(tmp_path / "none")
    assert "none" not in files.list(tmp_path)


def test_a_system_without_positioned_writes_seeks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pwrite")
    path = tmp_path / "file"
    RealFiles().create(path, 4096)
    RealFiles().write(path, 7, b"abc")
    assert path.read_bytes()[6:11] == b"\0abc\0"


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write, pwrite = tmp_path / "file", os.write, os.pwrite
    RealFiles().create(path, 4096)
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data[:2])))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data[:1]), at))
    RealFiles().write(path, 1, b"abcde")
    RealFiles().replace(tmp_path / "table", b"seven b")
    assert path.read_bytes()[:7] == b"\0abcde\0"
    assert (tmp_path / "table").read_bytes() == b"seven b"


def test_a_save_that_fails_leaves_the_old_content_and_the_next_one_uses_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    RealFiles().replace(path, b"one")
    begun: list[int] = []

    def failing(handle: int) -> None:
        begun.append(os.dup(handle))  # keeps the file, so that none after it can be the same one
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "linux")
        patch.setattr(os, "fdatasync", failing, raising=False)
        for _ in range(2):
            with pytest.raises(StoreError, match="table cannot be used: Input/output error"):
                RealFiles().replace(path, b"two")
    assert path.read_bytes() == b"one"
    assert len({os.fstat(handle).st_ino for handle in begun}) == 2
    for handle in begun:
        os.close(handle)
    RealFiles().replace(path, b"three")
    assert path.read_bytes() == b"three"


def test_a_file_that_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(StoreError, match="file cannot be used: Input/output error"):
        RealFiles().remove(tmp_path / "file")


def test_a_sync_needs_a_file_or_a_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RealFiles().sync(tmp_path / "none")


def test_a_file_that_may_not_be_opened_is_not_taken_for_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = RealFiles(), tmp_path / "file"
    files.create(path, 4096)

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        files.sync(path)


def test_only_real_files_may_have_a_disk_to_sync(tmp_path: Path) -> None:
    assert MemoryFiles().disk_sync(tmp_path) is None
    found = RealFiles().disk_sync(tmp_path)
    if found is not None:
        assert found.sync()
        found.close()


def test_macos_uses_a_full_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    asked: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _, command: asked.append(command))
    files, path = RealFiles(), tmp_path / "file"
    files.create(path, 4096)
    view = files.map(path, 4096)
    view[0] = 1
    monkeypatch.setattr(sys, "platform", "darwin")
    files.sync(path, view)
    assert asked == [51]


def test_windows_syncs_files_and_needs_no_sync_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    files = RealFiles()
    files.create(tmp_path / "file", 4096)
    monkeypatch.setattr(sys, "platform", "win32")
    files.sync(tmp_path)
    assert synced == []
    files.sync(tmp_path / "file")
    assert len(synced) == 1


def test_a_file_counts_as_full_if_holes_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = RealFiles(), tmp_path / "file"
    files.create(path, 1 << 20)

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refuse)
    assert files.data_end(path, 1 << 20) == 1 << 20
    monkeypatch.delattr(os, "SEEK_DATA")
    assert files.data_end(path, 1 << 20) == 1 << 20


def test_a_file_that_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match=r"file/topics.json cannot be used"):
        RealFiles().replace(tmp_path / "file" / "topics.json", b"{}")


def test_blocks_that_only_root_may_use_do_not_count_as_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=100, used=30, free=20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert RealFiles().usage(tmp_path).ratio == 0.6


def test_some_bytes_are_read_without_a_map(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.create(path, 100)
    files.map(path, 100)[90:95] = b"hello"
    assert files.peek(path, 90, 5) == b"hello"
    assert files.peek(path, 95, 40) == bytes(5)
    with pytest.raises(FileNotFoundError):
        files.peek(tmp_path / "missing", 0, 5)


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be used: Is a directory; move away what is there"):
        RealFiles().peek(tmp_path, 0, 5)


def test_a_file_in_a_new_directory_is_durable_with_the_names_that_lead_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(real_files, "sync_directory", synced.append)
    RealFiles().replace(tmp_path / "a" / "b" / "table", b"one")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    RealFiles().replace(tmp_path / "a" / "b" / "table", b"two")
    assert synced[3:] == [tmp_path / "a" / "b"]


def test_a_link_that_leads_nowhere_is_named_and_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    assert RealFiles().list(tmp_path) == {"file": 3, "link": 3}
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="link cannot be used: No such file"):
        RealFiles().list(tmp_path)


def test_a_file_deleted_during_a_listing_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "gone").write_bytes(b"abc")
    with os.scandir(tmp_path) as found:
        entries = list(found)
    (tmp_path / "gone").unlink()
    monkeypatch.setattr(os, "scandir", lambda _: ExitStackOf(entries))
    assert RealFiles().list(tmp_path) == {"file": 3}


class ExitStackOf(list[os.DirEntry[str]]):
    """A directory listing read earlier."""

    def __enter__(self) -> "ExitStackOf":
        return self

    def __exit__(self, *_: object) -> None: ...
