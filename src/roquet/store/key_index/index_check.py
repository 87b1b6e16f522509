"""Index check: the key index compared with the log, and made again from where it is damaged.

    log      ─ record 1 ─ record 2 ─ record 3 ─ …      each key has its entry, in this order
    entries  ─ 1 ─ 2 ─ ─ ─ 3 ─ ─ ─ ─ 4 ─ 5 ─ …         each leads to the one before it in its slot
    slots    each leads to its last entry              compared when a file's entries are through

The newest entry is looked at when a store opens, the rest by the scrub. Entries that no record asks
for are no damage: a genuine broker indexes tags as well.
"""

from array import array
from typing import Final

from roquet.log_records import logger
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.store.commit_log.log import CommitLog
from roquet.store.key_index.dispatch import Dispatcher
from roquet.store.key_index.hasher import KeyHasher
from roquet.store.key_index.index import IndexFile, KeyIndex, seconds_since
from roquet.wire.records.partial_decode import PartialRecord, index_keys, property_value

log = logger(__name__)

GAP_MAX: Final = 1_000
"""Records behind the newest entry that are looked at when a store opens: few have no keys."""

ENTRIES_MAX: Final = 10_000
"""Entries looked at in one go, 10 ms, before others have their turn."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)


def index_hashes(hasher: KeyHasher, found: PartialRecord) -> set[int]:
    """Hashes of the keys by which a record is found; empty for one that cannot be indexed."""
    if found[3] & TRANSACTION_MASK == _ROLLBACK:
        return set()
    try:
        return {hasher(found[5], key) for key in index_keys(found[6])}
    except Exception:  # set aside by who indexes it
        return set()


def drop_misleading_files(index: KeyIndex, commit_log: CommitLog) -> None:
    """Drop files that end behind the log, and the newest if its last entry leads elsewhere."""
    for file in index.files:
        if file.end_position >= commit_log.end and file.next > 1:
            _drop_from(index, file, "it ends behind the log")
            return
    if index.files and (fault := _fault_of_end(index.files[-1], commit_log)):
        _drop_from(index, index.files[-1], fault)


def _fault_of_end(file: IndexFile, commit_log: CommitLog) -> str | None:
    if file.next == 1:
        return None
    key_hash, position, _, _ = file.entry(file.next - 1)
    if position != file.end_position:
        return "its last entry is not the one that it names"
    if position < commit_log.begin:
        return None
    found = commit_log.skim_at(position, check_crc=False)
    if found is None:  # a hole: the log is what is damaged
        return None
    hasher = KeyHasher()
    if key_hash not in index_hashes(hasher, found) | tag_hashes(hasher, found):
        return "its last entry leads to a record without its key"
    return None


def tag_hashes(hasher: KeyHasher, found: PartialRecord) -> set[int]:
    """The hash by which Apache RocketMQ 5.5 finds a record by its tag, if it has one."""
    tag = property_value(found[6], b"TAGS")
    return {hasher(found[5], b"T#" + tag)} if tag else set()


def lacks_keys(index: KeyIndex, commit_log: CommitLog, until: int) -> bool:
    """Whether a record between the newest entry and a position has keys that are not indexed."""
    hasher, begin = KeyHasher(), max(index.end_position, commit_log.begin)
    walk = commit_log.walk(begin, until, commit_log.end, check_crc=False)
    for count, (_, position, found) in enumerate(walk):
        is_known = position == index.end_position and index.files
        if not is_known and index_hashes(hasher, found):
            return True
        if count >= GAP_MAX:
            break
    return False


def _drop_from(index: KeyIndex, file: IndexFile, fault: str) -> None:
    log.warning("%s is damaged, %s: the index is made again from there", file.file.path, fault)
    for gone in index.files[index.files.index(file) :]:
        index.drop(gone)


class IndexCheck:
    """One walk over the index beside one over the log."""

    def __init__(self, index: KeyIndex, dispatcher: Dispatcher) -> None:
        self._index = index
        self._dispatcher = dispatcher
        self._hash = KeyHasher()
        self._until = dispatcher.position
        """Records from here on are indexed by this process."""
        self._file: IndexFile | None = None
        self._last = array("i")
        """By slot its last entry so far."""
        self._number = 1
        """The next entry to be looked at."""
        self._wanted: tuple[int, int, set[int]] | None = None
        """A record whose entries are looked for: position, store time, hashes still missing."""
        self.is_over = False
        """Whether nothing is left to be compared."""

    def run(self, commit_log: CommitLog) -> None:
        """Compare the whole index at once, before it is first used, and mend what is damaged."""
        end, indexed, is_done = commit_log.end, self._dispatcher.position, False
        for _, position, found in commit_log.walk(commit_log.begin, end, end, check_crc=False):
            is_done = self.compare(position, found)
            while not is_done:
                is_done = self.go_on()
        while not self.is_over:
            self.finish()
        while self._dispatcher.position < indexed and self._dispatcher.step(ENTRIES_MAX):
            pass

    def compare(self, position: int, found: PartialRecord) -> bool:
        """Look for a record's entries; False: `go_on` before the next record comes."""
        assert self._wanted is None, "one record after the other"
        if self.is_over or position >= self._until:
            return True
        if hashes := index_hashes(self._hash, found):
            self._wanted = position, found[4], hashes
        return self.go_on()

    def go_on(self, count_max: int = ENTRIES_MAX) -> bool:
        """Look for what is wanted among so many entries; whether nothing is wanted any more."""
        while self._wanted is not None and count_max > 0:
            if (entry := self._peek()) is None:
                break
            if entry[1] > self._wanted[0]:
                self._miss()
                break
            self._take(entry)
            count_max -= 1
        return self._wanted is None

    def finish(self, count_max: int = ENTRIES_MAX) -> bool:
        """Look at so many entries behind the last record; whether all were looked at."""
        while not self.is_over and count_max > 0:
            if (entry := self._peek()) is None:
                break
            self._take(entry)
            count_max -= 1
        return self.is_over

    def _peek(self) -> tuple[int, int, int, int] | None:
        """The next entry, of the next file where one is through; None when it is over."""
        while not self.is_over:
            file = self._file
            if file is not None and file not in self._index.files:  # retention was quicker
                file = self._file = None
            if file is not None and self._number < file.next:
                return file.entry(self._number)
            if file is None or self._ended(file):
                self._begin_next(file)
        return None

    def _begin_next(self, before: IndexFile | None) -> None:
        files = self._index.files
        number = 0 if before is None else files.index(before) + 1
        if number >= len(files):
            self._end()
            return
        self._file, self._number = files[number], 1
        self._last = array("i", bytes(4 * self._file.slots))

    def _end(self) -> None:
        """Nothing is left: a record that still misses entries is one that the index lacks."""
        if self._wanted is not None:
            log.warning("the key index lacks records from %d on: they are indexed", self._wanted[0])
            self._dispatcher.restart()
        self._wanted, self.is_over = None, True

    def _ended(self, file: IndexFile) -> bool:
        """Whether a file whose entries are through is as it must be."""
        if file.next > 1 and file.entry(file.next - 1)[1] != file.end_position:
            return self._fault(file, "its last entry is not the one that it names")
        if not file.leads_to(self._last):
            return self._fault(file, "its slots do not lead to their last entries")
        return True

    def _take(self, entry: tuple[int, int, int, int]) -> None:
        """One entry: its place in its chain, and whose it is."""
        file, number = self._file, self._number
        assert file is not None, "an entry is of a file"
        key_hash, position, seconds, before = entry
        slot = key_hash % file.slots
        if key_hash < 0 or before != self._last[slot]:
            self._fault(file, f"entry {number} does not lead to the one before it")
            return
        self._last[slot] = number
        self._number = number + 1
        if self._wanted is None or position != self._wanted[0]:
            return
        _, stored_ms, hashes = self._wanted
        if seconds != seconds_since(file.begin_ms, stored_ms):
            self._fault(file, f"entry {number} has another time than its message")
            return
        hashes.discard(key_hash)
        if not hashes:
            self._wanted = None

    def _miss(self) -> None:
        """The entries of a record are through, and one of its keys is missing."""
        assert self._wanted is not None
        assert self._file is not None
        self._fault(self._file, f"it lacks the message at {self._wanted[0]}")

    def _fault(self, file: IndexFile, fault: str) -> bool:
        _drop_from(self._index, file, fault)
        self._dispatcher.restart()
        self._wanted, self.is_over = None, True
        return False
