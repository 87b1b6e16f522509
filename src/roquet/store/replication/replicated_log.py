"""ReplicatedLog: the log as bytes: read for replicas, appended from a master, dispatched and cut.

    begin ─── whole records, in their queues ───┤ dispatched ─── bytes as they came ───┤ end

A master's log ends where it is dispatched. On a replica bytes come first, cut anywhere; a step of
`dispatch` finds the records in them. Messages of its own a log takes only when nothing is left to
be dispatched.
"""

from collections.abc import Callable, Mapping
from typing import Final

from roquet.model.errors import StoreError, StoreFull
from roquet.store.commit_log.log import CommitLog
from roquet.store.config import StoreConfig
from roquet.store.consume_queue.queue_ends import QueueName
from roquet.store.reading.reader import RecordReader
from roquet.store.recovery.open_directory import OpenDirectory
from roquet.store.recovery.scrub import Scrub
from roquet.store.replication.queue_builder import Arrival as Arrival
from roquet.store.replication.queue_builder import QueueBuilder
from roquet.store.replication.queue_builder import QueueOffsetMismatch as QueueOffsetMismatch
from roquet.store.replication.truncation import Truncation, is_boundary, last_record, whole_end

DISPATCH_MAX: Final = 8_192
"""Records of one step: a few milliseconds."""


class ReplicatedLog:
    """The bytes of a store's log, for replication."""

    def __init__(
        self,
        commit_log: CommitLog,
        builder: QueueBuilder,
        truncation: Truncation,
        refusal: Callable[[], StoreError | None],
    ) -> None:
        self._log = commit_log
        self._builder = builder
        self._truncation = truncation
        self._refusal = refusal

    @property
    def begin(self) -> int:
        """The first position that the log holds; its end if it is empty."""
        return max(self._log.begin, self._log.origin)

    @property
    def end(self) -> int:
        """The position of the next byte."""
        return self._log.end

    @property
    def file_size(self) -> int:
        """Size of each file in bytes; no append crosses from one into the next."""
        return self._log.segments.file_size

    @property
    def dispatched(self) -> int:
        """Records in front of it are in their queues; the log's end on a master."""
        return self._log.dispatched

    def read(self, position: int, size_max: int) -> memoryview:
        """Bytes from a position on as they lie in its file, up to the end of file or log.

        Empty at the log's end. A blank at a file's end is bytes like any. Raises StoreError for a
        position that the log does not hold.
        """
        if not self.begin <= position <= self.end:
            raise StoreError(
                f"the log holds positions {self.begin} to {self.end}, and not {position}"
            )
        return self._log.file_bytes(position, size_max)

    def last_record(self, stop: int | None = None) -> tuple[int, bytes] | None:
        """Position and bytes of the last whole record in front of `stop`; None without one.

        `stop` is a position at which the log may be cut; by default, and at most, it is the end.
        """
        stop = self.end if stop is None else min(stop, self.end)
        known = self._log.last if stop == self.end else self._truncation.last_queued(stop)
        found = last_record(self._log, known, stop)
        return found and (found[0], bytes(self.read(*found)))

    def append(self, position: int, data: bytes | memoryview) -> None:
        """Append bytes of the master's log, which may begin and end inside a record.

        An empty log begins at any position. Raises StoreError, with nothing written, for another
        position than the end, bytes that cross a file's end, and when the store takes no more
        (StoreFull, StoreFailed).
        """
        self._check(is_append=True)
        end, file_size = self.end, self.file_size
        is_empty = self.begin == end
        if position < 0 or (position != end and not is_empty):
            raise StoreError(f"the log ends at {end}, and the bytes to append are from {position}")
        if position % file_size + len(data) > file_size:
            raise StoreError(
                f"{len(data)} bytes from {position} do not fit into one file of {file_size} bytes:"
                " files of a replica's log are as long as its master's (mappedFileSizeCommitLog)"
            )
        if not len(data):
            return
        if is_empty and (position != end or not self._log.segments.files):
            self._truncation.begin_at(position)
        self._log.append_bytes(data)

    def dispatch(self, count_max: int = DISPATCH_MAX) -> list[Arrival]:
        """Write queue entries for up to `count_max` whole records in front of the end.

        Gives what came into which queue; call it again while `dispatched` grows. The key index
        follows with `Store.dispatch`. Raises QueueOffsetMismatch for a record that does not follow
        the last one of its queue, and StoreFull; then everything in front of it is done.
        """
        self._check()
        return self._builder.step(count_max)

    def cut_torn(self) -> None:
        """Drop the part of a record at the log's end that a lost connection has left.

        Whole records that are not dispatched yet stay.
        """
        self._check()
        end = whole_end(self._log)
        if end < self.end:
            self._truncation.run(end, is_torn=True)

    def ends_at(self, position: int) -> Mapping[QueueName, int]:
        """Where a cut at a position will make each queue end, as an offset."""
        return self._truncation.ends_at(position)

    def truncate(self, position: int) -> None:
        """Cut the log, its queues, key index and checkpoint; durable when this returns.

        The position is the begin of a record, of a blank or of a file, or the log's end; else
        StoreError, and nothing is changed. After a crash on the way the log is the old one or the
        cut one. Messages behind the position are lost.
        """
        self._check()
        if not self.begin <= position <= self.end or not is_boundary(self._log, position):
            raise StoreError(
                f"the log cannot be cut at {position}: no record begins there in its positions"
                f" {self.begin} to {self.end}"
            )
        if position < self.end:
            self._truncation.run(position)

    def _check(self, *, is_append: bool = False) -> None:
        """Raise the reason for which the store takes nothing; a full disk only stops appends."""
        refusal = self._refusal()
        if refusal is not None and (is_append or not isinstance(refusal, StoreFull)):
            raise type(refusal)(*refusal.args)


def replicated_log(
    opened: OpenDirectory,
    config: StoreConfig,
    reader: RecordReader,
    scrub: Scrub,
    refusal: Callable[[], StoreError | None],
) -> ReplicatedLog:
    """The replicated log of an open directory; `refusal` says why the store takes nothing now."""
    builder = QueueBuilder(
        opened.log, opened.queues, opened.tombstones, reader, config.delay_levels_ms
    )
    truncation = Truncation(opened, reader, scrub)
    return ReplicatedLog(opened.log, builder, truncation, refusal)
