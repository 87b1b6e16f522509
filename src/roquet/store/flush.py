"""Flusher: when bytes become durable: the log at once or for a group at once, the rest on a timer.

    log ──▶ queues ──▶ index ──▶ checkpoint        always in this order

The checkpoint names a position in front of which all three are durable: a scan after a crash
begins there. Work that waits for the disk may run in another thread while records are appended:
it is given a snapshot and touches nothing else.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from roquet.model.errors import StoreError
from roquet.store.commitlog import CommitLog
from roquet.store.config import MIB
from roquet.store.index import KeyIndex
from roquet.store.layout import CHECKPOINT_SIZE, Checkpoint, Note, pack_checkpoint
from roquet.store.mapped import PAGE_SIZE, MappedFile, MapPool

LOG_KEPT: Final = 16 * MIB
"""Of the log's end, which consumers read at once, the pages stay."""


class Flusher:
    """Makes a store durable, and remembers how far it is."""

    def __init__(self, directory: Path, pool: MapPool, commit_log: CommitLog, durable: int) -> None:
        self._directory = directory
        self._pool = pool
        self._log = commit_log
        self._checkpoint = directory / "checkpoint"
        self._page: memoryview | None = None
        self.position = durable
        """The log in front of it is durable."""
        self.failure: StoreError | None = None
        """Why the store must not take more: the disk did not keep what it was given."""

    def flush_log(self) -> int:
        """Make the log durable up to its end of now; may run in another thread."""
        end, start = self._log.end, self.position
        if start >= end:
            return start
        files = self._log.segments.files
        touched = [f for f in files if f.start < end and f.start + f.size > start]
        self._sync(touched)
        # Two threads may come here; both have synced what they say.
        self.position = max(self.position, end)
        return self.position

    def work(
        self, queue_file_size: int, index: KeyIndex, indexed: int, now_ms: int
    ) -> Callable[[], None]:
        """A snapshot of what is to be done, as something that does it, in any thread."""
        checkpoint = self._describe(queue_file_size, index, indexed, now_ms)
        dirty = self._pool.take_dirty()

        def run() -> None:
            self.flush_log()
            self._sync(dirty)
            self._save(checkpoint)
            self._let_go(dirty, checkpoint.flushed_position - LOG_KEPT)

        return run

    def letting_go(self) -> Callable[[], None]:
        """A snapshot of what was written, as something that takes it out of memory; any thread.

        What is not durable yet stays with the system: it is only mapped again when it is looked at.
        """
        dirty, position = list(self._pool.dirty), self.position - LOG_KEPT
        return lambda: self._let_go(dirty, position)

    def _let_go(self, files: Iterable[MappedFile], position: int) -> None:
        """Let pages that are on the disk leave this process; the system keeps them while it can.

        Otherwise a broker would be as large as all that it has written since its last new file.
        """
        forget = self._pool.files.forget
        for file in files:
            if (view := file.held) is not None:
                forget(view, file.size)
        tail = self._log.segments.file_at(position)
        if tail is not None and (view := tail.held) is not None:
            forget(view, (position - tail.start) // PAGE_SIZE * PAGE_SIZE)

    def _describe(
        self, queue_file_size: int, index: KeyIndex, indexed: int, now_ms: int
    ) -> Checkpoint:
        """The checkpoint that will be true when everything of now is durable."""
        commit_log = self._log
        stored_ms = commit_log.stored_ms(commit_log.last) if commit_log.last >= 0 else 0
        newest = index.files[-1] if index.files else None
        return Checkpoint(
            log_ms=stored_ms or 0,
            queues_ms=stored_ms or 0,
            index_ms=index.end_ms,
            flushed_position=commit_log.end,
            confirmed_position=commit_log.end,
            note=Note(
                made_ms=now_ms,
                position=commit_log.end,
                last_record=commit_log.last,
                index_position=indexed,
                index_name=newest.name if newest else 0,
                index_count=newest.next if newest else 0,
                log_file_size=commit_log.segments.file_size,
                queue_file_size=queue_file_size,
            ),
        )

    def _save(self, checkpoint: Checkpoint) -> None:
        files = self._pool.files
        if self._page is None:
            files.create(self._checkpoint, CHECKPOINT_SIZE)
            files.allocate(self._checkpoint, 0, CHECKPOINT_SIZE)
            files.sync(self._directory)
            self._page = files.map(self._checkpoint, CHECKPOINT_SIZE)
        self._page[:] = pack_checkpoint(checkpoint)
        self._attempt(self._checkpoint, self._page)

    def _sync(self, files: Iterable[MappedFile]) -> None:
        """Sync files, and the names that lead to the new ones."""
        fresh: list[MappedFile] = []
        for file in files:
            with suppress(FileNotFoundError):  # retention was quicker
                self._attempt(file.path, file.held)
            if file.is_new:
                fresh.append(file)
        directories = {d for file in fresh for d in file.path.parents if self._is_inside(d)}
        for directory in sorted(directories, reverse=True):
            with suppress(FileNotFoundError):
                self._attempt(directory, None)
        # Not sooner: another thread that flushes must not believe that the names are there.
        for file in fresh:
            file.is_new = False

    def _is_inside(self, directory: Path) -> bool:
        return directory == self._directory or self._directory in directory.parents

    def _attempt(self, path: Path, view: memoryview | None) -> None:
        try:
            self._pool.files.sync(path, view)
        except FileNotFoundError:
            raise
        except OSError as error:
            # The kernel has dropped the pages: a second try would succeed and prove nothing.
            self.failure = StoreError(
                f"{path} could not be made durable ({error}): look at the disk, then restart"
            )
            raise self.failure from error
