import errno
from pathlib import Path

import pytest

from roquet.model.errors import StoreError, StoreFull
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.mapped_file import BUFFERED_MAX_BYTES, MappedFile, MapPool
from roquet.store.filesystem.memory_files import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def pool(files: MemoryFiles) -> MapPool:
    return MapPool(files, 3)


def made(pool: MapPool, name: str, size: int = 16384) -> MappedFile:
    file = MappedFile(pool, Path(f"/{name}"), 0, size)
    file.create()
    return file


def test_a_file_is_mapped_when_looked_at(pool: MapPool) -> None:
    file = made(pool, "a")
    assert file.mapped_view is None
    file.view()[5] = 7
    assert file.mapped_view is not None
    pool.drop(file)
    assert file.mapped_view is None
    assert file.view()[5] == 7


def test_no_more_maps_than_allowed_are_held(pool: MapPool) -> None:
    files = [made(pool, name) for name in "abcdef"]
    for file in files * 2:
        file.view()
        assert len(pool) <= 3
    pool.drop_all()
    assert len(pool) == 0


def test_recently_used_maps_are_kept(pool: MapPool) -> None:
    busy, *others = [made(pool, name) for name in "abcdef"]
    for file in others:
        busy.view()
        file.view()
    assert busy.mapped_view is not None


def test_a_slice_outlives_its_map(pool: MapPool) -> None:
    file = made(pool, "a")
    piece = file.view()[:3]
    piece[:] = b"abc"
    pool.drop(file)
    assert bytes(piece) == b"abc"


def test_blocks_come_in_steps_up_to_the_end(pool: MapPool, files: MemoryFiles) -> None:
    file = made(pool, "a", size=10_000)
    file.extend(100, 4096)
    assert file.allocated == 4096
    file.extend(4097, 4096)
    assert file.allocated == 8192
    file.extend(9000, 4096)
    assert file.allocated == 10_000
    assert files.blocks[file.path] == 10_000


def test_a_full_disk_leaves_the_reach_where_it_was(pool: MapPool, files: MemoryFiles) -> None:
    files.capacity = 5000
    file = made(pool, "a")
    file.extend(1, 4096)
    with pytest.raises(StoreFull):
        file.extend(5000, 4096)
    assert file.allocated == 4096


def test_clearing_leaves_zeros_and_says_whether_there_was_anything(pool: MapPool) -> None:
    file = made(pool, "a")
    file.extend(16384, 4096)
    file.view()[:] = b"x" * 16384
    assert file.clear(5000)
    assert bytes(file.view()) == b"x" * 5000 + bytes(16384 - 5000)
    assert not file.clear(5000)


def test_a_written_file_is_dirty_once(pool: MapPool) -> None:
    file = made(pool, "a")
    file.mark_dirty()
    file.mark_dirty()
    assert pool.take_dirty() == [file]
    assert pool.take_dirty() == []
    file.mark_dirty()
    assert pool.take_dirty() == [file]


class FilesWithFewMaps(MemoryFiles):
    """Files of which only `open_max` may be mapped at once."""

    def __init__(self, pool: list[MapPool], open_max: int, number: int) -> None:
        super().__init__()
        self.pool, self.open_max, self.number = pool, open_max, number

    def map(self, path: Path, size: int, *, writable: bool = True) -> memoryview:
        if self.pool and len(self.pool[0]) >= self.open_max:
            error = OSError(self.number, "no")
            raise store_error(path, error) from error
        return super().map(path, size, writable=writable)


