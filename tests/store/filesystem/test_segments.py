from pathlib import Path

import pytest

from roquet.model.errors import StoreError
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.filesystem.segments import Segments, common_size, sizes_by_start
from roquet.store.layout import file_name

SIZE = 4096


@pytest.fixture
def segments() -> Segments:
    return Segments(MapPool(MemoryFiles(), 9), Path("/log"), SIZE)


def listed(*starts: int, size: int = SIZE) -> dict[str, int | None]:
    return {file_name(start): size for start in starts}


def test_files_are_one_address_space(segments: Segments) -> None:
    segments.load(listed(2 * SIZE, SIZE, 3 * SIZE))
    assert (segments.begin, segments.limit) == (SIZE, 4 * SIZE)
    assert segments.file_at(2 * SIZE) is segments.files[1]
    assert segments.file_at(2 * SIZE - 1) is segments.files[0]
    assert segments.file_at(SIZE - 1) is None
    assert segments.file_at(4 * SIZE) is None


def test_an_empty_directory_begins_at_nothing(segments: Segments) -> None:
    segments.load({})
    assert (segments.begin, segments.limit, segments.file_at(0)) == (0, 0, None)


def test_a_gap_an_odd_file_and_a_foreign_one(
    segments: Segments, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StoreError, match="4096 is missing between"):
        segments.load(listed(0, 2 * SIZE))
    with pytest.raises(StoreError, match="has 77 bytes instead of 4096"):
        segments.load(listed(0, size=77))
    segments.load({"README": 3, "dir": None})
    assert "/log/README does not belong there" in caplog.text


def test_the_next_file_is_made_when_it_is_asked_for(segments: Segments) -> None:
    first = segments.obtain(5 * SIZE)
    assert segments.obtain(5 * SIZE) is first
    assert segments.obtain(6 * SIZE).is_new
    with pytest.raises(AssertionError, match="leaves a gap"):
        segments.obtain(9 * SIZE)


def test_files_are_dropped_from_both_ends(segments: Segments) -> None:
    for start in range(5):
        segments.obtain(start * SIZE)
    assert [f.start for f in segments.drop_before(2 * SIZE + 1)] == [0, SIZE]
    assert [f.start for f in segments.drop_from(3 * SIZE)] == [4 * SIZE, 3 * SIZE]
    assert [f.start for f in segments.drop_before(99 * SIZE)] == []
    assert list(segments.pool.files.list(Path("/log"))) == [file_name(2 * SIZE)]


def test_a_list_that_is_being_walked_stays_whole(segments: Segments) -> None:
    for start in range(3):
        segments.obtain(start * SIZE)
    walked = segments.files
    segments.drop_before(2 * SIZE)
    assert len(walked) == 3


def test_a_size_that_all_agree_on_is_theirs() -> None:
    assert common_size({0: 8192, 8192: 8192}, 4096, 4096) == 8192
    assert common_size({0: 8192, 8192: 4096}, 4096, 4096) == 4096
    assert common_size({0: 8000}, 4096, 4096) == 4096
    assert common_size({4096: 8192}, 4096, 4096) == 4096
    assert common_size({0: 8192, 8192: 0}, 4096, 4096) == 8192
    assert common_size({}, 4096, 4096) == 4096


def test_a_directory_in_the_place_of_a_file_is_an_error() -> None:
    with pytest.raises(StoreError, match=r"0{20} cannot be used: Is a directory; move away"):
        sizes_by_start(Path("/log"), {"0" * 20: None})
