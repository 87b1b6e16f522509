"""CommitLog: append records, read them back.

    00000000000000000000            00000000001073741824
    ┌────────┬──────┬─────┬───────┐ ┌──────┬──────────┬─ …
    │ record │ rec. │  …  │ blank │ │ rec. │ record   │
    └────────┴──────┴─────┴───────┘ └──────┴──────────┴─ …

A record never crosses files: when the next one does not fit with 8 bytes to spare, a blank says
how much is left.
"""

import mmap
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import add
from pathlib import Path
from typing import Final

from roquet.model.errors import MessageIllegal
from roquet.store.commit_log.unindexed_buffer import UnindexedBuffer
from roquet.store.filesystem.mapped_file import MappedFile, MapPool
from roquet.store.filesystem.segments import Segments, common_size, sizes_by_start
from roquet.store.layout import file_name
from roquet.wire.records.partial_decode import MAGICS, RECORD_START, PartialRecord, decode_partly
from roquet.wire.records.record import (
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    RECORD_SIZE_MIN,
    TOTAL_AND_MAGIC,
    stored_ms_at,
)

BLANK_SIZE: Final = 8
"""What must be left behind a record: enough for a blank to say so."""

SIZE_UNIT: Final = 4096
"""Maps are made of pages, so a file of the log of another size has been cut."""

WRITE_PAST_MAP_MIN: Final = 32 * 1024
"""Bytes from which on opening the file again costs less than the faults of its pages."""

SEES_WRITES: Final = sys.platform != "win32"
"""Whether a map shows at once what was written to its file."""

_MAGIC_HEAD: Final = MAGIC_V1.to_bytes(4, "big")[:3]
"""What both magics begin with."""

WalkedRecord = tuple[int, int, PartialRecord]
"""Where a record was expected, where it is, and its facts: the two differ behind a hole."""


