"""KeyIndex: from a key's hash to the positions of its records.

A hash table per file: a slot leads to the newest entry with its hashes, each entry to the one
before. Entries hold hashes only, so every hit has to be compared with the keys of its record.
"""

import errno
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreFull
from roquet.store.config import StoreConfig
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.mapped_file import MappedFile, MapPool
from roquet.store.layout import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT, index_name
from roquet.wire.records.speedups import compiled

log = logger(__name__)

SECONDS_MAX: Final = 0x7FFF_FFFF


class IndexMark(msgspec.Struct, frozen=True):
    """How far the index is, as checkpoints note it."""

    position: int
    """Records in front of it are indexed."""
    name: int
    """Of the newest file, as a number; 0 for none."""
    count: int
    """The number of its next entry."""
    end_ms: int
    """Store time of the last indexed record."""


class IndexFile:
    """One file of the index, and the numbers of its head."""

    def __init__(self, file: MappedFile, config: StoreConfig) -> None:
        self.file = file
        self.slots = config.index_slots
        self._entries = config.index_entries
        self._step = config.index_step
        self._entries_at = INDEX_HEAD.size + self.slots * INDEX_SLOT.size
        self.begin_ms = self.end_ms = self.begin_position = self.end_position = 0
        self.slots_used = 0
        self.next = 1
        """Number of the next entry. Entries begin at 1, since 0 means none."""

    @property
    def name(self) -> int:
        """The file's name as a number: its creation time."""
        return int(self.file.path.name)

    def load(self) -> None:
        """Read the head."""
        (self.begin_ms, self.end_ms, self.begin_position, self.end_position,
         self.slots_used, following) = INDEX_HEAD.unpack_from(self.file.view())  # fmt: skip
        self.next = max(following, 1)

    def is_plausible(self, *, is_newest: bool) -> bool:
        """Whether the head's numbers can be right; only the newest file may have free entries."""
        is_sorted = 0 <= self.begin_position <= self.end_position and self.begin_ms >= 0
        return is_sorted and self.next <= self._entries and (is_newest or self.is_full)

    def save(self) -> None:
        """Write the head."""
        INDEX_HEAD.pack_into(
            self.file.view(), 0, self.begin_ms, self.end_ms, self.begin_position,
            self.end_position, self.slots_used, self.next,
        )  # fmt: skip
        self.file.mark_dirty()

    @property
    def is_full(self) -> bool:
        """Whether no entry is free."""
        return self.next >= self._entries

    def put_many(
        self, hashes: Sequence[int], positions: Sequence[int], times: Sequence[int]
    ) -> int:
        """Add as many keys as fit; gives their number. Raises StoreFull: then none was added."""
        first, count = self.next, min(len(hashes), self._entries - self.next)
        self.file.extend(self._entries_at + (first + count) * INDEX_ENTRY.size, self._step)
        if not count:
            return 0
        view = self.file.view()  # mapping may fail, which must happen before anything is counted
        if first == 1:
            self.begin_position, self.begin_ms = positions[0], times[0]
        # Counted before they are written: a slot must never lead to an uncounted entry.
        self.next = first + count
        self.save()
        slots = view[INDEX_HEAD.size : self._entries_at]
        entries, new_slots = link_entries(
            slots, hashes[:count], positions[:count], times[:count], self.begin_ms, first
        )
        at = self._entries_at + first * INDEX_ENTRY.size
        view[at : at + len(entries)] = entries
        self.slots_used += new_slots
        self.end_position, self.end_ms = positions[count - 1], times[count - 1]
        self.save()
        return count

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, position, seconds since the file's begin, the slot's entry before."""
        at = self._entries_at + number * INDEX_ENTRY.size
        key_hash, position, seconds, before = INDEX_ENTRY.unpack_from(self.file.view(), at)
        return key_hash, position, seconds, before

    def find(self, key_hash: int) -> Iterator[tuple[int, int]]:
        """Position and approximate store time of each entry of a hash, newest first.

        The time is at most a second early.
        """
        slot_at = INDEX_HEAD.size + key_hash % self.slots * INDEX_SLOT.size
        (number,) = INDEX_SLOT.unpack_from(self.file.view(), slot_at)
        limit = self.next
        while 0 < number < limit:
            found_hash, position, seconds, before = self.entry(number)
            if found_hash == key_hash:
                yield position, self.begin_ms + seconds * 1000
            limit = number  # chains lead to older entries: a damaged one cannot form a cycle
            number = before

    def first_at(self, position: int) -> int:
        """The number of the first entry whose record begins at or behind a position."""
        return bisect_left(range(self.next), position, lo=1, key=lambda n: self.entry(n)[1])

    def rewind(self, count: int) -> bool:
        """Remove the entries from a number on; False when the slots do not allow it."""
        view, is_sound = self.file.view(), True
        for number in range(min(self.next, self._entries) - 1, count - 1, -1):
            key_hash, _, _, before = self.entry(number)
            slot_at = INDEX_HEAD.size + key_hash % self.slots * INDEX_SLOT.size
            if INDEX_SLOT.unpack_from(view, slot_at)[0] == number and 0 <= before < number:
                INDEX_SLOT.pack_into(view, slot_at, before)
                self.slots_used -= before == 0
            else:
                is_sound = False  # counted, but perhaps never written
        self.next = count
        self.end_ms, self.end_position = self.begin_ms, self.begin_position
        if count > 1:
            _, self.end_position, seconds, _ = self.entry(count - 1)
            self.end_ms = self.begin_ms + seconds * 1000
        self.save()
        return is_sound or self.newest() < count

    def leads_to(self, numbers: "array[int]") -> bool:
        """Whether the slots lead to exactly these entries, one number for each slot."""
        slots = self.file.view()[INDEX_HEAD.size : self._entries_at]
        return bytes(slots) == _swapped(numbers).tobytes()

    def newest(self) -> int:
        """The greatest entry number in any slot."""
        return max(_swapped(self.file.view()[INDEX_HEAD.size : self._entries_at].tobytes()))

    def rebuild_slots(self) -> None:
        """Rebuild the slots from the entries, which are durable."""
        view = self.file.view()
        view[INDEX_HEAD.size : self._entries_at] = bytes(self._entries_at - INDEX_HEAD.size)
        self.slots_used = 0
        for number in range(1, self.next):
            key_hash, position, seconds, _ = self.entry(number)
            slot_at = INDEX_HEAD.size + key_hash % self.slots * INDEX_SLOT.size
            (before,) = INDEX_SLOT.unpack_from(view, slot_at)
            self.slots_used += before == 0
            at = self._entries_at + number * INDEX_ENTRY.size
            INDEX_ENTRY.pack_into(view, at, key_hash, position, seconds, before)
            INDEX_SLOT.pack_into(view, slot_at, number)
        self.save()


def seconds_since(begin_ms: int, stored_ms: int) -> int:
    """A message's store time as its entry holds it: seconds since `begin_ms` of the file."""
    return min(max((stored_ms - begin_ms) // 1000, 0), SECONDS_MAX)


def _swapped(numbers: Iterable[int]) -> "array[int]":
    """Four-byte numbers converted between the file's byte order and the processor's.

    Bytes are taken as such numbers.
    """
    swapped = array("i", numbers)
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped


@compiled
def link_entries(
    slots: memoryview,
    hashes: Sequence[int],
    positions: Sequence[int],
    times: Sequence[int],
    begin_ms: int,
    first: int,
) -> tuple[bytes, int]:
    """Lead the slots to entries numbered from `first` on; gives these entries encoded.

    And how many slots led to none before.
    """
    entries, unused, count = bytearray(), 0, len(slots) // INDEX_SLOT.size
    for number, (key_hash, position, stored_ms) in enumerate(
        zip(hashes, positions, times, strict=True), first
    ):
        slot_at = key_hash % count * INDEX_SLOT.size
        (before,) = INDEX_SLOT.unpack_from(slots, slot_at)
        if not 0 < before < number:
            before, unused = 0, unused + 1
        INDEX_SLOT.pack_into(slots, slot_at, number)
        seconds = seconds_since(begin_ms, stored_ms)
        entries += INDEX_ENTRY.pack(key_hash, position, seconds, before)
    return bytes(entries), unused


class KeyIndex:
    """All index files, oldest first."""

    def __init__(self, pool: MapPool, directory: Path, config: StoreConfig) -> None:
        self._pool = pool
        self.directory = directory
        self._config = config
        slots, entries = config.index_slots, config.index_entries
        self.file_size = INDEX_HEAD.size + slots * INDEX_SLOT.size + entries * INDEX_ENTRY.size
        self.files: list[IndexFile] = []
        self._waits_for_room = False

    def load(self, listed: Mapping[str, int | None]) -> str | None:
        """Load the files of the directory, up to the first one that cannot be right.

        Gives that file's path and fault, None without one. Raises StoreError for a directory.
        """
        names = sorted(name for name in listed if name.isdigit() and name.isascii())
        for name in listed.keys() - set(names):
            log.warning("%s does not belong there and is ignored", self.directory / name)
        for name in names:
            size, path = listed[name], self.directory / name
            if size is None:
                raise store_error(path, IsADirectoryError(errno.EISDIR, "Is a directory"))
            if size != self.file_size:
                return f"{path} has {size} bytes instead of {self.file_size}"
            file = self._file(path)
            file.load()
            if not file.is_plausible(is_newest=name == names[-1]):
                return f"{path} has a damaged head"
            self.files.append(file)
        return None

    def open(self) -> None:
        """Load the files of the directory; delete those that have to be rebuilt from the log."""
        listed = self._pool.files.list(self.directory)
        fault, known = self.load(listed), {file.file.path.name for file in self.files}
        unusable = sorted(name for name in listed if name.isdigit() and name not in known)
        # An empty newest file was created just before a loss of power.
        if fault and (len(unusable) > 1 or listed[unusable[0]]):
            log.warning("%s: the index is rebuilt from there", fault)
        for name in unusable:
            self._pool.files.remove(self.directory / name)

    @property
    def end_position(self) -> int:
        """Where the last indexed record begins; 0 for none."""
        return self.files[-1].end_position if self.files else 0

    @property
    def end_ms(self) -> int:
        """The store time of the last indexed record; 0 for none."""
        return self.files[-1].end_ms if self.files else 0

    def put_many(
        self, hashes: Sequence[int], positions: Sequence[int], times: Sequence[int]
    ) -> int:
        """Add keys: hashes, positions of their records, store times. Gives how many were added.

        Keys are added in order: the rest can be given again later.
        """
        done = 0
        try:
            while done < len(hashes):
                if not self.files or self.files[-1].is_full:
                    self.files.append(self._next_file(times[done]))
                done += self.files[-1].put_many(hashes[done:], positions[done:], times[done:])
                self._waits_for_room = False
        except StoreFull as error:
            if not self._waits_for_room:
                log.warning("the key index waits for room: %s", error)
            self._waits_for_room = True
        return done

    def find(self, key_hash: int, begin_ms: int) -> Iterator[int]:
        """Positions of records that may have a key of that hash, newest first."""
        for file in reversed(self.files):
            for position, about_ms in file.find(key_hash):
                if about_ms + 1000 > begin_ms:
                    yield position
            if file.begin_ms < begin_ms:
                return

    def drop_before(self, position: int) -> list[str]:
        """Delete the files whose records all lie in front of a position; never the newest."""
        dropped: list[str] = []
        while len(self.files) > 1 and self.files[0].end_position < position:
            dropped.append(str(self.files[0].file.path))
            self.drop(self.files[0])
        return dropped

    def drop(self, file: IndexFile) -> None:
        """Delete a file."""
        self.files.remove(file)
        self._pool.drop(file.file)
        self._pool.files.remove(file.file.path)

    def cut(self, position: int) -> None:
        """Remove the entries of records at or behind a position."""
        for file in reversed(list(self.files)):
            count = file.first_at(position)
            if count == 1:
                self.drop(file)
            elif count < file.next:
                if not file.rewind(count):
                    file.rebuild_slots()
                return

    def mark_at(self, position: int, indexed: int) -> IndexMark:
        """How far the index will be once it is cut at a position."""
        for file in reversed(self.files):
            if (count := file.first_at(position)) > 1:
                seconds = file.entry(count - 1)[2]
                return IndexMark(indexed, file.name, count, file.begin_ms + seconds * 1000)
        return IndexMark(indexed, 0, 0, 0)

    def mark(self, indexed: int) -> IndexMark:
        """How far the index is now."""
        newest = self.files[-1] if self.files else None
        name, count = (newest.name, newest.next) if newest else (0, 0)
        return IndexMark(indexed, name, count, self.end_ms)

    def _next_file(self, stored_ms: int) -> IndexFile:
        name = index_name(stored_ms)
        if self.files:
            name = f"{max(int(name), self.files[-1].name + 1):017d}"
        made = self._file(self.directory / name)
        made.file.create()
        return made

    def _file(self, path: Path) -> IndexFile:
        mapped = MappedFile(self._pool, path, 0, self.file_size)
        return IndexFile(mapped, self._config)
