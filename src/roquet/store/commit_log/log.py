"""CommitLog: append records, read them back.

    00000000000000000000            00000000001073741824
    ┌────────┬──────┬─────┬───────┐ ┌──────┬──────────┬─ …
    │ record │ rec. │  …  │ blank │ │ rec. │ record   │
    └────────┴──────┴─────┴───────┘ └──────┴──────────┴─ …

A record never crosses files: when the next one does not fit with 8 bytes to spare, a blank fills
the rest of the file and says how long it is.
"""

import mmap
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from operator import add
from pathlib import Path
from typing import Final

from roquet.model.errors import MessageIllegal, StoreError, StoreFull
from roquet.store.commit_log.unindexed_buffer import UnindexedBuffer
from roquet.store.filesystem.files import FileWriter
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
    SplitRecord,
    stored_ms_at,
)
from roquet.wire.records.speedups import compiled

BLANK_SIZE: Final = 8
"""Bytes left behind every record: enough for the head of a blank."""

SIZE_UNIT: Final = 4096
"""Maps are made of pages, so a log file of another size was truncated."""

WRITE_PAST_MAP_MIN: Final = 2 * 1024
"""Bytes from which a system call costs less than the page faults of the map."""

GROWTH_MAX: Final = 128 * 1024 * 1024 if sys.platform == "linux" else 0
"""Bytes allocated at once, ahead of what is written, if they are more than a step. Other systems
write zeros."""

FREE_SHARE: Final = 0.05
"""Share of a disk's free space that these may be."""

ZEROS_SIZE: Final = 256 * 1024
"""Bytes that are compared with zeros at a time: a file has 1 GiB of them."""

SEES_WRITES: Final = sys.platform != "win32"
"""Whether a map shows at once the bytes written to its file."""

_MAGIC_HEAD: Final = MAGIC_V1.to_bytes(4, "big")[:3]
"""The common beginning of both magic numbers."""

WalkedRecord = tuple[int, int, PartialRecord]
"""Expected position, actual position and partly decoded record: the two positions differ behind a
hole.

A plain tuple: recovery makes one for each record of the log."""