class CommitLog:
    """All messages of all topics, in the order of their coming."""

    def __init__(self, pool: MapPool, directory: Path, file_size: int, step: int) -> None:
        self._pool = pool
        self._step = step
        self.segments = Segments(pool, directory, file_size)
        self.end = 0
        """Where the next record goes."""
        self.room = 0
        """Records may end here, and not behind: blocks are there, and so is place for a blank."""
        self.tail: MappedFile | None = None
        """The file that holds `end`."""
        self.last = -1
        """Where the last record begins; -1 for none."""
        self.fresh = UnindexedBuffer()
        """What was written last, for the index: without gaps or with, but in order."""
        self.checked_from = 0
        """Records from here on were written or looked at by this process."""

    def load(self, listed: Mapping[str, int | None], *, is_sure: bool) -> None:
        """Take the files that are there. Raises StoreError for a missing or odd one.

        Unless the size is sure, another one that all files agree on is theirs.
        """
        if not is_sure:
            sizes = sizes_by_start(self.segments.directory, listed)
            self.segments.file_size = common_size(sizes, self.segments.file_size, SIZE_UNIT)
        self.segments.load(listed)

    @property
    def begin(self) -> int:
        """The first position that is still kept."""
        return self.segments.begin

    # -- write -------------------------------------------------------------------------------

    def settle(self, end: int) -> bool:
        """Append from here on: nothing behind it stays. Tells whether anything was there."""
        gone = self.segments.drop_from(end)
        self.end = end
        self.tail = self.segments.file_at(end)
        self.room = 0
        return (self.tail is not None and self.tail.clear(end - self.tail.start)) or bool(gone)

    def redo(self, durable: int) -> None:
        """Have the next flush keep all that is not known to be durable. Raises OSError."""
        for file in self.segments.files:
            if file.start < self.end and durable < file.start + file.size:
                file.redo(max(durable - file.start, 0), min(self.end - file.start, file.size))

    def sync_tail(self) -> None:
        """Make it durable that nothing is left behind the end, also where no file is left."""
        files = self._pool.files
        if self.tail is not None:
            files.sync(self.tail.path, self.tail.held)
        files.sync(self.segments.directory)

    def write(self, position: int, data: bytes) -> None:
        """Put bytes where `make_room` has made room."""
        tail = self.tail
        assert tail is not None
        view = tail.held
        if view is None:
            view = tail.view()
        tail.is_used = True
        at = position - tail.start
        if len(data) < WRITE_PAST_MAP_MIN or not self._write_past(tail, at, data):
            view[at : at + len(data)] = data

    def _write_past(self, tail: MappedFile, at: int, data: bytes) -> bool:
        """Write without touching new pages of the map, each of which costs more than its bytes."""
        if not SEES_WRITES:
            return False
        try:
            self._pool.files.write(tail.path, at, data)
        except OSError:  # no descriptor is left, or worse: what the map says is the whole of it
            return False
        return True

    def make_room(self, size: int) -> int:
        """Where a record of that size will go: here, or in the next file.

        Raises MessageIllegal for one that no file could hold, StoreFull when there is no place.
        """
        if size + BLANK_SIZE > self.segments.file_size:
            raise MessageIllegal(
                f"a record of {size} bytes does not fit into a file of the log,"
                f" which has {self.segments.file_size}"
            )
        tail = self.tail or self._next_file()
        at = self.end - tail.start
        if at + size + BLANK_SIZE > tail.size:
            tail, at = self._roll(tail, at, size), 0
        self._extend(tail, at, at + size)
        self.tail = tail
        self.room = tail.start + min(tail.reach, tail.size - BLANK_SIZE)
        return self.end

    def _next_file(self) -> MappedFile:
        return self.segments.obtain(self.end)

    def _roll(self, tail: MappedFile, at: int, size: int) -> MappedFile:
        """Blank the rest of a file and go on in the next, which is made first: it may not fit."""
        following = self.segments.obtain(tail.start + tail.size)
        self._extend(following, 0, size)
        self._extend(tail, at, at + BLANK_SIZE)
        TOTAL_AND_MAGIC.pack_into(tail.view(), at, tail.size - at, MAGIC_BLANK)
        # What was written is on its way to the disk and seldom read through this map again.
        tail.grow(False)
        self._pool.files.forget(tail.view(), at // SIZE_UNIT * SIZE_UNIT)
        self.end = following.start
        return following

    def _extend(self, file: MappedFile, at: int, end: int) -> None:
        file.reach = max(file.reach, at)
        file.extend(end, self._step)

    # -- read --------------------------------------------------------------------------------

    def record(self, position: int, size: int) -> memoryview | None:
        """The record there, if one of that size is: what an entry promises is looked at first."""
        file = self.segments.file_at(position)
        if file is None or position + size > self.end:
            return None
        at = position - file.start
        view = file.held or file.view()
        if at + size > file.size or size < RECORD_SIZE_MIN:
            return None
        total, magic, own = RECORD_START.unpack_from(view, at)
        if total != size or own != position or magic not in MAGICS:
            return None
        return view[at : at + size]

    def piece(self, start: int, stop: int) -> memoryview:
        """Records one behind the other, in one file."""
        file = self.segments.file_at(start)
        assert file is not None, f"the log does not hold {start}"
        return file.view()[start - file.start : stop - file.start]

    def pieces(self, starts: Sequence[int], stops: Sequence[int]) -> list[memoryview]:
        """The same for several, which mostly lie in one file."""
        if len(starts) == 1:
            return [self.piece(starts[0], stops[0])]
        file = self._file_of(starts, stops)
        if file is None:
            return list(map(self.piece, starts, stops))
        cut, base = file.view().__getitem__, file.start
        if base:
            starts, stops = [at - base for at in starts], [at - base for at in stops]
        return list(map(cut, map(slice, starts, stops)))

    def has_all(self, positions: Sequence[int], sizes: Sequence[int]) -> bool:
        """Whether `record` would find each of these; False also where they lie in two files."""
        stops = list(map(add, positions, sizes))
        file = self._file_of(positions, stops)
        if file is None or max(stops) > self.end or min(sizes) < RECORD_SIZE_MIN:
            return False
        begins = positions if not file.start else [at - file.start for at in positions]
        found = map(RECORD_START.unpack_from, repeat(file.view()), begins)
        totals, magics, owns = zip(*found, strict=True)
        return totals == tuple(sizes) and owns == tuple(positions) and MAGICS.issuperset(magics)

    def _file_of(self, starts: Sequence[int], stops: Sequence[int]) -> MappedFile | None:
        """The one file in which all of these lie, if one does."""
        file = self.segments.file_at(starts[0])
        if file is None or min(starts) < file.start or max(stops) > file.start + file.size:
            return None
        return file

    def stored_ms(self, position: int) -> int | None:
        """When the record there was stored; None if there is none."""
        file = self.segments.file_at(position)
        if file is None or position + RECORD_SIZE_MIN > min(self.end, file.start + file.size):
            return None
        view, at = file.view(), position - file.start
        _, magic, own = RECORD_START.unpack_from(view, at)
        if own != position or magic not in MAGICS:
            return None
        sys_flag = int.from_bytes(view[at + 36 : at + 40], "big")
        stored_at = at + stored_ms_at(sys_flag)
        return int.from_bytes(view[stored_at : stored_at + 8], "big")

    def skim_at(self, position: int, *, check_crc: bool = True) -> PartialRecord | None:
        """The facts of the whole record that begins there, if one does."""
        file = self.segments.file_at(position)
        if file is None or position < file.start:
            return None
        return decode_partly(file.view(), position - file.start, file.size, position, check_crc)

    def walk(
        self, start: int, stop: int, durable: int, *, check_crc: bool
    ) -> Iterator[WalkedRecord]:
        """Whole records that begin from `start` up to `stop`, over holes as well.

        Zeros from a place in front of `durable` to the end of its file count as a blank.
        """
        expected = position = start
        while position < stop and (file := self.segments.file_at(position)) is not None:
            view, base, size = file.view(), file.start, file.size
            while position < stop and (
                found := decode_partly(view, position - base, size, position, check_crc)
            ):
                yield expected, position, found
                expected = position = position + found[0]
            if position >= stop:
                return
            if self._is_blank(file, position, durable):
                expected = position = base + size
            elif (later := self._next_record(file, position)) is not None:
                position = later
            else:
                position = base + size

    def behind_blank(self, position: int, durable: int) -> int:
        """The next file's begin, if `durable` says that it was reached and a blank leads there."""
        file_size = self.segments.file_size
        following = (position // file_size + 1) * file_size
        is_over = following <= durable and self.is_blank_at(position, durable)
        return following if is_over else position

    def is_blank_at(self, position: int, durable: int) -> bool:
        """Whether nothing but a blank lies between a position and its file's end."""
        file = self.segments.file_at(position)
        return file is not None and self._is_blank(file, position, durable)

    def leads_on(self, position: int) -> Path | None:
        """The next file's path, if a blank at that position leads to it and it is not there."""
        segments, file = self.segments, self.segments.file_at(position)
        if file is None or file is not segments.files[-1]:
            return None
        at = position - file.start
        left = file.size - at
        if left < BLANK_SIZE or TOTAL_AND_MAGIC.unpack_from(file.view(), at) != (left, MAGIC_BLANK):
            return None
        return segments.directory / file_name(segments.limit)

    def _is_blank(self, file: MappedFile, position: int, durable: int) -> bool:
        """Whether the rest of a file is known to hold nothing."""
        at, view = position - file.start, file.view()
        left = file.size - at
        if left < RECORD_SIZE_MIN + BLANK_SIZE:
            return True
        if TOTAL_AND_MAGIC.unpack_from(view, at) == (left, MAGIC_BLANK):
            return True
        if position >= durable or self.segments.file_at(file.start + file.size) is None:
            return False
        data_end = self._pool.files.data_end(file.path, file.size)
        return data_end <= at or not bytes(view[at:data_end]).strip(b"\x00")

    def _next_record(self, file: MappedFile, position: int) -> int | None:
        """The next whole record of a file behind a hole: it says its own position, so it is one."""
        view = file.view()
        end = self._pool.files.data_end(file.path, file.size)
        at = position - file.start
        while (at := _find_magic(view, at + 1, end)) >= 0:
            if decode_partly(view, at, file.size, file.start + at, check_crc=True):
                return file.start + at
        return None


def _find_magic(view: memoryview, start: int, end: int) -> int:
    """Where a record may begin, behind `start`; -1 for nowhere."""
    memory = view.obj
    assert isinstance(memory, mmap.mmap)
    return memory.find(_MAGIC_HEAD, start + MAGIC_AT, end) - MAGIC_AT