def pool_with_few_maps(open_max: int, number: int) -> MapPool:
    pools: list[MapPool] = []
    pools.append(MapPool(FilesWithFewMaps(pools, open_max, number), 100))
    return pools[0]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_fewer_maps_are_held_when_descriptors_run_out(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pool_with_few_maps(12, number)
    files = [made(pool, f"f{n}") for n in range(40)]
    for file in files * 2:
        file.view()[0] = 1
        assert len(pool) <= 12
    assert caplog.messages == ["only 9 files can be mapped at once (see ulimit -n)"]


def test_other_errors_and_a_lack_of_any_descriptor_are_raised() -> None:
    pool = pool_with_few_maps(1, errno.EACCES)
    made(pool, "a").view()
    with pytest.raises(StoreError):
        made(pool, "b").view()
    with pytest.raises(StoreError):
        made(pool_with_few_maps(0, errno.EMFILE), "a").view()


def test_looking_here_and_there_reads_nothing_ahead() -> None:
    advice: list[bool] = []

    class AdviceRecorder(MemoryFiles):
        def advise_growth(self, view: memoryview, is_growing: bool) -> None:
            advice.append(is_growing)

    file = made(MapPool(AdviceRecorder(), 3), "a")
    with file.random_access():
        file.view()
    assert advice == [True, False]
    file.extend(1, 100)
    with file.random_access():
        file.view()
    assert advice == [True, False, True]


def kept(pool: MapPool, name: str = "k") -> MappedFile:
    """A file without a map, since the limit of maps is reached."""
    for other in "xyz":
        made(pool, other).view()
    file = made(pool, name)
    file.extend(1, 16384)
    assert file.view_to_write() is None
    return file


def test_buffered_bytes_are_visible_to_readers(pool: MapPool) -> None:
    file = kept(pool)
    file.buffer(4, b"ab")
    file.buffer(6, b"cd")
    assert file.mapped_view is None
    assert pool.take_dirty() == [file]
    assert bytes(file.view()[:9]) == b"\0\0\0\0abcd\0"
    assert file.buffered == b""


def test_buffered_bytes_are_written_without_a_map(pool: MapPool, files: MemoryFiles) -> None:
    file = kept(pool)
    file.buffer(4, b"ab")
    assert file.unwritten == 2
    file.write_buffered()
    assert (file.mapped_view, file.unwritten) == (None, 0)
    file.buffer(6, b"cd")
    assert file.unwritten == 2
    assert files.read(file.path)[:9] == b"\0\0\0\0ab\0\0\0"
    file.write_buffered()
    assert files.read(file.path)[:9] == b"\0\0\0\0abcd\0"
    assert file.mapped_view is None


def test_recently_buffered_bytes_are_read_without_a_map(pool: MapPool) -> None:
    file = kept(pool)
    file.buffer(4, b"ab")
    file.write_buffered()
    file.buffer(6, b"cd")
    assert file.locate(5) == (b"abcd", 1)
    file.write_buffered()
    file.buffer(8, b"ef")
    assert file.locate(6) == (b"cdef", 0)
    assert file.mapped_view is None
    view, at = file.locate(5)
    assert view is file.mapped_view
    assert bytes(view[at : at + 5]) == b"bcdef"
    assert file.locate(6) == (view, 6)
    assert (file.buffered, file.unwritten) == (b"", 0)


def test_a_file_gets_a_map_to_be_written_while_there_are_some_or_when_it_has_kept_much(
    pool: MapPool,
) -> None:
    assert made(pool, "a").view_to_write() is not None
    file = kept(pool)
    file.buffer(0, bytes(BUFFERED_MAX_BYTES - 1))
    assert file.view_to_write() is None
    file.buffer(BUFFERED_MAX_BYTES - 1, b"z")
    view = file.view_to_write()
    assert view is not None
    assert view[BUFFERED_MAX_BYTES - 1] == ord("z")


def test_clearing_writes_buffered_bytes_before_the_position_and_drops_those_after(
    pool: MapPool,
) -> None:
    file = kept(pool)
    file.buffer(0, b"abcd")
    assert file.clear(2)
    assert not file.clear(2)
    assert bytes(file.view()[:4]) == b"ab\0\0"


def test_a_dropped_file_keeps_nothing(pool: MapPool) -> None:
    file = kept(pool)
    file.buffer(0, b"abcd")
    pool.drop(file)
    assert file.buffered == b""
