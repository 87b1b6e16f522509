"""Calls into the C library, and the fallbacks where it is different."""

import ctypes
import errno
import gc
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from roquet.store.filesystem import libc
from roquet.store.filesystem.libc import DiskSync, find_disk_sync

SIZE = 3 * mmap.PAGESIZE
ON_LINUX = sys.platform == "linux" and sys.version_info < (3, 13)
"""Elsewhere Python's own maps are used."""


@pytest.fixture(params=["the library", "Python alone"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Python alone":
        monkeypatch.setattr(libc, "LIBRARY", None)
    way: str = request.param
    return way


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"hello".ljust(SIZE, b"."))
    return path


@pytest.fixture
def descriptor(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_map_is_the_file(way: str, path: Path, descriptor: int) -> None:
    view = libc.map_file(descriptor, SIZE, writable=True)
    assert (len(view), view.readonly, view.format, view.itemsize) == (SIZE, False, "B", 1)
    assert bytes(view[:6]) == b"hello."
    view[-3:] = b"end"
    assert path.read_bytes().endswith(b".end")
    path.write_bytes(b"HELLO".ljust(SIZE, b"."))
    assert bytes(view[:6]) == b"HELLO."
    memory = view.obj
    assert isinstance(memory, mmap.mmap)
    assert memory.find(b"LLO", 0, SIZE) == 2
    memory.flush()
    memory.madvise(mmap.MADV_DONTNEED)
    assert bytes(view[:6]) == b"HELLO."


def test_a_map_to_be_read_cannot_be_written(way: str, descriptor: int) -> None:
    view = libc.map_file(descriptor, SIZE - 5, writable=False)
    assert (len(view), view.readonly) == (SIZE - 5, True)
    with pytest.raises(TypeError):
        view[0] = 1


def test_a_file_that_is_too_short_gets_no_map(way: str, descriptor: int) -> None:
    with pytest.raises((ValueError, OSError)):
        libc.map_file(descriptor, SIZE + mmap.PAGESIZE, writable=True)


@pytest.mark.skipif(not ON_LINUX, reason="the C library is not asked here")
def test_maps_keep_no_descriptor_and_go_with_their_last_slice(descriptor: int) -> None:
    assert not libc.maps_keep_descriptors()
    before = descriptors()
    views = [libc.map_file(descriptor, SIZE, writable=True) for _ in range(50)]
    assert descriptors() == before
    name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    piece = views[0][:5]
    views.clear()
    gc.collect()
    assert Path("/proc/self/maps").read_text().count(name) == 1
    assert bytes(piece) == b"hello"
    del piece
    gc.collect()
    assert name not in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(not ON_LINUX, reason="the C library is not asked here")
def test_a_map_that_the_system_refuses_is_an_error_and_leaves_nothing(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        ctypes.set_errno(errno.ENOMEM)
        return -1

    maps = Path("/proc/self/maps").read_text().count("\n")
    monkeypatch.setattr(libc.LIBRARY, "mmap", refuse)
    with pytest.raises(OSError, match="memory") as caught:
        libc.map_file(descriptor, SIZE, writable=True)
    assert caught.value.errno == errno.ENOMEM
    assert Path("/proc/self/maps").read_text().count("\n") <= maps + 1


def test_python_says_itself_where_it_keeps_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "LIBRARY", None)
    monkeypatch.setattr(libc, "TRACKFD_OPTION", {})
    assert libc.maps_keep_descriptors()
    monkeypatch.setattr(libc, "TRACKFD_OPTION", {"trackfd": False})
    assert not libc.maps_keep_descriptors()


def test_a_disk_is_synced_by_a_directory_of_it(tmp_path: Path, way: str) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    assert libc.sync_disk(handle) is (way == "the library" and sys.platform == "linux")
    os.close(handle)
    assert not libc.sync_disk(handle)


def test_another_system_has_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (libc.open_library() is None) is (sys.platform != "linux")
    monkeypatch.setattr(sys, "platform", "linux")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no library")

    monkeypatch.setattr(ctypes, "PyDLL", refuse)
    assert libc.open_library() is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert libc.open_library() is None


def test_memory_can_be_kept_in_every_way(way: str) -> None:
    libc.keep_memory(1 << 20)
    assert len(bytearray(2 << 20)) == 2 << 20, "memory is given as before"


def test_kept_memory_is_asked_for_where_the_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[int, int] = {}

    class Glibc:
        mallopt = options.__setitem__

    class Musl:
        mallopt = None

    monkeypatch.setattr(libc, "LIBRARY", Musl())
    libc.keep_memory(1 << 20)
    assert options == {}
    monkeypatch.setattr(libc, "LIBRARY", Glibc())
    libc.keep_memory(1 << 20)
    assert options == {-1: 1 << 20, -3: 1 << 20}


class LinuxSystem:
    """A simulated Linux version, with the temporary directory on one of its disks."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.mounts = folder.parent / f"{folder.name}-mounts"
        patch.setattr(libc, "MOUNTS", self.mounts)
        self.names("Linux", "6.1.0-13-amd64")
        self.mounted("ext4")

    def names(self, system: str, release: str) -> None:
        self.patch.setattr(os, "uname", lambda: SimpleNamespace(sysname=system, release=release))

    def mounted(self, kind: str) -> None:
        number = self.folder.stat().st_dev
        self.mounts.write_text(
            "21 1 0:19 / /sys rw,nosuid - sysfs sysfs rw\n"
            f"29 1 {os.major(number)}:{os.minor(number)} / /data rw,relatime shared:1"
            f" master:2 - {kind} /dev/vda rw\n"
        )

    @property
    def is_trusted(self) -> bool:
        found = find_disk_sync(self.folder)
        if found is not None:
            found.close()
        return found is not None


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LinuxSystem:
    return LinuxSystem(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "is_trusted"),
    [("ext4", True), ("xfs", True), ("overlay", False), ("fuse.sshfs", False), ("nfs4", False)],
)
def test_disks_of_the_kernel_are_trusted(system: LinuxSystem, kind: str, is_trusted: bool) -> None:
    system.mounted(kind)
    assert system.is_trusted is is_trusted


@pytest.mark.parametrize(
    ("name", "release", "is_trusted"),
    [
        ("Linux", "5.8.0", True),
        ("Linux", "5.7.19-generic", False),
        ("Linux", "4.18.0-513.el8", False),
        ("Linux", "10.0", True),
        ("Linux", "new", False),
        ("FreeBSD", "14.0-RELEASE", False),
    ],
)
def test_a_system_that_does_not_report_failures_is_not_used(
    system: LinuxSystem, name: str, release: str, is_trusted: bool
) -> None:
    system.names(name, release)
    assert system.is_trusted is is_trusted


def test_a_disk_that_is_not_found_is_not_trusted(
    system: LinuxSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.mounts.write_text("21 1 0:19 / /sys rw,nosuid - sysfs sysfs rw\n")
    assert not system.is_trusted
    system.mounts.unlink()
    assert not system.is_trusted
    monkeypatch.delattr(os, "uname")
    assert not system.is_trusted


def test_a_directory_that_lies_on_two_disks_is_not_trusted(
    system: LinuxSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system.folder / "consumequeue").mkdir()
    assert system.is_trusted
    stat = Path.stat

    def elsewhere(path: Path, **options: bool) -> object:
        found = stat(path, **options)
        if path.name != "consumequeue":
            return found
        return SimpleNamespace(st_dev=found.st_dev + 1)

    monkeypatch.setattr(Path, "stat", elsewhere)
    assert not system.is_trusted


def test_a_watched_disk_is_synced_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def synced(number: int) -> bool:
        asked.append(number)
        return True

    monkeypatch.setattr(libc, "sync_disk", synced)
    whole = DiskSync(tmp_path)
    assert whole.sync()
    whole.close()
    whole.close()
    (number,) = asked
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(number)
