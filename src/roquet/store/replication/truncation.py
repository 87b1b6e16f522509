"""Truncation: log, queues, key index and checkpoint cut at one position.

    1. checkpoint     lowered to the position, if it is behind it: durable
    2. first record   behind the position zeroed: durable; from here on the log is the cut one
    3. log            later files deleted, the rest zeroed: durable
    4. queues, index  entries that lead behind the position removed

After a crash between two steps recovery reads the log from the checkpoint on, and removes entries
without a record. Before step 2 it finds the old log, later the cut one.
"""

from collections.abc import Mapping
from functools import partial

from roquet.log_records import logger
from roquet.model.errors import StoreError, StoreFailed
from roquet.store.commit_log.log import BLANK_SIZE, CommitLog
from roquet.store.consume_queue.queue_ends import QueueEnd, QueueName, pack_end, pack_ends
from roquet.store.reading.reader import RecordReader
from roquet.store.recovery.open_directory import OpenDirectory
from roquet.store.recovery.scrub import Scrub
from roquet.wire.records.record import MAGIC_BLANK, TOTAL_AND_MAGIC


def is_boundary(commit_log: CommitLog, position: int) -> bool:
    """Whether a record, a blank or a file begins at a position, or the log ends there."""
    if position == commit_log.end or position % commit_log.segments.file_size == 0:
        return True
    record = commit_log.skim_at(position, check_crc=False)
    if record is not None and position + record[0] <= commit_log.end:
        return True
    return has_blank_at(commit_log, position) or position == whole_end(commit_log)


def has_blank_at(commit_log: CommitLog, position: int) -> bool:
    """Whether a blank begins at a position and fills the rest of the file."""
    file = commit_log.segments.file_at(position)
    if file is None or position + BLANK_SIZE > min(commit_log.end, file.start + file.size):
        return False
    at = position - file.start
    return TOTAL_AND_MAGIC.unpack_from(file.view(), at) == (file.size - at, MAGIC_BLANK)


def whole_end(commit_log: CommitLog) -> int:
    """The position behind the last whole record or blank; the log's end unless that is torn."""
    stop, end = commit_log.dispatched, commit_log.end
    for _, position, record in commit_log.walk(stop, end, end, check_crc=False):
        if position + record[0] > end:  # its last bytes are still zeros
            break
        stop = position + record[0]
    return commit_log.behind_blank(stop, end)


def last_record(commit_log: CommitLog, known: int, stop: int) -> tuple[int, int] | None:
    """Position and size of the last whole record in front of `stop`; None without one.

    `known` is the position of a record in front of it, the later the faster; -1 for none.
    """
    start = max(commit_log.begin, commit_log.origin, known)
    found = None
    for _, position, record in commit_log.walk(start, stop, commit_log.end, check_crc=False):
        if position + record[0] <= stop:
            found = position, record[0]
    return found


log = logger(__name__)

ALL_POSITIONS = 1 << 62


class Truncation:
    """Cuts a store, or begins an empty one elsewhere. A failed cut is a failure of the store."""

    def __init__(self, opened: OpenDirectory, reader: RecordReader, scrub: Scrub) -> None:
        self._log = opened.log
        self._queues = opened.queues
        self._index = opened.index
        self._dispatcher = opened.dispatcher
        self._flusher = opened.flusher
        self._tombstones = opened.tombstones
        self._reader = reader
        self._scrub = scrub

    def begin_at(self, position: int) -> None:
        """Begin the log, which is empty, at another position: nothing of a former one stays.

        Raises StoreFull: then the log is still empty. Raises StoreFailed, for good.
        """
        self._flusher.note_begin(position)
        try:
            for name in self._queues.names():
                self._queues.clear(name)
            self._index.cut(0)
            self._tombstones.limit(0)
        except (StoreError, OSError) as error:
            raise self._failed(position, error) from error
        self._log.begin_at(position)
        self._log.last, self._log.checked_from = -1, position
        self._flusher.position = position
        self._dispatcher.restart()
        log.info("the log begins at %d", position)

    def run(self, position: int, *, is_torn: bool = False) -> None:
        """Cut at a boundary. Raises StoreFailed, for good, or StoreFull with nothing changed.

        With `is_torn` only part of a record is cut off, of which no queue has an entry: none is
        looked at.
        """
        end, flusher = self._log.end, self._flusher
        ends = {} if is_torn else self._ends_at(position)
        if not flusher.has_note:
            flusher.flush_task(self._queues, self._index, self._dispatcher.position, 0).run_here()
        begin = max(self._log.begin, self._log.origin)
        last = self._log.last if is_torn else max((e.last for e in ends.values()), default=-1)
        if position > begin:
            last = max(last, begin)  # any record will do: -1 would say that the log is empty
        packed_now = partial(self._queues.packed_ends, self._log.begin, position)
        flusher.lower(
            position, last, packed_now if is_torn else partial(self._packed, position, ends),
            self._index.mark_at(position, min(self._dispatcher.position, position)),
            self._queues.file_size, lambda: self._cut_log(position, last),
        )  # fmt: skip
        try:
            self._cut_rest(position, ends)
        except (StoreError, OSError) as error:
            raise self._failed(position, error) from error
        log.warning("the log is cut from %d back to %d", end, position)

    def ends_at(self, position: int) -> dict[QueueName, int]:
        """Where a cut at a position makes each queue end; nothing is changed yet."""
        return {name: known.end for name, known in self._ends_at(position).items()}

    def last_queued(self, position: int) -> int:
        """Position of the last record in front of a position that is in its queue; -1: none is."""
        return max((known.last for known in self._ends_at(position).values()), default=-1)

    def _packed(self, position: int, ends: Mapping[QueueName, QueueEnd]) -> bytes:
        rows = [pack_end(name, known) for name, known in ends.items() if known.end]
        return pack_ends(self._log.begin, position, rows)

    def _failed(self, position: int, error: Exception) -> StoreFailed:
        return self._flusher.fail(f"the log could not be cut at {position} ({error})")

    def _cut_log(self, position: int, last: int) -> None:
        commit_log = self._log
        following = position
        if has_blank_at(commit_log, position):
            file_size = commit_log.segments.file_size
            following = (position // file_size + 1) * file_size
        commit_log.erase_head(following)
        commit_log.drop_files(position)
        commit_log.truncate(position)
        commit_log.sync_tail()
        commit_log.last = last
        commit_log.checked_from = min(commit_log.checked_from, position)
        if commit_log.raw_from is not None and commit_log.raw_from >= position:
            commit_log.raw_from = None
        commit_log.unindexed.drop_before(ALL_POSITIONS)

    def _ends_at(self, position: int) -> dict[QueueName, QueueEnd]:
        ends: dict[QueueName, QueueEnd] = {}
        for queue in self._queues.visit_all():
            begin, end = queue.begin, queue.offset_of(position)
            last = queue.entry(end - 1)[0] if end > begin else -1
            ends[queue.topic, queue.queue_id] = QueueEnd(begin, end, last)
        return ends

    def _cut_rest(self, position: int, ends: dict[QueueName, QueueEnd]) -> None:
        for name, known in ends.items():
            with self._queues.visiting(*name) as queue:
                assert queue is not None
                if queue.end > known.end:
                    queue.truncate(known.end)
                    self._queues.ends.forget(name)
        self._index.cut(position)
        self._dispatcher.restart()
        self._tombstones.limit(position)
        self._reader.forget_from(position)
        self._scrub.limit(position)
