"""Index check: compares the key index with the log, and rebuilds it from where it is damaged.

    log      ─ record 1 ─ record 2 ─ record 3 ─ …      each key has its entry, in this order
    entries  ─ 1 ─ 2 ─ ─ ─ 3 ─ ─ ─ ─ 4 ─ 5 ─ …         each leads to the one before it in its slot
    slots    each leads to its last entry              compared at the end of a file's entries

The newest entry is checked when a store opens, the rest by the scrub. Entries without a matching
record are no damage: Apache's broker indexes tags as well.
"""

from array import array
from typing import Final

from roquet.log_records import logger
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.store.commit_log.log import CommitLog
from roquet.store.key_index.dispatch import Dispatcher, hash_key, hash_keys
from roquet.store.key_index.index import IndexFile, KeyIndex, seconds_since
from roquet.wire.records.partial_decode import PartialRecord, property_value

log = logger(__name__)

GAP_MAX: Final = 1_000
"""Records behind the newest entry that are examined when a store opens: few records have no
keys."""

ENTRIES_MAX: Final = 10_000
"""Entries examined in one go, 10 ms, before the caller may serve others."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)


def index_hashes(record: PartialRecord) -> set[int]:
    """Hashes of a record's keys; empty for a record that cannot be indexed."""
    if record[3] & TRANSACTION_MASK == _ROLLBACK:
        return set()
    try:
        return {*hash_keys([record[5]], [record[6]])[0]}
    except Exception:  # the dispatcher reports it when it indexes it
        return set()


def drop_misleading_files(index: KeyIndex, commit_log: CommitLog) -> None:
    """Drop files that end behind the log, and the newest if its last entry is wrong."""
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
    record = commit_log.skim_at(position, check_crc=False)
    if record is None:  # a hole: the log is what is damaged
        return None
    if key_hash not in index_hashes(record) | tag_hashes(record):
        return "its last entry leads to a record without its key"
    return None


def tag_hashes(record: PartialRecord) -> set[int]:
    """The hash under which Apache RocketMQ 5.5 indexes a record's tag; empty without a tag."""
    tag = property_value(record[6], b"TAGS")
    return {hash_key(record[5], b"T#" + tag)} if tag else set()


def lacks_keys(index: KeyIndex, commit_log: CommitLog, until: int) -> bool:
    """Whether a record between the newest entry and `until` has keys that are not indexed."""
    begin = max(index.end_position, commit_log.begin)
    walk = commit_log.walk(begin, until, commit_log.end, check_crc=False)
    for count, (_, position, record) in enumerate(walk):
        is_known = position == index.end_position and index.files
        if not is_known and index_hashes(record):
            return True
        if count >= GAP_MAX:
            break
    return False


def _drop_from(index: KeyIndex, file: IndexFile, fault: str) -> None:
    log.warning("%s is damaged, %s: the index is rebuilt from there", file.file.path, fault)
    for dropped in index.files[index.files.index(file) :]:
        index.drop(dropped)


class IndexCheck:
    """Walks the index in parallel with a walk over the log."""

    def __init__(self, index: KeyIndex, dispatcher: Dispatcher) -> None:
        self._index = index
        self._dispatcher = dispatcher
        self._until = dispatcher.position
        """Records from here on are indexed by this process."""
        self._file: IndexFile | None = None
        self._last = array("i")
        """The last entry so far of each slot."""
        self._number = 1
        """The next entry to be examined."""
        self._wanted: tuple[int, int, set[int]] | None = None
        """The record whose entries are searched: position, store time, hashes still missing."""
        self.is_over = False
        """Whether the whole index has been compared."""

    def restarted(self) -> "IndexCheck":
        """A check that begins again, up to where the index is now."""
        return IndexCheck(self._index, self._dispatcher)

    def run(self, commit_log: CommitLog) -> None:
        """Compare the whole index at once, before it is first used, and rebuild damaged parts."""
        end, indexed, is_done = commit_log.end, self._dispatcher.position, False
        for _, position, record in commit_log.walk(commit_log.begin, end, end, check_crc=False):
            is_done = self.compare(position, record)
            while not is_done:
                is_done = self.resume()
        while not self.is_over:
            self.finish()
        while self._dispatcher.position < indexed and self._dispatcher.step(ENTRIES_MAX):
            pass

    def compare(self, position: int, record: PartialRecord) -> bool:
        """Search a record's entries; False: call `resume` before the next record."""
        assert self._wanted is None, "one record at a time"
        if self.is_over or position >= self._until:
            return True
        if hashes := index_hashes(record):
            self._wanted = position, record[4], hashes
        return self.resume()

    def resume(self, count_max: int = ENTRIES_MAX) -> bool:
        """Search the wanted record's entries among the next `count_max`; True when done."""
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
        """Examine entries behind the last record; True when all were examined."""
        while not self.is_over and count_max > 0:
            if (entry := self._peek()) is None:
                break
            self._take(entry)
            count_max -= 1
        return self.is_over

    def _peek(self) -> tuple[int, int, int, int] | None:
        """The next entry, of the next file if this one has no more; None when it is over."""
        while not self.is_over:
            file = self._file
            if file is not None and file not in self._index.files:  # retention has deleted it
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
        """End the check: a record whose entries are still missing is indexed again."""
        if self._wanted is not None:
            log.warning("the key index lacks records from %d on: they are indexed", self._wanted[0])
            self._dispatcher.restart()
        self._wanted, self.is_over = None, True

    def _ended(self, file: IndexFile) -> bool:
        """Whether a file is sound, once all its entries were examined."""
        if file.next > 1 and file.entry(file.next - 1)[1] != file.end_position:
            return self._fault(file, "its last entry is not the one that it names")
        if not file.leads_to(self._last):
            return self._fault(file, "its slots do not lead to their last entries")
        return True

    def _take(self, entry: tuple[int, int, int, int]) -> None:
        """Check one entry: its link to the entry before it, and whether it is wanted."""
        file, number = self._file, self._number
        assert file is not None, "an entry belongs to a file"
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
        """Report that one of the wanted record's keys has no entry."""
        assert self._wanted is not None
        assert self._file is not None
        self._fault(self._file, f"it lacks the message at {self._wanted[0]}")

    def _fault(self, file: IndexFile, fault: str) -> bool:
        _drop_from(self._index, file, fault)
        self._dispatcher.restart()
        self._wanted, self.is_over = None, True
        return False
