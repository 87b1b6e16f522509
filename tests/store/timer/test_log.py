from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.timer.layout import BLANK, UNIT_SIZE, TimerUnit
from roquet.store.timer.log import TimerLog

DIRECTORY = Path("/data/timerlog")
SIZE = 4096
EACH = (SIZE - 16) // UNIT_SIZE
"""Units of one file: behind the last there is room for a blank."""


def make(files: MemoryFiles, size: int = SIZE) -> TimerLog:
    timer_log = TimerLog(MapPool(files, 4), DIRECTORY, size, 1024)
    timer_log.load(files.list(DIRECTORY))
    return timer_log


def unit(number: int) -> TimerUnit:
    return TimerUnit(1, 1_000 * number, 1_000 * number + 5_000, 100 * number, 100, 7)


def fill(timer_log: TimerLog, count: int) -> list[int]:
    return [timer_log.append(unit(number)) for number in range(count)]


def test_units_are_adjacent_and_never_cross_files() -> None:
    files = MemoryFiles()
    timer_log = make(files)
    positions = fill(timer_log, 2 * EACH + 3)
    assert positions[:2] == [0, 52]
    assert positions[EACH - 1 : EACH + 1] == [(EACH - 1) * 52, SIZE]
    assert positions[2 * EACH] == 2 * SIZE
    assert [timer_log.unit(at) for at in positions] == [unit(n) for n in range(2 * EACH + 3)]
    assert [at for at, _ in timer_log.units(0)] == positions
    left = SIZE - EACH * UNIT_SIZE
    first = files.contents[DIRECTORY / f"{0:020d}"]
    assert BLANK.unpack_from(first, EACH * UNIT_SIZE) == (left, 0, -875286124)


def test_a_position_without_a_unit_gives_none() -> None:
    timer_log = make(MemoryFiles())
    assert timer_log.unit(0) is None
    assert list(timer_log.units(0)) == []
    fill(timer_log, EACH)
    assert timer_log.unit(-1) is None
    assert timer_log.unit(EACH * UNIT_SIZE) is None
    assert timer_log.unit(26) is None
    fill(timer_log, 1)
    assert timer_log.unit(SIZE - 20) is None


@given(st.integers(0, 2 * EACH + 1), st.integers(0, 2 * EACH + 1))
def test_a_truncated_log_is_continued(count: int, kept: int) -> None:
    files = MemoryFiles()
    timer_log = make(files)
    positions = fill(timer_log, count)
    end = [*positions, timer_log.end][min(kept, count)]
    timer_log.truncate(end)
    found = make(files.copy())
    assert [at for at, _ in found.units(0)] == positions[:kept]
    found.truncate(end)
    again = found.append(unit(9))
    assert found.unit(again) == unit(9)
    assert [at for at, _ in found.units(0)] == [*positions[:kept], again]


def test_the_size_of_the_files_that_are_there_is_kept() -> None:
    files = MemoryFiles()
    fill(make(files, 2 * SIZE), 3)
    assert make(files, SIZE).segments.file_size == 2 * SIZE


@pytest.mark.parametrize("found", [{0: SIZE, SIZE: 100}, {0: SIZE, 2 * SIZE: SIZE}])
def test_files_of_two_sizes_or_with_a_gap_are_made_again(found: dict[int, int]) -> None:
    files = MemoryFiles()
    for start, size in found.items():
        files.create(DIRECTORY / f"{start:020d}", size)
    timer_log = make(files)
    assert (timer_log.end, files.list(DIRECTORY)) == (0, {})


def test_files_go_when_the_records_of_all_their_units_have_gone() -> None:
    files = MemoryFiles()
    timer_log = make(files)
    assert timer_log.drop_before(10**9) is None
    fill(timer_log, 3 * EACH)
    last = (EACH - 1) * 100
    assert timer_log.drop_before(last) is None
    assert timer_log.drop_before(last + 1) == DIRECTORY / f"{0:020d}"
    assert timer_log.begin == SIZE
    assert timer_log.unit(0) is None
    assert next(at for at, _ in timer_log.units(0)) == SIZE
    assert timer_log.drop_before(10**9) == DIRECTORY / f"{SIZE:020d}"
    assert timer_log.drop_before(10**9) is None  # the newest stays


def test_the_unit_before_another_is_found_over_the_border_of_files() -> None:
    timer_log = make(MemoryFiles())
    fill(timer_log, EACH + 2)
    assert timer_log.last_before(52) == unit(0)
    assert timer_log.last_before(SIZE) == unit(EACH - 1)
    assert timer_log.last_before(SIZE + 52) == unit(EACH)


def test_pages_that_were_written_may_leave() -> None:
    files = MemoryFiles()
    timer_log = make(files)
    fill(timer_log, EACH + 2)
    sizes: list[int] = []
    files.release_pages = lambda view, size: sizes.append(size)  # type: ignore[method-assign]
    timer_log.release_pages()
    assert sizes == [SIZE, 0]
