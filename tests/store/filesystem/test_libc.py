"""Calls into the C library, and the fallbacks where it is different."""

import ctypes
import errno
import gc
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.store.filesystem import libc

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
