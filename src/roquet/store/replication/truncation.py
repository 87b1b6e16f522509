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
from roquet.store.consume_queue.queue_ends import QueueEnd, QueueName, pack_end, pack_ends
from roquet.store.reading.reader import RecordReader
from roquet.store.recovery.open_directory import OpenDirectory
from roquet.store.recovery.scrub import Scrub
from roquet.store.replication.boundaries import has_blank_at

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
        """The file of queue ends for a log that ends at a position."""
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
        """Where each queue will end."""
        ends: dict[QueueName, QueueEnd] = {}
        for name in self._queues.names():
            was_loaded = name in self._queues.loaded
            queue = self._queues.get(*name)
            assert queue is not None
            begin, end = queue.begin, queue.offset_of(position)
            ends[name] = QueueEnd(begin, end, queue.entry(end - 1)[0] if end > begin else -1)
            if not was_loaded:
                self._queues.unload(queue)
        return ends

    def _cut_rest(self, position: int, ends: dict[QueueName, QueueEnd]) -> None:
        for name, known in ends.items():
            was_loaded = name in self._queues.loaded
            queue = self._queues.get(*name)
            assert queue is not None
            if queue.end > known.end:
                queue.truncate(known.end)
                self._queues.ends.forget(name)
            if not was_loaded:
                self._queues.unload(queue)
        self._index.cut(position)
        self._dispatcher.restart()
        self._tombstones.limit(position)
        self._reader.forget_from(position)
        self._scrub.limit(position)
