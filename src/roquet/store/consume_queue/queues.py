"""Consume queues: from a queue offset to (position, size, tag code) of a record."""

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final, NamedTuple

from roquet.log_records import logger
from roquet.model.errors import MessageIllegal, StoreError
from roquet.rules.recovery import LostMessages
from roquet.store.consume_queue.queue_ends import QueueEnd, QueueName, pack_end, pack_ends
from roquet.store.consume_queue.tag_search import find_tagged
from roquet.store.filesystem.files import Files
from roquet.store.filesystem.mapped_file import MappedFile, MapPool
from roquet.store.filesystem.segments import Segments
from roquet.store.layout import ENTRY, ENTRY_SIZE, FILLER, FILLER_SIZE

log = logger(__name__)

REMOVED_NAME: Final = "consumequeue-removed"
"""Holds the queues of deleted topics, beside the directory of queues, until their files are
deleted."""

ConsumeQueueEntry = tuple[int, int, int]
"""Position, size and tag code. A plain tuple: reads make many of them."""

EntryColumns = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Positions, sizes and tag codes of consecutive entries."""

TaggedEntry = tuple[int, int, int]
"""Offset, position and size of one entry."""

EntrySpan = tuple[int, int, int, int]
"""The number of entries, where the first one's record begins, where the last one's ends, and the
sum of their sizes: if that is less than the distance, other queues' records lie between. A plain
tuple: every read makes one."""


class PositionColumns(NamedTuple):
    """Positions and sizes of consecutive entries; `base` is to be added to each position."""

    base: int
    positions: list[int]
    sizes: list[int]


POSITION: Final = Struct(">q")

POSITION_MAX: Final = 1 << 50
"""Positions from here on, a petabyte, are damaged bytes."""

DIRECTORY_NAME_SIZE_MAX: Final = 255
"""Bytes that file systems allow in a name: a topic is a directory."""


UNPACK_MAX: Final = 128
"""Entries written or read in one go; each number up to it may have a cached Struct."""


@lru_cache(UNPACK_MAX)
def _entries(count: int) -> Struct:
    return Struct(">" + "qiq" * count)


@lru_cache(UNPACK_MAX)
def _sizes(count: int) -> Struct:
    """Unpacks only the sizes of `count` entries."""
    return Struct(">" + "8xi8x" * count)


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

    def put_many(self, numbers: Sequence[int]) -> None:
        """Write the entries of the next offsets: position, size and tag code of each in turn.

        `reserve` has been called for all of them; it is called again where a file ends.
        """
        at = 0
        while at < len(numbers):
            if self.end >= self.capacity:
                self.reserve()  # blocks are there already: this only changes the file
            count = min(UNPACK_MAX, self.capacity - self.end, (len(numbers) - at) // 3)
            tail = self.tail
            assert tail is not None
            view = tail.view_to_write() if tail.mapped_view is None else tail.view()
            place = self.end * ENTRY_SIZE - tail.start
            if view is None:
                tail.buffer(place, _entries(count).pack(*numbers[at : at + 3 * count]))
            else:
                tail.mark_dirty()
                _entries(count).pack_into(view, place, *numbers[at : at + 3 * count])
            self.end += count
            at += 3 * count

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
                first, room = file.start // ENTRY_SIZE, file.size // ENTRY_SIZE
                with file.random_access():
                    self.end = first + _count(file.view(), room, self.end - first)
                if self.end < first + room:
                    return
            return
        for file in reversed(self.segments.files):
            with file.random_access():
                count = _count(file.view(), file.size // ENTRY_SIZE)
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
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        size = min(min(count, self.end - offset) * ENTRY_SIZE, file.size - at)
        view, at = file.locate(at)
        return ENTRY.iter_unpack(view[at : at + size])

    def columns(self, offset: int, count: int) -> EntryColumns:
        """Entries from an offset on as columns, at least one of them and at most `count`.

        Fewer come at the end of a file, and never more than `UNPACK_MAX`.
        """
        view, at, count = self._unpackable(offset, count)
        row = _entries(count).unpack_from(view, at)
        return row[::3], row[1::3], row[2::3]

    def position_columns(self, offset: int, count: int) -> PositionColumns:
        """The positions and sizes of `count` entries, or of as many as their file has.

        For hundreds of entries it takes a third of the time of `columns`.
        """
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        words = array("I")
        words.frombytes(file.view()[at : min(at + count * ENTRY_SIZE, file.size)])
        if sys.byteorder == "little":
            words.byteswap()
        highs, lows, sizes = words[::5], words[1::5], words[2::5]
        if highs.tobytes() == highs[:1].tobytes() * len(highs):
            return PositionColumns(highs[0] << 32, lows.tolist(), sizes.tolist())
        positions = [high << 32 | low for high, low in zip(highs, lows, strict=True)]
        return PositionColumns(0, positions, sizes.tolist())

    def span(self, offset: int, count: int) -> EntrySpan:
        """The extent of `count` entries, or of fewer, in a third of the time of `columns`."""
        view, at, count = self._unpackable(offset, count)
        size = sum(_sizes(count).unpack_from(view, at))
        last, last_size, _ = ENTRY.unpack_from(view, at + (count - 1) * ENTRY_SIZE)
        (first,) = POSITION.unpack_from(view, at)
        return count, first, last + last_size, size

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

    def _unpackable(self, offset: int, count: int) -> tuple[memoryview | bytes, int, int]:
        """Memory that holds entries, the first one's index there, and how many can be unpacked."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        count = min(count, (file.size - at) // ENTRY_SIZE, UNPACK_MAX)
        return *file.locate(at), count

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


