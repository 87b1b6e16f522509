"""ConsumeQueues: queue offset to (position, size, tag hash)."""

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final

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
"""Beside the directory of queues: those of deleted topics, until their files are deleted."""

ConsumeQueueEntry = tuple[int, int, int]
"""Position, size, tag code."""

EntryColumns = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Positions, sizes and tag codes of entries that follow each other."""

TaggedEntry = tuple[int, int, int]
"""Offset, position and size of one entry."""

EntrySpan = tuple[int, int, int, int]
"""How many entries, where the first one's record begins, where the last one's ends, and the size
of all: unless that is the whole way, other queues' records lie between."""

POSITION: Final = Struct(">q")

POSITION_MAX: Final = 1 << 50
"""Positions from here on, a petabyte, are no positions but damaged bytes."""

DIRECTORY_NAME_SIZE_MAX: Final = 255
"""Bytes that file systems allow in a name: a topic is a directory."""


UNPACK_MAX: Final = 128
"""Entries written or read in one go; for each number up to it there may be a Struct."""


@lru_cache(UNPACK_MAX)
def _entries(count: int) -> Struct:
    return Struct(">" + "qiq" * count)


@lru_cache(UNPACK_MAX)
def _sizes(count: int) -> Struct:
    """The sizes alone of so many entries."""
    return Struct(">" + "8xi8x" * count)


