"""TimerLog: one unit for each message that waits, in order of arrival.

00000000000000000000                    00000000000104857600
┌──────┬──────┬──────┬─ … ─┬──────┬───────┐ ┌──────┬─ …
│ unit │ unit │ unit │     │ unit │ blank │ │ unit │
└──────┴───┬──┴──────┴─ … ─┴───┬──┴───────┘ └──────┴─ …
           └──◀── before ◀─────┘         units of one slot are a chain, the last one first
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.segments import Segments, common_size, sizes_by_start
from roquet.store.layout import file_name
from roquet.store.timer.layout import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE,
    NONE,
    UNIT,
    UNIT_SIZE,
    TimerUnit,
    unpack_unit,
)

log = logger(__name__)

SIZE_UNIT: Final = 4096
"""Maps are made of pages, so a file of another size was truncated."""


ROWS_SIZE: Final = 10_000 * UNIT_SIZE
"""Bytes of units unpacked in one go."""

TimerLogRow = tuple[int, int, int, int, int]
"""Position, the unit before it, slot time in ms, the record's position (-1: no unit), the record's
size.

A plain tuple: recovery makes one for each unit."""


class TimerLog:
    """The units of all slots."""

    def __init__(self, pool: MapPool, directory: Path, file_size: int, step: int) -> None:
        self._pool = pool
        self._step = step
        self.segments = Segments(pool, directory, file_size)
        self.end = 0
        """The position of the next unit."""

    def load(self, listed: Mapping[str, int | None]) -> None:
        """Load the files of the directory, whatever their size; delete them if some are damaged."""
        segments = self.segments
        sizes = sizes_by_start(segments.directory, listed)
        segments.file_size = common_size(sizes, segments.file_size, SIZE_UNIT)
        starts = sorted(sizes)
        right = list(range(starts[0], starts[-1] + 1, segments.file_size)) if starts else []
        odd = [
            s for s in starts if sizes[s] not in (segments.file_size, 0 if s == starts[-1] else -1)
        ]
        if starts != right or odd:
            log.warning("%s lacks files, or some are truncated: it is rebuilt", segments.directory)
            for start in starts:
                self._pool.files.remove(segments.directory / file_name(start))
            return
        segments.load(listed)
        self.end = segments.limit

    @property
    def begin(self) -> int:
        """The first position that is still kept."""
        return self.segments.begin

    def append(self, unit: TimerUnit, before: int = NONE) -> int:
        """Store a unit, linked to the one before it; gives its position. Raises StoreFull."""
        at = self._reserve()
        file = self.segments.obtain(at // self.segments.file_size * self.segments.file_size)
        start = at - file.start
        file.allocated = max(file.allocated, start)
        file.extend(start + UNIT_SIZE, self._step)
        file.view()[start : start + UNIT_SIZE] = unit.pack(before)
        file.mark_dirty()
        self.end = at + UNIT_SIZE
        return at

    def _reserve(self) -> int:
        """The position of the next unit: behind a blank if this file has no room for both."""
        segments, at = self.segments, self.end
        if self._is_open(at):
            return at
        file = segments.file_at(at)
        following = segments.obtain((at // segments.file_size + 1) * segments.file_size)
        assert file is not None, "a full file exists"
        start, left = at - file.start, file.size - (at - file.start)
        file.allocated = max(file.allocated, start)
        file.extend(start + BLANK_SIZE, self._step)
        BLANK.pack_into(file.view(), start, left, 0, BLANK_MAGIC)
        file.mark_dirty()
        return following.start

    def _is_open(self, at: int) -> bool:
        """Whether a unit fits at a position with a blank behind it."""
        size = self.segments.file_size
        return at % size + UNIT_SIZE + BLANK_SIZE <= size

    def unit(self, position: int) -> TimerUnit | None:
        """The unit that begins at a position; None without one."""
        file = self.segments.file_at(position)
        if file is None or position < 0 or position + UNIT_SIZE > self.end:
            return None
        at = position - file.start
        if at + UNIT_SIZE > file.size:
            return None
        return unpack_unit(file.mapped_view or file.view(), at)

    def units(self, start: int) -> Iterator[tuple[int, TimerUnit]]:
        """Units in order of position, until there is none."""
        at = max(start, self.begin)
        while True:
            if not self._is_open(at):
                at = (at // self.segments.file_size + 1) * self.segments.file_size
            unit = self.unit(at)
            if unit is None:
                return
            yield at, unit
            at += UNIT_SIZE

    def place_from(self, position: int) -> int:
        """The first position at or behind this one where a unit can begin."""
        size = self.segments.file_size
        number = -(-(position % size) // UNIT_SIZE)
        at = position // size * size + number * UNIT_SIZE
        return (
            at
            if self._is_open(at) and at // size == position // size
            else (position // size + 1) * size
        )

    def rows(self, start: int, end: int) -> Iterator[TimerLogRow]:
        """The content of every place of a unit in [start, end), valid or not.

        It takes a tenth of the time of `units`.
        """
        size, at = self.segments.file_size, max(start, self.begin)
        whole = (size - BLANK_SIZE) // UNIT_SIZE * UNIT_SIZE
        while at < end and (file := self.segments.file_at(at)) is not None:
            stop = min(file.start + whole, end)
            view, base = file.view(), file.start
            for first in range(at, stop, ROWS_SIZE):
                behind = min(first + ROWS_SIZE, stop)
                behind -= (behind - first) % UNIT_SIZE
                unpacked = UNIT.iter_unpack(view[first - base : behind - base])
                for n, (
                    magic_size,
                    before,
                    magic,
                    write_ms,
                    delay,
                    position,
                    length,
                    _,
                    _,
                ) in enumerate(unpacked):
                    is_unit = magic_size == UNIT_SIZE and 0 < magic < 16 and length > 0
                    yield (
                        first + n * UNIT_SIZE, before, write_ms + delay,
                        position if is_unit else NONE, length,
                    )  # fmt: skip
            at = base + size

    def truncate(self, end: int) -> None:
        """Continue from `end`: nothing behind it stays, not even after a loss of power."""
        dropped = self.segments.drop_from(end)
        self.end = end
        tail = self.segments.file_at(end)
        if tail is not None:
            tail.clear(end - tail.start)
        if dropped:
            self._pool.files.sync(self.segments.directory)

    def last_before(self, position: int) -> TimerUnit | None:
        """The unit in front of a unit's position, perhaps in the file before."""
        size = self.segments.file_size
        if position % size:
            return self.unit(position - UNIT_SIZE)
        return self._last_unit(position - size)

    def drop_before(self, position: int) -> Path | None:
        """Delete the oldest file if all its records lie in front of a commit log position.

        Gives its path, None if it stays. One file at a time, and never the newest: a loss of power
        can bring files back, but leaves no gap.
        """
        if len(self.segments.files) < 2:
            return None
        file = self.segments.files[0]
        last = self._last_unit(file.start)
        if last is None or last.position >= position:
            return None
        self.segments.drop_before(file.start + file.size)
        self._pool.files.sync(self.segments.directory)
        return file.path

    def release_pages(self) -> None:
        """Release written pages from this process: they are seldom read soon."""
        for file in self.segments.files:
            if file.mapped_view is not None:
                size = min(file.size, max(0, self.end - file.start)) // SIZE_UNIT * SIZE_UNIT
                self._pool.files.release_pages(file.mapped_view, size)

    def _last_unit(self, start: int) -> TimerUnit | None:
        """The last unit of the full file that begins at `start`."""
        count = (self.segments.file_size - BLANK_SIZE) // UNIT_SIZE
        return self.unit(start + (count - 1) * UNIT_SIZE)
