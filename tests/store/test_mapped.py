from pathlib import Path

import pytest

from roquet.model.errors import StoreFull
from roquet.store.mapped import MappedFile, MapPool
from roquet.store.memory import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def pool(files: MemoryFiles) -> MapPool:
    return MapPool(files, 3)


def made(pool: MapPool, name: str, size: int = 16384) -> MappedFile:
    file = MappedFile(pool, Path(f"/{name}"), 0, size)
    file.make()
    return file


def test_a_file_is_mapped_when_looked_at(pool: MapPool) -> None:
    file = made(pool, "a")
    assert file.held is None
    file.view()[5] = 7
    assert file.held is not None
    pool.drop(file)
    assert file.held is None
    assert file.view()[5] == 7


def test_no_more_maps_than_allowed_are_held(pool: MapPool) -> None:
    files = [made(pool, name) for name in "abcdef"]
    for file in files * 2:
        file.view()
        assert len(pool) <= 3
    pool.drop_all()
    assert len(pool) == 0


def test_who_is_used_stays(pool: MapPool) -> None:
    busy, *others = [made(pool, name) for name in "abcdef"]
    for file in others:
        busy.view()
        file.view()
    assert busy.held is not None


def test_a_slice_outlives_its_map(pool: MapPool) -> None:
    file = made(pool, "a")
    piece = file.view()[:3]
    piece[:] = b"abc"
    pool.drop(file)
    assert bytes(piece) == b"abc"


def test_blocks_come_in_steps_up_to_the_end(pool: MapPool, files: MemoryFiles) -> None:
    file = made(pool, "a", size=10_000)
    file.extend(100, 4096)
    assert file.reach == 4096
    file.extend(4097, 4096)
    assert file.reach == 8192
    file.extend(9000, 4096)
    assert file.reach == 10_000
    assert files.blocks[file.path] == 10_000


def test_a_full_disk_leaves_the_reach_where_it_was(pool: MapPool, files: MemoryFiles) -> None:
    files.room = 5000
    file = made(pool, "a")
    file.extend(1, 4096)
    with pytest.raises(StoreFull):
        file.extend(5000, 4096)
    assert file.reach == 4096


def test_clearing_leaves_zeros_and_says_whether_there_was_anything(pool: MapPool) -> None:
    file = made(pool, "a")
    file.extend(16384, 4096)
    file.view()[:] = b"x" * 16384
    assert file.clear(5000)
    assert bytes(file.view()) == b"x" * 5000 + bytes(16384 - 5000)
    assert not file.clear(5000)


def test_what_was_written_is_remembered_once(pool: MapPool) -> None:
    file = made(pool, "a")
    file.mark()
    file.mark()
    assert pool.take_dirty() == [file]
    assert pool.take_dirty() == []
    file.mark()
    assert pool.take_dirty() == [file]