class ConsumeQueue:
    """One queue of one topic: an array of entries, numbered by the queue's offsets."""

    __slots__ = ("_min", "_min_for", "_step", "checked_from", "end", "name", "queue_id", "room",
                 "segments", "sound", "tail", "topic")  # fmt: skip

    def __init__(self, topic: str, queue_id: int, segments: Segments, step: int) -> None:
        self.topic = topic
        self.name = topic.encode()
        self.queue_id = queue_id
        self.segments = segments
        self._step = step
        self.end = 0
        """The offset of the next message."""
        self.room = 0
        """Entries up to this offset can be written without asking for blocks."""
        self.tail: MappedFile | None = None
        self.checked_from = 0
        """Entries from this offset on were written or compared with the log by this process."""
        self.sound: set[int] = set()
        """Stretches of entries in front of that one that have been looked at, by their number."""
        self._min = 0
        self._min_for = -1

    # -- write -------------------------------------------------------------------------------

    def put(self, position: int, size: int, tag_code: int) -> None:
        """Write the entry of the next offset; `make_room` has been asked."""
        tail, offset = self.tail, self.end
        assert tail is not None
        view = tail.held
        if view is None:
            view = tail.hold_to_write()
            if view is None:
                entry = ENTRY.pack(position, size, tag_code)
                tail.keep(offset * ENTRY_SIZE - tail.start, entry)
                self.end = offset + 1
                return
        tail.is_used = True
        if not tail.is_dirty:
            tail.mark()
        ENTRY.pack_into(view, offset * ENTRY_SIZE - tail.start, position, size, tag_code)
        self.end = offset + 1

    def put_many(self, numbers: Sequence[int]) -> None:
        """Write the entries of the next offsets: position, size and tag code of each in turn.

        `make_room` has been asked for all of them; where their files end it is asked again.
        """
        at = 0
        while at < len(numbers):
            if self.end >= self.room:
                self.make_room()  # has its blocks already: only the file changes
            count = min(UNPACK_MAX, self.room - self.end, (len(numbers) - at) // 3)
            tail = self.tail
            assert tail is not None
            view = tail.hold_to_write() if tail.held is None else tail.view()
            place = self.end * ENTRY_SIZE - tail.start
            if view is None:
                tail.keep(place, _entries(count).pack(*numbers[at : at + 3 * count]))
            else:
                tail.mark()
                _entries(count).pack_into(view, place, *numbers[at : at + 3 * count])
            self.end += count
            at += 3 * count

    def overwrite(self, offset: int, position: int, size: int, tag_code: int) -> None:
        """Set right the entry of an offset that the queue has. Raises StoreFull."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        # Of a file that was damaged nobody knows whether it has blocks there.
        self.segments.pool.files.allocate(file.path, at, ENTRY_SIZE)
        ENTRY.pack_into(file.view(), at, position, size, tag_code)
        file.mark()

    def redo(self, start: int, stop: int) -> None:
        """Have the next flush write and keep the entries from an offset up to another."""
        for file in self.segments.files:
            first, behind = start * ENTRY_SIZE - file.start, stop * ENTRY_SIZE - file.start
            if first < file.size and behind > 0:
                file.redo(max(first, 0), min(behind, file.size))

    def take_back(self, end: int) -> None:
        """Forget the entries from an offset on, written a moment ago, and ask for room anew."""
        file = self.segments.file_at(end * ENTRY_SIZE)
        if self.end > end and file is not None:
            at, stop = end * ENTRY_SIZE - file.start, self.end * ENTRY_SIZE - file.start
            view = file.view()
            view[at : min(stop, file.size)] = bytes(min(stop, file.size) - at)
            for later in self.segments.files[self.segments.files.index(file) + 1 :]:
                if later.start < self.end * ENTRY_SIZE:
                    later.clear(0)
        self.end = end
        self.room = 0
        self.tail = None

    def make_room(self, count: int = 1) -> None:
        """Blocks for that many entries more. Raises StoreFull."""
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
            file.reach = max(file.reach, max(first - start, 0))
            file.extend(min(stop - start, file.size), self._step)
            start += file.size
        self.tail = tail = segments.file_at(first)
        assert tail is not None
        # The room ends where the file does: the next put asks again, and goes on in the next.
        self.room = (tail.start + tail.reach) // ENTRY_SIZE

    def _begin_inside(self, start: int, first: int) -> None:
        """A first file whose first entries are of messages that are long gone."""
        file = self.segments.obtain(start)
        try:
            file.extend(first - start, self._step)
            view = file.view()
        except StoreError:
            self.segments.files = []  # the next try must not take the file for one that is filled
            raise
        view[: first - start] = FILLER * ((first - start) // ENTRY_SIZE)
        file.mark()

    def settle(self, end: int) -> bool:
        """Go on from this offset: no entry stays behind it. Tells whether one was there."""
        at = end * ENTRY_SIZE
        gone = self.segments.drop_from(at) if at else self.segments.drop_from(1)
        self.end = end
        self.checked_from = min(self.checked_from, end)
        self.room = 0
        self.tail = None
        self._min_for = -1
        file = self.segments.file_at(at)
        return (file is not None and file.clear(at - file.start)) or bool(gone)

    # -- read --------------------------------------------------------------------------------

    @property
    def begin(self) -> int:
        """The first offset that has a place in a file."""
        return self.segments.begin // ENTRY_SIZE

    def find_end(self, known: QueueEnd | None = None) -> None:
        """Learn from the files where the queue ends: entries are dense, zeros follow.

        If the last entry that was known is there, what lies in front of it is not asked.
        """
        if known is not None and self._has(known):
            self.end = known.end
            while (file := self.segments.file_at(self.end * ENTRY_SIZE)) is not None:
                first, room = file.start // ENTRY_SIZE, file.size // ENTRY_SIZE
                with file.leaping():
                    self.end = first + _count(file.view(), room, self.end - first)
                if self.end < first + room:
                    return
            return
        for file in reversed(self.segments.files):
            with file.leaping():
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
        """One entry; the offset is one that the queue has."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        view: memoryview | bytes | None = file.held
        if view is None:
            view, at = file.look(at)
        entry: ConsumeQueueEntry = ENTRY.unpack_from(view, at)
        return entry

    def entries(self, offset: int, count: int) -> Iterator[ConsumeQueueEntry]:
        """Entries from an offset of the queue on: so many, or as many as their file has."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        size = min(min(count, self.end - offset) * ENTRY_SIZE, file.size - at)
        view, at = file.look(at)
        return ENTRY.iter_unpack(view[at : at + size])

    def columns(self, offset: int, count: int) -> EntryColumns:
        """Entries from an offset of the queue on, at least one of them and at most `count`.

        Fewer come at the end of a file, and never more than are unpacked together.
        """
        view, at, count = self._together(offset, count)
        row = _entries(count).unpack_from(view, at)
        return row[::3], row[1::3], row[2::3]

    def places(self, offset: int, count: int) -> tuple[int, list[int], list[int]]:
        """Entries from an offset on: so many, or as many as their file has.

        Told is what all positions have in common, what they have above that, and sizes. Of
        hundreds together it costs a third of `columns`.
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
            return highs[0] << 32, lows.tolist(), sizes.tolist()
        positions = [high << 32 | low for high, low in zip(highs, lows, strict=True)]
        return 0, positions, sizes.tolist()

    def span(self, offset: int, count: int) -> EntrySpan:
        """What the same entries have in common, at a third of the price."""
        view, at, count = self._together(offset, count)
        size = sum(_sizes(count).unpack_from(view, at))
        last, last_size, _ = ENTRY.unpack_from(view, at + (count - 1) * ENTRY_SIZE)
        (first,) = POSITION.unpack_from(view, at)
        return count, first, last + last_size, size

    def tagged(
        self, offset: int, count: int, codes: frozenset[int]
    ) -> tuple[int, list[TaggedEntry]]:
        """Of as many entries as their file has: how many they are, and those with such a code."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        count = min(count, (file.size - at) // ENTRY_SIZE)
        view = file.view()[at : at + count * ENTRY_SIZE]
        found = [(n, *ENTRY.unpack_from(view, n * ENTRY_SIZE)) for n in find_tagged(view, codes)]
        return count, [(offset + n, pos, size) for n, pos, size, code in found if code in codes]

    def _together(self, offset: int, count: int) -> tuple[memoryview | bytes, int, int]:
        """Where entries are, and how many of them can be read in one go."""
        file = self.segments.file_at(offset * ENTRY_SIZE)
        assert file is not None, f"{self.topic}/{self.queue_id} has no offset {offset}"
        at = offset * ENTRY_SIZE - file.start
        count = min(count, (file.size - at) // ENTRY_SIZE, UNPACK_MAX)
        return *file.look(at), count

    def offset_of(self, position: int) -> int:
        """The first offset whose record begins at or behind a position."""
        low, high = self.begin, self.end
        while low < high:
            middle = at = (low + high) // 2
            found, size, _ = self.entry(middle)
            while not 0 <= found < POSITION_MAX or size <= 0:
                # A damaged entry says nothing; one behind it does, and at worst too many are kept.
                at += max(at - middle, 1)
                if at >= high:
                    found, size = position, 1
                else:
                    found, size, _ = self.entry(at)
            if found >= position and not (found == 0 and size == FILLER_SIZE):
                high = middle
            else:
                low = at + 1
        return low

    def min_offset(self, log_begin: int) -> int:
        """The first offset whose record is still kept; the end if none is."""
        if self._min_for != log_begin:
            self._min, self._min_for = self.offset_of(log_begin), log_begin
        return self._min


def _count(view: memoryview, room: int, least: int = 0) -> int:
    """How many entries a file holds: looked for from `least` on, near which most files end.

    Every look costs a page, also where there was none.
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
    """All queues of a directory; a queue's files are looked at when it is first used."""

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
        """What their directories hold, as long as the store opens: reading them costs as much as
        all else that is done with a queue then."""
        self.begins: dict[QueueName, int] = {}
        """The first offsets that have a file, where that is not 0, as long as the store opens."""
        self.faults: dict[QueueName, str] = {}
        """Queues whose files cannot be used, and why."""
        self.ends: dict[QueueName, QueueEnd] = {}
        """Where queues with messages ended at the last checkpoint."""
        self.has_ends = False
        """Whether that was known when the store was opened."""
        self._rows: dict[QueueName, bytes] = {}

    @property
    def files(self) -> Files:
        """The file system that the queues are on."""
        return self._pool.files

    def path(self, name: QueueName, start: int) -> Path:
        """The file of a queue that begins at a place."""
        return Path(f"{self._text}/{name[0]}/{name[1]}/{start:020d}")

    def opened(self) -> None:
        """Forget what only an opening needs."""
        self.listed.clear()
        self.begins.clear()
        self.faults.clear()

    # -- ends --------------------------------------------------------------------------------

    def take_ends(self, ends: Mapping[QueueName, QueueEnd]) -> None:
        """Begin with what the last checkpoint knew."""
        self.ends, self.has_ends = dict(ends), True

    def note_end(self, queue: ConsumeQueue) -> None:
        """Remember where a queue ends now, for the next checkpoint."""
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
        """Where all queues end now that the log reaches so far, as a file's content."""
        for queue in self.loaded.values():
            self.note_end(queue)
        if len(self._rows) < len(self.ends):
            self._rows = {name: pack_end(name, end) for name, end in self.ends.items()}
        return pack_ends(log_begin, position, self._rows.values())

    def _forget_end(self, name: QueueName) -> None:
        self.ends.pop(name, None)
        self._rows.pop(name, None)

    # -- queues ------------------------------------------------------------------------------

    def know(self, topic: str, queue_id: int) -> None:
        """There are files of this queue."""
        self._ids.setdefault(topic, set()).add(queue_id)

    def topics(self) -> list[str]:
        """Topics that have a queue."""
        return sorted(self._ids)

    def ids(self, topic: str) -> list[int]:
        """The queues that a topic has."""
        return sorted(self._ids.get(topic, ()))

    def names(self) -> list[tuple[str, int]]:
        """All queues."""
        return [(topic, queue_id) for topic in self.topics() for queue_id in self.ids(topic)]

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue, if there is one."""
        queue = self.loaded.get((topic, queue_id))
        if queue is None and queue_id in self._ids.get(topic, ()):
            queue = self._load(topic, queue_id)
        return queue

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue, made if there is none. Raises MessageIllegal for a name that is no directory."""
        queue = self.get(topic, queue_id)
        if queue is None:
            _check_name(topic, queue_id)
            self.listed[topic, queue_id] = {}  # there is nothing to be listed
            queue = self._load(topic, queue_id)
            self.know(topic, queue_id)
        return queue

    def remove(self, topic: str) -> None:
        """Delete all queues of a topic: their files are out of the way, until `clear_removed`."""
        for queue_id in self.ids(topic):
            self._forget(topic, queue_id)
        self._ids.pop(topic, None)
        try:
            self._put_away(self.directory / topic)
        except StoreError:  # as good, and slow when there are many
            self._pool.files.remove(self.directory / topic)
        self._pool.files.sync(self.directory)

    def _put_away(self, path: Path) -> None:
        names = self._pool.files.list(self._removed)
        number = len(names) + 1
        while str(number) in names:
            number += 1
        self._pool.files.move(path, self._removed / str(number))

    def clear_removed(self) -> None:
        """Delete the files of removed queues, which takes long when these were many.

        May run in another thread: nobody else knows of these files any more.
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
        """Know no more of a queue, whose files stay."""
        topic, queue_id = name
        self._forget(topic, queue_id)
        self._ids.get(topic, set[int]()).discard(queue_id)

    def clear(self, name: QueueName) -> None:
        """Delete the files of a queue that is about to be made again."""
        topic, queue_id = name
        self.leave_out(name)
        self._pool.files.remove(self.directory / topic / str(queue_id))

    def _forget(self, topic: str, queue_id: int) -> None:
        """Let go what is known of a queue whose files go."""
        self.listed.pop((topic, queue_id), None)
        self._forget_end((topic, queue_id))
        if queue := self.loaded.get((topic, queue_id)):
            self._discard(queue)

    def drop_before(self, topic: str, queue_id: int, position: int) -> list[str]:
        """Delete the files of a queue that lead only to positions in front of one."""
        was_loaded = (topic, queue_id) in self.loaded
        queue = self.get(topic, queue_id)
        if queue is None or len(queue.segments.files) < 2:
            gone = []
        else:
            first_kept = queue.offset_of(position) * ENTRY_SIZE
            gone = [str(file.path) for file in queue.segments.drop_before(first_kept)]
        if queue is not None and not was_loaded:
            self.unload(queue)
        return gone

    def unload(self, queue: ConsumeQueue) -> None:
        """Forget what is known of a queue until it is used again."""
        self.note_end(queue)
        for file in queue.segments.files:
            if file.waiting:
                file.view()  # writes it
        self._discard(queue)

    def _discard(self, queue: ConsumeQueue) -> None:
        for file in queue.segments.files:
            self._pool.drop(file)
        self.loaded.pop((queue.topic, queue.queue_id), None)

    def reach(self) -> int:
        """Behind the last record that any queue leads to."""
        ends = [0]
        for topic, queue_id in self.names():
            queue = self.get(topic, queue_id)
            if queue is not None and queue.end > queue.begin:
                position, size, _ = queue.entry(queue.end - 1)
                ends.append(position if size == FILLER_SIZE else position + size)
        return max(ends)

    def lost_in(self, start: int, stop: int) -> tuple[LostMessages, ...]:
        """The messages whose records begin between two positions."""
        found = []
        for topic, queue_id in self.names():
            queue = self.get(topic, queue_id)
            assert queue is not None
            first, behind = queue.offset_of(start), queue.offset_of(stop)
            if first < behind:
                found.append(LostMessages(topic, queue_id, first, behind))
        return tuple(found)

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