def _count(view: memoryview, room: int, least: int = 0) -> int:
    """How many entries a file holds; the search begins at `least`, near which most files end.

    Each probe costs a page, even where there was none.
    """
    step = 1
    while least + step < room and ENTRY.unpack_from(view, (least + step - 1) * ENTRY_SIZE)[1] > 0:
        step *= 2
    low, high = least + step // 2, min(least + step, room)
    while low < high:
        middle = (low + high) // 2
        if ENTRY.unpack_from(view, middle * ENTRY_SIZE)[1] > 0:
            low = middle + 1
        else:
            high = middle
    return low


class ConsumeQueues:
    """All queues of a directory; the files of a queue are opened when it is first used."""

    def __init__(self, pool: MapPool, directory: Path, entries: int, step: int) -> None:
        self._pool = pool
        self._step = step
        self.directory = directory
        self._removed = directory.with_name(REMOVED_NAME)
        self._clearing = Lock()
        self._text = str(directory)
        self.file_size = entries * ENTRY_SIZE
        self._ids: dict[str, set[int]] = {}
        self.loaded: dict[tuple[str, int], ConsumeQueue] = {}
        self.listed: dict[tuple[str, int], Mapping[str, int | None]] = {}
        """Directory listings, while the store opens: reading one costs as much as everything else
        that is done with a queue then."""
        self.begins: dict[QueueName, int] = {}
        """First offsets that have a file, where that is not 0, while the store opens."""
        self.faults: dict[QueueName, str] = {}
        """Queues whose files are unusable, and why."""
        self.ends: dict[QueueName, QueueEnd] = {}
        """Where queues with messages ended at the last checkpoint."""
        self.has_ends = False
        """Whether those ends were known when the store was opened."""
        self._rows: dict[QueueName, bytes] = {}

    @property
    def files(self) -> Files:
        """The file system that holds the queues."""
        return self._pool.files

    def path(self, name: QueueName, start: int) -> Path:
        """The file of a queue that begins at byte `start`."""
        return Path(f"{self._text}/{name[0]}/{name[1]}/{start:020d}")

    def opened(self) -> None:
        """Drop what only opening a store needs."""
        self.listed.clear()
        self.begins.clear()
        self.faults.clear()

    # -- ends --------------------------------------------------------------------------------

    def set_checkpoint_ends(self, ends: Mapping[QueueName, QueueEnd]) -> None:
        """Begin with the ends that the last checkpoint recorded."""
        self.ends, self.has_ends = dict(ends), True

    def note_end(self, queue: ConsumeQueue) -> None:
        """Record where a queue ends now, for the next checkpoint."""
        name, end, begin = (queue.topic, queue.queue_id), queue.end, queue.begin
        known = self.ends.get(name)
        if known is not None and known.end == end and known.begin == begin:
            return
        if end:
            last = queue.entry(end - 1)[0] if end > begin else -1
            self.ends[name] = noted = QueueEnd(begin, end, last)
            self._rows[name] = pack_end(name, noted)
        else:
            self._forget_end(name)

    def packed_ends(self, log_begin: int, position: int) -> bytes:
        """The ends of all queues as a file, for a log from `log_begin` to `position`."""
        for queue in self.loaded.values():
            self.note_end(queue)
        if len(self._rows) < len(self.ends):
            self._rows = {name: pack_end(name, end) for name, end in self.ends.items()}
        return pack_ends(log_begin, position, self._rows.values())

    def _forget_end(self, name: QueueName) -> None:
        self.ends.pop(name, None)
        self._rows.pop(name, None)

    # -- queues ------------------------------------------------------------------------------

    def add(self, topic: str, queue_id: int) -> None:
        """Register a queue that has files."""
        self._ids.setdefault(topic, set()).add(queue_id)

    def topics(self) -> list[str]:
        """Topics that have a queue."""
        return sorted(self._ids)

    def ids(self, topic: str) -> list[int]:
        """The queue ids of a topic."""
        return sorted(self._ids.get(topic, ()))

    def names(self) -> list[tuple[str, int]]:
        """Topic and id of every queue."""
        return [(topic, queue_id) for topic in self.topics() for queue_id in self.ids(topic)]

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue; None if there is none."""
        queue = self.loaded.get((topic, queue_id))
        if queue is None and queue_id in self._ids.get(topic, ()):
            queue = self._load(topic, queue_id)
        return queue

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue, created if there is none. Raises MessageIllegal for an impossible name."""
        queue = self.get(topic, queue_id)
        if queue is None:
            _check_name(topic, queue_id)
            self.listed[topic, queue_id] = {}  # there is nothing to list
            queue = self._load(topic, queue_id)
            self.add(topic, queue_id)
        return queue

    def remove(self, topic: str) -> None:
        """Delete all queues of a topic: their files are moved away until `clear_removed`."""
        for queue_id in self.ids(topic):
            self._forget(topic, queue_id)
        self._ids.pop(topic, None)
        try:
            self._move_away(self.directory / topic)
        except StoreError:  # deleting does as well, slowly when there are many
            self._pool.files.remove(self.directory / topic)
        self._pool.files.sync(self.directory)

    def _move_away(self, path: Path) -> None:
        names = self._pool.files.list(self._removed)
        number = len(names) + 1
        while str(number) in names:
            number += 1
        self._pool.files.move(path, self._removed / str(number))

    def clear_removed(self) -> None:
        """Delete the files of removed queues, which takes long if there were many.

        May run in another thread: nothing else uses these files any more.
        """
        with self._clearing:
            for number in self._pool.files.list(self._removed):
                self._pool.files.remove(self._removed / number)

    def remove_one(self, topic: str, queue_id: int) -> None:
        """Delete one queue of a topic."""
        self._forget(topic, queue_id)
        self._ids[topic].discard(queue_id)
        if not self._ids[topic]:
            self.remove(topic)
        else:
            self._pool.files.remove(self.directory / topic / str(queue_id))

    def leave_out(self, name: QueueName) -> None:
        """Forget a queue; its files stay."""
        topic, queue_id = name
        self._forget(topic, queue_id)
        self._ids.get(topic, set[int]()).discard(queue_id)

    def clear(self, name: QueueName) -> None:
        """Delete the files of a queue that is about to be rebuilt."""
        topic, queue_id = name
        self.leave_out(name)
        self._pool.files.remove(self.directory / topic / str(queue_id))

    def _forget(self, topic: str, queue_id: int) -> None:
        """Drop the state of a queue whose files are going."""
        self.listed.pop((topic, queue_id), None)
        self._forget_end((topic, queue_id))
        if queue := self.loaded.get((topic, queue_id)):
            self._discard(queue)

    def drop_before(self, topic: str, queue_id: int, position: int) -> list[str]:
        """Delete the files of a queue whose records all lie in front of a position; gives paths."""
        was_loaded = (topic, queue_id) in self.loaded
        queue = self.get(topic, queue_id)
        if queue is None or len(queue.segments.files) < 2:
            dropped = []
        else:
            first_kept = queue.offset_of(position) * ENTRY_SIZE
            dropped = [str(file.path) for file in queue.segments.drop_before(first_kept)]
        if queue is not None and not was_loaded:
            self.unload(queue)
        return dropped

    def unload(self, queue: ConsumeQueue) -> None:
        """Drop the state of a queue until it is used again."""
        self.note_end(queue)
        for file in queue.segments.files:
            if file.unwritten:
                file.view()  # writes the buffer
        self._discard(queue)

    def _discard(self, queue: ConsumeQueue) -> None:
        for file in queue.segments.files:
            self._pool.drop(file)
        self.loaded.pop((queue.topic, queue.queue_id), None)

    def last_record_end(self) -> int:
        """The position behind the last record that any queue leads to."""
        ends = [0]
        for topic, queue_id in self.names():
            queue = self.get(topic, queue_id)
            if queue is not None and queue.end > queue.begin:
                position, size, _ = queue.entry(queue.end - 1)
                ends.append(position if size == FILLER_SIZE else position + size)
        return max(ends)

    def lost_in(self, start: int, stop: int) -> tuple[LostMessages, ...]:
        """The messages whose records begin between two positions."""
        lost = []
        for topic, queue_id in self.names():
            queue = self.get(topic, queue_id)
            assert queue is not None
            first, behind = queue.offset_of(start), queue.offset_of(stop)
            if first < behind:
                lost.append(LostMessages(topic, queue_id, first, behind))
        return tuple(lost)

    def _load(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = self.directory / topic / str(queue_id)
        segments = Segments(self._pool, directory, self.file_size)
        listed = self.listed.pop((topic, queue_id), None)
        segments.load(self._pool.files.list(directory) if listed is None else listed)
        queue = ConsumeQueue(topic, queue_id, segments, self._step)
        queue.find_end(self.ends.get((topic, queue_id)))
        queue.checked_from = queue.end
        self.loaded[topic, queue_id] = queue
        return queue


def _check_name(topic: str, queue_id: int) -> None:
    is_path = "/" in topic or "\\" in topic or "\0" in topic or topic in ("", ".", "..")
    if is_path or queue_id < 0 or len(topic.encode()) > DIRECTORY_NAME_SIZE_MAX:
        raise MessageIllegal(f"{topic!r}, queue {queue_id}, cannot be the name of a directory")
