"""Consume queue: one queue of a topic, an array of entries that lead to records of the log.

offset       0        1        2        …  end
files   [ entry 0 │ entry 1 │ entry 2 │ … │ zeros ] [ next file …
"""

from collections.abc import Iterator
from typing import Final

from roquet.model.errors import StoreError
from roquet.store.consume_queue.entries import (
    ConsumeQueueEntry,
    EntryColumns,
    EntryExtents,
    TaggedEntry,
    adjacent_range,
    count_entries,
    entry_columns,
    entry_extents,
    find_tagged,
    sum_sizes,
)
from roquet.store.consume_queue.queue_ends import QueueEnd
from roquet.store.filesystem.mapped_file import MappedFile
from roquet.store.filesystem.segments import Segments
from roquet.store.layout import ENTRY_SIZE, FILLER, FILLER_SIZE
from roquet.wire.records.record import ENTRY

POSITION_MAX: Final = 1 << 50
"""Positions from here on, a petabyte, are damaged bytes."""

EXTENT_SIZE_MAX: Final = 1 << 62
"""Bytes of records: no limit."""


class ConsumeQueue:
    """One queue of one topic: an array of entries, numbered by queue offset."""

    __slots__ = (
        "_min",
        "_min_for",
        "_step",
        "capacity",
        "checked_blocks",
        "checked_from",
        "end",
        "name",
        "queue_id",
        "segments",
        "tail",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, queue_id: int, segments: Segments, step: int) -> None:
        self.topic = topic
        self.name = topic.encode()
        self.queue_id = queue_id
        self.segments = segments
        self._step = step
        self.end = 0
        """The offset of the next message."""
        self.capacity = 0
        """Entries in front of this offset can be written without allocating blocks."""
        self.tail: MappedFile | None = None
        self.checked_from = 0
        """Entries from this offset on were written or compared with the log by this process."""
        self.checked_blocks: set[int] = set()
        """Numbers of the blocks of entries in front of `checked_from` that were checked."""
        self._min = 0
        self._min_for = -1

    # -- write -------------------------------------------------------------------------------

    def put(self, position: int, size: int, tag_code: int) -> None:
        """Write the entry of the next offset; `reserve` has been called."""
        tail, offset = self.tail, self.end
        assert tail is not None
        view = tail.mapped_view
        if view is None:
            view = tail.view_to_write()
            if view is None:
                entry = ENTRY.pack(position, size, tag_code)
                tail.buffer(offset * ENTRY_SIZE - tail.start, entry)
                self.end = offset + 1
                return
        tail.is_used = True
        if not tail.is_dirty:
            tail.mark_dirty()
        ENTRY.pack_into(view, offset * ENTRY_SIZE - tail.start, position, size, tag_code)
        self.end = offset + 1

    def put_many(self, entries: bytes) -> None:
        """Write the encoded entries of the next offsets.

        `reserve` has been called for all of them; it is called again where a file ends.
        """
        at = 0
        while at < len(entries):
            if self.end >= self.capacity:
                self.reserve()  # blocks are there already: this only changes the file
            size = min((self.capacity - self.end) * ENTRY_SIZE, len(entries) - at)
            tail = self.tail
            assert tail is not None
            view = tail.view_to_write() if tail.mapped_view is None else tail.view()
            start = self.end * ENTRY_SIZE - tail.start
            if view is None:
                tail.buffer(start, entries[at : at + size])
            else:
                tail.mark_dirty()
                view[start : start + size] = entries[at : at + size]
            self.end += size // ENTRY_SIZE
            at += size

    def overwrite(self, offset: int, position: int, size: int, tag_code: int) -> None:
        """Correct the entry of an offset that the queue has. Raises StoreFull."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        # A damaged file may have no blocks there.
        self.segments.pool.files.allocate(file.path, at, ENTRY_SIZE)
        ENTRY.pack_into(file.view(), at, position, size, tag_code)
        file.mark_dirty()

    def rewrite(self, start: int, stop: int) -> None:
        """Make the next flush write the entries of the offsets [start, stop) again."""
        for file in self.segments.files:
            first, behind = start * ENTRY_SIZE - file.start, stop * ENTRY_SIZE - file.start
            if first < file.size and behind > 0:
                file.rewrite(max(first, 0), min(behind, file.size))

    def undo_append(self, end: int) -> None:
        """Remove the entries from an offset on, which were just written."""
        file = self.segments.file_at(end * ENTRY_SIZE)
        if self.end > end and file is not None:
            at, stop = end * ENTRY_SIZE - file.start, self.end * ENTRY_SIZE - file.start
            view = file.view()
            view[at : min(stop, file.size)] = bytes(min(stop, file.size) - at)
            for later in self.segments.files[self.segments.files.index(file) + 1 :]:
                if later.start < self.end * ENTRY_SIZE:
                    later.clear(0)
        self.end = end
        self.capacity = 0
        self.tail = None

    def reserve(self, count: int = 1) -> None:
        """Allocate blocks for `count` more entries. Raises StoreFull."""
        segments, first, stop = (
            self.segments,
            self.end * ENTRY_SIZE,
            (self.end + count) * ENTRY_SIZE,
        )
        start = first // segments.file_size * segments.file_size
        if not segments.files and first > start:
            self._begin_inside(start, first)
        while start < stop:
            file = segments.obtain(start)
            file.allocated = max(file.allocated, max(first - start, 0))
            file.extend(min(stop - start, file.size), self._step)
            start += file.size
        self.tail = tail = segments.file_at(first)
        assert tail is not None
        # The capacity ends with the file: the next put reserves again, in the next file.
        self.capacity = (tail.start + tail.allocated) // ENTRY_SIZE

    def _begin_inside(self, start: int, first: int) -> None:
        """Create a first file whose first entries belong to messages that no longer exist."""
        file = self.segments.obtain(start)
        try:
            file.extend(first - start, self._step)
            view = file.view()
        except StoreError:
            self.segments.files = []  # the next try must not take the file for a filled one
            raise
        view[: first - start] = FILLER * ((first - start) // ENTRY_SIZE)
        file.mark_dirty()

    def truncate(self, end: int) -> bool:
        """Continue from this offset: no entry stays behind it. True if there was one."""
        at = end * ENTRY_SIZE
        dropped = self.segments.drop_from(at) if at else self.segments.drop_from(1)
        self.end = end
        self.checked_from = min(self.checked_from, end)
        self.capacity = 0
        self.tail = None
        self._min_for = -1
        file = self.segments.file_at(at)
        return (file is not None and file.clear(at - file.start)) or bool(dropped)

    # -- read --------------------------------------------------------------------------------

    @property
    def begin(self) -> int:
        """The first offset that has an entry in a file."""
        return self.segments.begin // ENTRY_SIZE

    def find_end(self, known: QueueEnd | None = None) -> None:
        """Find the end of the queue in its files: entries are dense, zeros follow.

        If the known last entry is there, the entries in front of it are not examined.
        """
        if known is not None and self._has(known):
            self.end = known.end
            while (file := self.segments.file_at(self.end * ENTRY_SIZE)) is not None:
                first, capacity = file.start // ENTRY_SIZE, file.size // ENTRY_SIZE
                with file.random_access():
                    self.end = first + count_entries(file.view(), capacity, self.end - first)
                if self.end < first + capacity:
                    return
            return
        for file in reversed(self.segments.files):
            with file.random_access():
                count = count_entries(file.view(), file.size // ENTRY_SIZE)
            if count:
                self.end = file.start // ENTRY_SIZE + count
                return
        self.end = self.begin

    def _has(self, known: QueueEnd) -> bool:
        offset = known.end - 1
        is_held = known.last >= 0 and self.segments.file_at(offset * ENTRY_SIZE) is not None
        return is_held and self.entry(offset)[0] == known.last

    def entry(self, offset: int) -> ConsumeQueueEntry:
        """The entry of an offset that the queue has."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        view: memoryview | bytes | None = file.mapped_view
        if view is None:
            view, at = file.locate(at)
        entry: ConsumeQueueEntry = ENTRY.unpack_from(view, at)
        return entry

    def entries(self, offset: int, count: int) -> Iterator[ConsumeQueueEntry]:
        """Entries from an offset on: `count`, or as many as their file has."""
        return ENTRY.iter_unpack(self.encoded(offset, count))

    def encoded(self, offset: int, count: int) -> memoryview | bytes:
        """Encoded entries from an offset on: `count`, or as many as their file has."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        size = min(min(count, self.end - offset) * ENTRY_SIZE, file.size - at)
        view, at = file.locate(at)
        return view[at : at + size]

    def columns(self, offset: int, count: int) -> EntryColumns:
        """Columns of entries from an offset on: of `count`, or of as many as their file has."""
        return entry_columns(self.encoded(offset, count))

    def records_size(self, start: int, stop: int) -> int:
        """Bytes of the records of the offsets [start, stop), which the queue has."""
        total = 0
        while start < stop:
            entries = self.encoded(start, stop - start)
            total += sum_sizes(entries)
            start += len(entries) // ENTRY_SIZE
        return total

    def extents(
        self, offset: int, count: int, size_max: int = EXTENT_SIZE_MAX, *, least: int = 0
    ) -> EntryExtents:
        """Where the records of entries from an offset on lie in the log: see `entry_extents`."""
        return entry_extents(self.encoded(offset, count), size_max, least=least)

    def adjacent_range(self, offset: int, count: int, size_max: int) -> tuple[int, int] | None:
        """The range of the log that holds the records of `count` entries, and nothing else.

        None where they lie apart, are in two files, or have more than `size_max` bytes.
        """
        file = self.segments.file_at(offset * ENTRY_SIZE)
        if file is None or (view := file.mapped_view) is None:
            return None
        file.is_used = True
        return adjacent_range(view, offset * ENTRY_SIZE - file.start, count, size_max)

    def find_tagged(
        self, offset: int, count: int, codes: frozenset[int]
    ) -> tuple[int, list[TaggedEntry]]:
        """How many entries were examined, and those of them that have one of the tag codes.

        At most `count` entries, all in one file.
        """
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        count = min(count, (file.size - at) // ENTRY_SIZE)
        view = file.view()[at : at + count * ENTRY_SIZE]
        candidates = [
            (n, *ENTRY.unpack_from(view, n * ENTRY_SIZE)) for n in find_tagged(view, codes)
        ]
        return count, [
            (offset + n, pos, size) for n, pos, size, code in candidates if code in codes
        ]

    def offset_of(self, position: int) -> int:
        """The first offset whose record begins at or behind a position."""
        low, high = self.begin, self.end
        while low < high:
            middle = at = (low + high) // 2
            entry_position, size, _ = self.entry(middle)
            while not 0 <= entry_position < POSITION_MAX or size <= 0:
                # A damaged entry is skipped for one behind it; at worst too many are kept.
                at += max(at - middle, 1)
                if at >= high:
                    entry_position, size = position, 1
                else:
                    entry_position, size, _ = self.entry(at)
            if entry_position >= position and not (entry_position == 0 and size == FILLER_SIZE):
                high = middle
            else:
                low = at + 1
        return low

    def min_offset(self, log_begin: int) -> int:
        """The first offset whose record the log still holds; the end if there is none."""
        if self._min_for != log_begin:
            self._min, self._min_for = self.offset_of(log_begin), log_begin
        return self._min
