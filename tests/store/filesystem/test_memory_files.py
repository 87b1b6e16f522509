from pathlib import Path

import pytest

from roquet.model.errors import StoreFull, StoreLocked
from roquet.store.filesystem.memory_files import CHUNK_SIZE, MemoryFiles


def test_a_disk_of_memory_can_be_full() -> None:
    files = MemoryFiles(capacity=10_000)
    for name in "ab":
        files.create(Path(name), 1 << 20)
    files.allocate(Path("a"), 0, 6000)
    files.allocate(Path("a"), 0, 6000)
    with pytest.raises(StoreFull):
        files.allocate(Path("b"), 0, 6000)
    assert files.usage(Path("/")).free == 4000


def test_a_copy_stands_apart() -> None:
    files = MemoryFiles()
    files.create(Path("a"), 4096)
    files.replace(Path("b"), b"b")
    twin = files.copy()
    files.map(Path("a"), 4096)[0] = 1
    files.replace(Path("b"), b"c")
    assert (twin.read(Path("a"))[0], twin.read(Path("b"))) == (0, b"b")


def test_a_copy_of_a_large_file_has_what_was_written_wherever_that_is() -> None:
    files = MemoryFiles()
    size = 3 * CHUNK_SIZE + 100
    files.create(Path("a"), size)
    view = files.map(Path("a"), size)
    for at in (0, CHUNK_SIZE - 1, 2 * CHUNK_SIZE, size - 1):
        view[at] = 7
    assert files.copy().read(Path("a")) == files.read(Path("a"))


def test_a_lock_is_held_until_it_is_released() -> None:
    files = MemoryFiles()
    lock = files.lock(Path("/d/lock"), "process 3")
    with pytest.raises(StoreLocked, match="/d is held by process 3"):
        files.lock(Path("/d/lock"), "process 3")
    lock.release()
    files.lock(Path("/d/lock"), "process 3")


def test_nothing_was_written_where_no_blocks_are() -> None:
    files = MemoryFiles()
    files.create(Path("a"), 8192)
    files.allocate(Path("a"), 0, 100)
    assert files.data_end(Path("a"), 8192) == 100
