"""Flusher: makes log, queues, index and checkpoint durable, in this order.

    log ──▶ queues ──▶ index ──▶ checkpoint        always in this order

The log is flushed at once or for a group of messages, the rest on a timer. The checkpoint names a
position in front of which all three are durable: a scan after a crash begins there. A flush may run
in another thread while records are appended: it works on a snapshot and touches nothing else.

A failed flush is final. The system may have dropped the bytes that it could not write, so that the
next flush succeeds and proves nothing: from then on this process calls nothing durable any more.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreError, StoreFailed, StoreFull
from roquet.store.commit_log.log import CommitLog
from roquet.store.config import MIB
from roquet.store.consume_queue.queue_ends import FILE_NAME as ENDS_NAME
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.filesystem.mapped_file import PAGE_SIZE, MappedFile, MapPool
from roquet.store.key_index.index import IndexMark, KeyIndex
from roquet.store.layout import (
    BEGIN_AT,
    CHECKPOINT_SIZE,
    CheckpointNote,
    StoreCheckpoint,
    pack_begin,
    pack_checkpoint,
)

log = logger(__name__)

LOG_RESIDENT_SIZE: Final = 16 * MIB
"""Bytes of the log's end that stay in memory: consumers read them at once."""

LARGE_FILE_SIZE: Final = 16 * MIB
"""Files from this size on release pages between two checkpoints as well. A queue file would release
a page or two, which are needed again at once."""

WHOLE_DISK_FILES_MIN: Final = 1_000
"""With this many files, the whole disk is synced instead of one file after the other."""