class CommitLog:
    """All messages of all topics, in order of arrival."""

    def __init__(self, pool: MapPool, directory: Path, file_size: int, step: int) -> None:
        self._pool = pool
        self._step = step
        self.segments = Segments(pool, directory, file_size)
        self.end = 0
        """The position of the next record."""
        self.capacity = 0
        """Records may end up to here: blocks are allocated, and a blank fits behind."""
        self.tail: MappedFile | None = None
        """The file that holds `end`."""
        self._writer: FileWriter | None = None
        """An open file, for writes without the map."""
        self._writer_file: MappedFile | None = None
        """The file that `_writer` writes."""
        self.last = -1
        """Where the last record begins; -1 for none."""
        self.unindexed = UnindexedBuffer()
        """The newest records, for the key index: in order, perhaps with gaps."""
        self.checked_from = 0
        """Records from this position on were written or checked by this process."""
        self.raw_from: int | None = None
        """Bytes from here on are copied from another log, and their records have no queue entries
        yet; None: all records have theirs."""
        self.origin = 0
        """Where a log begins that was begun inside its first file; nothing is in front of it."""

    def load(self, listed: Mapping[str, int | None], *, is_sure: bool) -> None:
        """Load the files of a directory. Raises StoreError for a missing one or a wrong size.

        Unless the configured size is known to be right, another one on which all files agree is
        taken.
        """
        if not is_sure:
            sizes = sizes_by_start(self.segments.directory, listed)
            self.segments.file_size = common_size(sizes, self.segments.file_size, SIZE_UNIT)
        self.segments.load(listed)

    @property
    def begin(self) -> int:
        """The first position that the log still holds."""
        files = self.segments.files  # as Segments.begin does: every read asks several times
        return files[0].start if files else 0

    @property
    def dispatched(self) -> int:
        """All records in front of it have their queue entries."""
        return self.end if self.raw_from is None else self.raw_from

    # -- write -------------------------------------------------------------------------------

    def truncate(self, end: int) -> bool:
        """End the log at `end`: nothing stays behind it. True if anything was there.

        The first file stays, empty, unless it begins at 0: it says where the log goes on.
        """
        dropped = self.segments.drop_from(self._first_dropped(end))
        self.close_writer()
        self.end = end
        self.tail = self.segments.file_at(end)
        self.capacity = 0
        return (self.tail is not None and self.tail.clear(end - self.tail.start)) or bool(dropped)

    def erase_head(self, position: int) -> None:
        """Make the record that begins at a position none, durably: a recovery ends there.

        Only its total and magic are zeroed: of more, a loss of power could keep the first part, and
        lose a record behind it.
        """
        file = self.segments.file_at(position)
        if file is None or position >= self.end:
            return
        view, at = file.view(), position - file.start
        stop = min(at + TOTAL_AND_MAGIC.size, file.size, self.end - file.start)
        view[at:stop] = bytes(stop - at)
        self._pool.files.sync(file.path, view)

    def drop_files(self, end: int) -> None:
        """Delete the files that a truncation at `end` drops: each durably, the newest first."""
        start, segments = self._first_dropped(end), self.segments
        while segments.files and segments.files[-1].start >= start:
            segments.drop_from(segments.files[-1].start)
            self._pool.files.sync(segments.directory)

    def _first_dropped(self, end: int) -> int:
        return end and max(end, self.begin + 1)

    def rewrite(self, durable: int) -> None:
        """Make the next flush write all that is not known to be durable. Raises OSError."""
        for file in self.segments.files:
            if file.start < self.end and durable < file.start + file.size:
                file.rewrite(max(durable - file.start, 0), min(self.end - file.start, file.size))

    def restore_blank(self, position: int) -> bool:
        """Write the head of the blank at a position unless it is there; True if it was written.

        A loss of power may take it and keep the next file: then only zeros say that the file ends.
        """
        file = self.segments.file_at(position)
        assert file is not None, f"the log does not hold {position}"
        left = file.start + file.size - position
        if left < BLANK_SIZE or _has_blank_head(file, position):
            return False
        TOTAL_AND_MAGIC.pack_into(file.view(), position - file.start, left, MAGIC_BLANK)
        return True

    def sync_tail(self) -> None:
        """Make a truncation durable, also when no file is left."""
        files = self._pool.files
        if self.tail is not None:
            files.sync(self.tail.path, self.tail.mapped_view)
        files.sync(self.segments.directory)

    def write(self, position: int, data: bytes | memoryview | SplitRecord) -> None:
        """Write bytes at a position that `reserve` has reserved."""
        tail = self.tail
        assert tail is not None
        view = tail.mapped_view
        if view is None:
            view = tail.view()
        tail.is_used = True
        at = position - tail.start
        if len(data) < WRITE_PAST_MAP_MIN or not self._write_past(tail, at, data):
            view[at : at + len(data)] = bytes(data) if isinstance(data, SplitRecord) else data

    def _write_past(
        self, tail: MappedFile, at: int, data: bytes | memoryview | SplitRecord
    ) -> bool:
        """Write without touching new pages of the map, each of which costs more than its bytes."""
        if not SEES_WRITES:
            return False
        try:
            writer = self._writer if self._writer_file is tail else None
            if writer is None:
                writer = self._open_writer(tail)
            for part in data.parts if isinstance(data, SplitRecord) else (data,):
                writer.write(at, part)
                at += len(part)
        except OSError:  # no descriptor is left, or worse: the map takes the whole write
            self.close_writer()
            return False
        return True

    def _open_writer(self, tail: MappedFile) -> FileWriter:
        self.close_writer()
        self._writer, self._writer_file = self._pool.files.open_writer(tail.path), tail
        return self._writer

    def close_writer(self) -> None:
        """Close the descriptor of the tail, if it is open; the next large write opens it again."""
        writer, self._writer, self._writer_file = self._writer, None, None
        if writer is not None:
            with suppress(OSError):  # network file systems; a sync of the file reports it as well
                writer.close()

    def reserve(self, size: int) -> int:
        """Reserve room for a record of `size` bytes; gives its position, here or in the next file.

        Raises MessageIllegal for one that no file could hold, StoreFull when there is no space.
        """
        if size + BLANK_SIZE > self.segments.file_size:
            raise MessageIllegal(
                f"a record of {size} bytes does not fit into a file of the log,"
                f" which has {self.segments.file_size}"
            )
        if self.raw_from is not None:
            raise StoreError(
                f"the log has records of its master from {self.raw_from} to {self.end} that are"
                " not in their queues yet: it takes no messages of its own before"
            )
        tail = self.tail or self.segments.obtain(self.end)
        at = self.end - tail.start
        if at + size + BLANK_SIZE > tail.size:
            tail, at = self._roll(tail, at, size), 0
        self._extend(tail, at, at + size)
        self.tail = tail
        self.capacity = tail.start + min(tail.allocated, tail.size - BLANK_SIZE)
        return self.end

    def _roll(self, tail: MappedFile, at: int, size: int) -> MappedFile:
        """Close a file with a blank and go on in the next, which is created first.

        Creating it may fail, and then nothing has changed.
        """
        following = self.segments.obtain(tail.start + tail.size)
        self._extend(following, 0, size)
        self._extend(tail, at, at + BLANK_SIZE)
        TOTAL_AND_MAGIC.pack_into(tail.view(), at, tail.size - at, MAGIC_BLANK)
        self.close_writer()
        # The full file is on its way to the disk and seldom read through this map again.
        tail.set_growing(False)
        self._pool.files.release_pages(tail.view(), at // SIZE_UNIT * SIZE_UNIT)
        self.end = following.start
        return following

    def _extend(self, file: MappedFile, at: int, end: int) -> None:
        file.allocated = max(file.allocated, at)
        if end <= file.allocated:
            return
        try:
            file.extend(end, self._growth(file.allocated))
        except StoreFull:  # a quota may leave less than is free on the disk
            file.extend(end, self._step)

    def _growth(self, allocated: int) -> int:
        """Bytes to allocate at once for a file that has so many: as many again, within limits.

        However many they are, a file system that is writing may take 30 ms for it, and all requests
        wait.
        """
        step = self._step
        wanted = min(allocated // step * step, GROWTH_MAX)
        if wanted <= step:
            return step
        with suppress(OSError):
            free = self._pool.files.usage(self.segments.directory).free
            return wanted if wanted <= free * FREE_SHARE else step
        return step

    def begin_at(self, position: int) -> None:
        """Begin an empty log at a position, perhaps inside its first file. Raises StoreFull."""
        assert self.end in (self.begin, self.origin), "the log is empty"
        self.close_writer()
        self.segments.drop_from(0)
        start = position - position % self.segments.file_size
        self.segments.obtain(start)
        self.tail, self.capacity, self.raw_from = None, 0, None
        self.end = position
        self.origin = position if position > start else 0

    def append_bytes(self, data: bytes | memoryview) -> None:
        """Append bytes of another log, which do not cross the end of a file. Raises StoreFull.

        Their records may be incomplete; `raw_from` says from where on they have no queue entries.
        """
        end, size = self.end, len(data)
        tail = self.segments.obtain(end - end % self.segments.file_size)
        at = end - tail.start
        assert at + size <= tail.size, "bytes stay in one file"
        self._extend(tail, at, at + size)
        self.tail, self.capacity = tail, 0
        self.write(end, data)
        if self.raw_from is None:
            self.raw_from = end
        self.end = end + size
        if self.end == tail.start + tail.size:
            self.tail = None
            self.close_writer()
            tail.set_growing(False)
            self._pool.files.release_pages(tail.view(), tail.size)

    # -- read --------------------------------------------------------------------------------

    def record(self, position: int, size: int) -> memoryview | None:
        """The record of that size at a position, if its head agrees; None otherwise."""
        file = self.segments.file_at(position)
        if file is None or position + size > self.end:
            return None
        at = position - file.start
        view = file.mapped_view or file.view()
        if at + size > file.size or size < RECORD_SIZE_MIN:
            return None
        total, magic, own = RECORD_START.unpack_from(view, at)
        if total != size or own != position or magic not in MAGICS:
            return None
        return view[at : at + size]

    def view_range(self, start: int, stop: int) -> memoryview:
        """The bytes of adjacent records, all in one file."""
        file = self.segments.file_at(start)
        assert file is not None, f"the log does not hold {start}"
        return file.view()[start - file.start : stop - file.start]

    def file_bytes(self, position: int, size_max: int) -> memoryview:
        """Bytes as they lie in one file, up to its end or the log's; none at the log's end."""
        file = self.segments.file_at(position)
        if file is None:
            return memoryview(b"")
        at = position - file.start
        return file.view()[at : min(at + size_max, file.size, self.end - file.start)].toreadonly()

    def read_ranges(self, starts: Sequence[int], stops: Sequence[int]) -> memoryview:
        """The bytes of several ranges, joined; of one range, as they lie in the log."""
        if len(starts) == 1:
            return self.view_range(starts[0], stops[0])
        file = self.segments.file_at(starts[0])
        assert file is not None, f"the log does not hold {starts[0]}"
        joined = join_ranges(file.view(), file.start, starts, stops)
        if joined is None:  # they lie in two files
            joined = b"".join(map(self.view_range, starts, stops))
        return memoryview(joined)

    def has_all(self, positions: Sequence[int], sizes: Sequence[int]) -> bool:
        """Whether `record` would find each of these; False also when they lie in two files."""
        stops = list(map(add, positions, sizes))
        file = self._file_of(positions, stops)
        if file is None or max(stops) > self.end or min(sizes) < RECORD_SIZE_MIN:
            return False
        begins = positions if not file.start else [at - file.start for at in positions]
        heads = map(RECORD_START.unpack_from, repeat(file.view()), begins)
        totals, magics, owns = zip(*heads, strict=True)
        return totals == tuple(sizes) and owns == tuple(positions) and MAGICS.issuperset(magics)

    def _file_of(self, starts: Sequence[int], stops: Sequence[int]) -> MappedFile | None:
        """The file in which all these ranges lie; None if there is no such file."""
        file = self.segments.file_at(starts[0])
        if file is None or min(starts) < file.start or max(stops) > file.start + file.size:
            return None
        return file

    def stored_ms(self, position: int) -> int | None:
        """The store time of the record at a position; None if there is none."""
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
        """The partly decoded record at a position; None without a whole one."""
        file = self.segments.file_at(position)
        if file is None or position < file.start:
            return None
        return decode_partly(file.view(), position - file.start, file.size, position, check_crc)

    def walk(
        self, start: int, stop: int, durable: int, *, check_crc: bool
    ) -> Iterator[WalkedRecord]:
        """Whole records that begin in [start, stop), over holes as well.

        Zeros from a position in front of `durable` to the end of its file count as a blank.
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
            elif (later := self.next_record(file, position)) is not None:
                position = later
            else:
                position = base + size

    def behind_blank(self, position: int, durable: int) -> int:
        """The next file's begin, if a blank leads there and `durable` passed it, or `position`."""
        file_size = self.segments.file_size
        following = (position // file_size + 1) * file_size
        is_over = following <= durable and self.is_blank_at(position, durable)
        return following if is_over else position

    def is_blank_at(self, position: int, durable: int) -> bool:
        """Whether only a blank lies between a position and the end of its file."""
        file = self.segments.file_at(position)
        return file is not None and self._is_blank(file, position, durable)

    def leads_on(self, position: int) -> Path | None:
        """The missing next file's path, if a blank at that position leads to it; else None."""
        segments, file = self.segments, self.segments.file_at(position)
        if file is None or file is not segments.files[-1]:
            return None
        is_led_on = _has_blank_head(file, position)
        return segments.directory / file_name(segments.limit) if is_led_on else None

    def is_headless_blank(self, position: int) -> bool:
        """Whether zeros alone say that a file ends at a position: messages may have been there."""
        file = self.segments.file_at(position)
        if file is None or file.start + file.size - position < RECORD_SIZE_MIN + BLANK_SIZE:
            return False
        return not _has_blank_head(file, position) and self._is_blank(file, position, position + 1)

    def _is_blank(self, file: MappedFile, position: int, durable: int) -> bool:
        """Whether the rest of a file is known to hold nothing."""
        at, view = position - file.start, file.view()
        if file.size - at < RECORD_SIZE_MIN + BLANK_SIZE or _has_blank_head(file, position):
            return True
        if position >= durable or self.segments.file_at(file.start + file.size) is None:
            return False
        data_end = self._pool.files.data_end(file.path, file.size)
        return not any(
            bytes(view[start : min(start + ZEROS_SIZE, data_end)]).strip(b"\0")
            for start in range(at, data_end, ZEROS_SIZE)
        )

    def hole_end(self, position: int, size_max: int) -> int:
        """Where the next whole record begins behind a position that has none.

        It is not looked for in another file, nor behind the next `size_max` bytes or the log's end.
        """
        file = self.segments.file_at(position)
        if file is None or position >= self.end:
            return position + 1
        stop = min(position + size_max, file.start + file.size, self.end)
        following = self.next_record(file, position, stop - file.start + BLANK_SIZE)
        return stop if following is None else min(following, stop)

    def next_record(self, file: MappedFile, position: int, stop: int = sys.maxsize) -> int | None:
        """The next whole record of a file behind a hole: a record names its own position."""
        view = file.view()
        end = min(self._pool.files.data_end(file.path, file.size), stop)
        at = position - file.start
        while (at := _find_magic(view, at + 1, end)) >= 0:
            if decode_partly(view, at, file.size, file.start + at, check_crc=True):
                return file.start + at
        return None


@compiled
def join_ranges(
    view: memoryview, begin: int, starts: Sequence[int], stops: Sequence[int]
) -> bytes | None:
    """The bytes of the ranges, of a view that begins at `begin`; None if one is not all in it."""
    if min(starts) < begin or max(stops) > begin + len(view):
        return None
    return b"".join(
        [view[start - begin : stop - begin] for start, stop in zip(starts, stops, strict=True)]
    )


def _has_blank_head(file: MappedFile, position: int) -> bool:
    at, left = position - file.start, file.start + file.size - position
    is_room = left >= BLANK_SIZE
    return is_room and TOTAL_AND_MAGIC.unpack_from(file.view(), at) == (left, MAGIC_BLANK)


def _find_magic(view: memoryview, start: int, end: int) -> int:
    """Where a record may begin behind `start`; -1 for nowhere."""
    memory = view.obj
    assert isinstance(memory, mmap.mmap)
    # Python before 3.11.5 reads the byte behind the end of a search, where memory may end as well;
    # no record has its beginning there.
    return memory.find(_MAGIC_HEAD, start + MAGIC_AT, min(end, len(memory) - 1)) - MAGIC_AT