class FlushTask:
    """A flush of a snapshot: call `write` in the writer's thread, then the task in any thread.

    A broker writes a few files at a time and serves in between: another thread that wrote to
    thousands would take the lock of Python's threads from it each time.
    """

    def __init__(
        self,
        waiting: list[MappedFile],
        write: Callable[[MappedFile], None],
        run: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self._write = write
        self._run = run

    def write(self, count_max: int = sys.maxsize) -> bool:
        """Write the buffers of up to `count_max` unmapped files; True if there are more."""
        for _ in range(min(count_max, len(self._waiting))):
            self._write(self._waiting.pop())
        return bool(self._waiting)

    def run_here(self) -> None:
        """Write and make the snapshot durable in this thread."""
        self.write()
        self()

    def __call__(self) -> None:
        """Make the snapshot durable."""
        if self._waiting:  # no assert: it could be switched off, and the checkpoint would lie
            raise RuntimeError("files have buffered bytes that were not written")
        self._run()


class Flusher:
    """Makes a store durable, and knows how far it is."""

    def __init__(self, directory: Path, pool: MapPool, commit_log: CommitLog, durable: int) -> None:
        self._directory = directory
        self._pool = pool
        self._log = commit_log
        self._checkpoint = directory / "checkpoint"
        self._page: memoryview | None = None
        self._disk = pool.files.disk_sync(directory)
        self._unflushed: list[MappedFile] = []
        # Linux reports a failed write once. A thread that syncs the same bytes a moment later
        # gets no error: it waits until the first one has noted the failure.
        self._failure_lock = RLock()
        self._page_lock = Lock()
        # Taken before the others. A flush must not end with a checkpoint of a log that was cut.
        self._cut_lock = Lock()
        self._cuts = 0
        self.position = durable
        """The log in front of it is durable."""
        self._made_ms = 0
        self.checkpointed = 0
        """The position in the last checkpoint."""
        self.has_note = False
        """Whether the last checkpoint is one of Roquet's."""
        self.log_begin = commit_log.begin
        """The log's begin, as the checkpoint names it or will name it."""
        self.confirmed: int | None = None
        """Position up to which consumers may read; None: no position was ever set."""
        self.failure: StoreFailed | None = None
        """Why the store must not take more: the disk lost bytes."""
        self.on_failure: Callable[[StoreFailed], None] = lambda _: None
        """Called with the first failure at once, in the thread that met it."""

    def flush_log(self) -> int:
        """Make the log durable up to its present end; may run in another thread.

        Raises StoreFailed when the disk fails, and always after that.
        """
        with self._failure_lock:
            end, start = self._log.end, self.position
            if start >= end:
                return start
            self.check()
            files = self._log.segments.files
            self._sync([f for f in files if f.start < end and f.start + f.size > start])
            self.check()
            self.position = end
            return end

    def check(self) -> None:
        """Raise StoreFailed if the disk has ever failed."""
        if (failure := self.failure) is not None:
            raise StoreFailed(*failure.args)

    def fail(self, text: str) -> StoreFailed:
        """Record that the disk failed, for good, and report it; gives the error."""
        failure = StoreFailed(
            f"{text}: nothing more is accepted or called durable; look at the disk, then restart"
        )
        with self._failure_lock:
            if self.failure is None:
                self.failure = failure
                self.on_failure(failure)
        return failure

    def flush_task(
        self, queues: ConsumeQueues, index: KeyIndex, indexed: int, now_ms: int
    ) -> FlushTask:
        """A flush of everything written until now."""
        checkpoint = self._checkpoint_at(
            self._log.dispatched, self._log.last, index.mark(indexed), queues.file_size, now_ms
        )
        self._made_ms, cuts = now_ms, self._cuts
        ends = queues.packed_ends(self._log.begin, checkpoint.flushed_position)
        # Files of an earlier task that was given up are still to be flushed.
        dirty = list(dict.fromkeys([*self._unflushed, *self._pool.take_dirty()]))
        self._unflushed = dirty

        def run() -> None:
            self.check()
            self.flush_log()
            self._sync_all(dirty)
            with self._cut_lock:
                if cuts != self._cuts:
                    return
                try:
                    self._save_with_ends(checkpoint, ends)
                except StoreFull as error:
                    log.warning("the checkpoint waits for room: %s", error)
                    return
            self._release_pages(dirty, checkpoint.flushed_position - LOG_RESIDENT_SIZE)
            if self._unflushed is dirty:
                self._unflushed = []

        return FlushTask([file for file in dirty if file.unwritten], self._write, run)

    def release_task(self) -> Callable[[], None]:
        """Work that releases written pages from memory; may run in another thread.

        Pages that are not durable yet stay with the system; a look at them maps them again.
        """
        dirty = [file for file in self._pool.dirty if file.size >= LARGE_FILE_SIZE]
        position = self.position - LOG_RESIDENT_SIZE
        return lambda: self._release_pages(dirty, position)

    def _release_pages(self, files: Iterable[MappedFile], position: int) -> None:
        """Release durable pages from this process; the system caches them while it can.

        Otherwise a broker would be as large as all that it has written since its last new file.
        """
        release_pages = self._pool.files.release_pages
        for file in files:
            if (view := file.mapped_view) is not None:
                release_pages(view, file.size)
        tail = self._log.segments.file_at(position)
        if tail is not None and (view := tail.mapped_view) is not None:
            release_pages(view, (position - tail.start) // PAGE_SIZE * PAGE_SIZE)

    def lower(
        self,
        position: int,
        last_record: int,
        ends: Callable[[], bytes],
        mark: IndexMark,
        queue_file_size: int,
        cut_log: Callable[[], None],
    ) -> None:
        """Lower the checkpoint to a position, if it is behind it, and cut the log there.

        `ends` packs the file of queue ends: asked only if the checkpoint is lowered. Flushes in
        other threads end before, or leave the checkpoint alone. Raises StoreFull with nothing
        changed, and StoreFailed.
        """
        with self._cut_lock, self._failure_lock:
            self.check()
            if self.checkpointed > position:
                checkpoint = self._checkpoint_at(
                    position, last_record, mark, queue_file_size, self._made_ms
                )
                self._save_with_ends(checkpoint, ends())
            self._cuts += 1
            try:
                cut_log()
            except (StoreError, OSError) as error:
                raise self.fail(f"the log could not be cut at {position} ({error})") from error
            self.position = min(self.position, position)

    def _checkpoint_at(
        self, position: int, last_record: int, mark: IndexMark, queue_file_size: int, now_ms: int
    ) -> StoreCheckpoint:
        """The checkpoint that is true once everything in front of a position is durable."""
        commit_log, confirmed = self._log, self.confirmed
        stored_ms = (commit_log.stored_ms(last_record) if last_record >= 0 else 0) or 0
        return StoreCheckpoint(
            log_ms=stored_ms,
            queues_ms=stored_ms,
            index_ms=mark.end_ms,
            flushed_position=position,
            confirmed_position=position if confirmed is None else min(confirmed, position),
            note=CheckpointNote(
                made_ms=now_ms,
                position=position,
                last_record=last_record,
                index_position=mark.position,
                index_name=mark.name,
                index_count=mark.count,
                log_file_size=commit_log.segments.file_size,
                queue_file_size=queue_file_size,
            ),
        )

    def _save_with_ends(self, checkpoint: StoreCheckpoint, ends: bytes) -> None:
        """Save a checkpoint, and the ends of its queues before. Raises StoreFull."""
        # Before the checkpoint: it must never be ahead of the recorded ends of its queues.
        self._replace(self._directory / ENDS_NAME, ends)
        self.check()
        self._save(checkpoint)
        self.checkpointed, self.has_note = checkpoint.flushed_position, True

    def _save(self, checkpoint: StoreCheckpoint) -> None:
        with self._page_lock:
            page = self._obtain_page()
            page[:] = pack_checkpoint(msgspec.structs.replace(checkpoint, log_begin=self.log_begin))
            self._sync_path(self._checkpoint, page)

    def note_begin(self, position: int) -> None:
        """Make the log's new begin durable, before the files in front of it are deleted.

        Otherwise files that somebody else removed could not be told from those. Raises StoreFailed.
        """
        with self._page_lock:
            self.log_begin, data = position, pack_begin(position)
            with suppress(StoreFull):  # the page exists already, unless the file was truncated
                page = self._obtain_page()
                page[BEGIN_AT : BEGIN_AT + len(data)] = data
                self._sync_path(self._checkpoint, page)

    def _obtain_page(self) -> memoryview:
        files = self._pool.files
        if self._page is None:
            files.create(self._checkpoint, CHECKPOINT_SIZE)
            files.allocate(self._checkpoint, 0, CHECKPOINT_SIZE)
            self._sync_path(self._directory, None)
            self._page = files.map(self._checkpoint, CHECKPOINT_SIZE)
        return self._page

    def close(self) -> None:
        """Stop watching the disk."""
        if self._disk is not None:
            self._disk.close()

    def _write(self, file: MappedFile) -> None:
        """Write a file's buffer; the file may be mapped meanwhile, or deleted."""
        if file.unwritten:
            with suppress(FileNotFoundError), self._recording_failure(file.path):
                file.write_buffered()

    def _sync_all(self, files: Sequence[MappedFile]) -> None:
        if self._disk is not None and len(files) >= WHOLE_DISK_FILES_MIN and self._disk.sync():
            for file in files:
                file.is_new = False
        else:
            self._sync(files)

    def _sync(self, files: Iterable[MappedFile]) -> None:
        new_files: list[MappedFile] = []
        for file in files:
            with suppress(FileNotFoundError):  # retention has deleted it
                self._sync_path(file.path, file.mapped_view)
            if file.is_new:
                new_files.append(file)
        for directory in sorted(self._directories(new_files), reverse=True):
            with suppress(FileNotFoundError):
                self._sync_path(directory, None)
        # Not sooner: another thread that flushes must not take the names for durable.
        for file in new_files:
            file.is_new = False

    def _directories(self, files: Sequence[MappedFile]) -> set[Path]:
        """The directories that lead to files, from the store's own directory on."""
        directories = {self._directory} if files else set()
        for file in files:
            directory = file.path.parent
            while directory not in directories:
                directories.add(directory)
                directory = directory.parent
        return directories

    def _replace(self, path: Path, data: bytes) -> None:
        """Replace a file in the store's own directory, whose names other files rely on as well."""
        with self._failure_lock:
            try:
                self._pool.files.replace(path, data)
            except StoreFull:
                raise
            except StoreError as error:
                raise self.fail(str(error)) from error

    def _sync_path(self, path: Path, view: memoryview | None) -> None:
        # Two threads may sync the store's own directory at once.
        with (
            self._failure_lock if path == self._directory else nullcontext(),
            self._recording_failure(path),
        ):
            self._pool.files.sync(path, view)

    @contextmanager
    def _recording_failure(self, path: Path) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.fail(f"{path} could not be made durable ({error})") from error
