"""Opening a directory: locks, loads and recovers the parts of a store."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.rules.recovery import RecordRange
from roquet.store.commit_log.log import CommitLog
from roquet.store.config import StoreConfig
from roquet.store.consume_queue.queue_check import load_queue_ends
from roquet.store.consume_queue.queue_ends import QueueName
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.topic_tombstones import TopicTombstones
from roquet.store.filesystem.directory_lock import DirectoryLock, store_error, store_errors
from roquet.store.filesystem.files import Files, read_if_exists
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.segments import common_size, sizes_by_start, wrong_size_error
from roquet.store.flush import Flusher
from roquet.store.key_index.dispatch import Dispatcher
from roquet.store.key_index.index import KeyIndex
from roquet.store.layout import ENTRY_SIZE, StoreCheckpoint, unpack_checkpoint
from roquet.store.recovery.recover import recover
from roquet.store.recovery.rocksdb_directories import check_has_no_rocksdb, settings_error

log = logger(__name__)

FORMAT_NAME: Final = "store-format"
"""File with the number of the format, in decimal digits. It is missing in format 1, which is that
of Apache's brokers with our own files beside theirs; a version that changes the format writes
it."""

FORMAT: Final = 1
"""The newest format that this version reads."""

INDEX_BEFORE_OPEN_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the log indexed before the store opens; the rest follows while it serves."""


class OpenDirectory:
    """An open directory: its lock, its `abort` mark and its parts."""

    def __init__(
        self, directory: Path, config: StoreConfig, files: Files, lock: DirectoryLock
    ) -> None:
        self.directory = directory
        self._lock = lock
        self._abort = directory / "abort"
        self.pool = MapPool(files, config.maps_max or files.maps_max())
        is_clean = self.pool.has_durable_names = "abort" not in files.list(directory)
        self.checkpoint = read_checkpoint(files, directory)
        self.log = load_log(self.pool, directory, config, self.checkpoint)
        if config.rocksdb_settings and self.log.segments.files and self.checkpoint.note is None:
            raise settings_error(directory, config.rocksdb_settings)
        self.queues = load_queues(self.pool, directory, config, self.checkpoint)
        self.index = KeyIndex(self.pool, directory / "index", config)
        self.index.open()
        self.tombstones = TopicTombstones(files, directory)
        load_queue_ends(self.queues, directory, self.checkpoint.note, self.tombstones.positions)
        self._log_missing_files()
        self._recover(config, is_clean=is_clean)
        if not is_clean:
            self._sync_names()

    def _log_missing_files(self) -> None:
        """Log first files that are missing: retention notes what it deletes before it does."""
        begin = self.checkpoint.log_begin if self.checkpoint.note else None
        if begin is not None and begin < self.log.begin:
            log.error(
                "%s lacks its files from position %d to %d, which retention did not delete: their"
                " messages are lost unless the files are put back before this store is used",
                self.directory / "commitlog", begin, self.log.begin,
            )  # fmt: skip

    def _recover(self, config: StoreConfig, *, is_clean: bool) -> None:
        result = recover(
            self.log, self.queues, self.index, self.checkpoint,
            is_clean=is_clean, delay_levels_ms=config.delay_levels_ms,
            deleted=self.tombstones.positions,
        )  # fmt: skip
        self.tombstones.limit(result.end)
        self.queues.opened()
        try:
            self.queues.clear_removed()
        except (StoreError, OSError) as error:
            log.warning("files of deleted topics are left: %s", error)
        self.damage: Sequence[RecordRange] = result.damage
        self.flusher = Flusher(self.directory, self.pool, self.log, result.durable)
        self.flusher.log_begin = max(self.log.begin, self.log.origin)
        if self.checkpoint.note:
            self.flusher.checkpointed, self.flusher.has_note = self.checkpoint.note.position, True
        self.dispatcher = Dispatcher(self.log, self.index, result.index_from)
        if self.log.end - result.index_from <= INDEX_BEFORE_OPEN_BYTES:
            while self.dispatcher.step(1000):
                pass
        if not is_clean:
            log.warning(
                "%s was not closed: recovered up to position %d", self.directory, result.end
            )

    def _sync_names(self) -> None:
        """Make the previous process's file names durable: new data builds on them."""
        for path in (self.directory / "config", self.directory):
            if self.pool.files.list(path):
                self.pool.files.sync(path)

    def mark_in_use(self, pid: int) -> None:
        """Mark the directory as in use: a later process that finds the mark knows of a crash."""
        self.pool.files.replace(self._abort, str(pid).encode())

    def mark_closed(self) -> None:
        """Remove the mark: everything is durable."""
        try:
            self.pool.files.remove(self._abort)
            self.pool.files.sync(self.directory)
        except OSError as error:  # the next start recovers, and finds nothing to do
            log.warning("%s may look as if it was not closed: %s", self.directory, error)

    def release(self) -> None:
        """Let other processes take the directory."""
        self.flusher.close()
        self.log.close_writer()
        self.pool.drop_all()
        self._lock.release()


def open_directory(directory: Path, config: StoreConfig, files: Files, pid: int) -> OpenDirectory:
    """Lock, load and recover a directory. Raises StoreLocked and StoreError."""
    check_format(files, directory)
    lock = files.lock(directory / "lock", f"process {_holder(files, directory)}")
    try:
        opened = OpenDirectory(directory, config, files, lock)
        opened.mark_in_use(pid)
    except OSError as error:
        lock.release()
        raise store_error(directory, error) from error
    except BaseException:
        lock.release()
        raise
    return opened


def check_format(files: Files, directory: Path) -> None:
    """Raise StoreError, with advice, for a later version's directory or one on RocksDB."""
    check_has_no_rocksdb(files, directory)
    path = directory / FORMAT_NAME
    if FORMAT_NAME not in files.list(directory):
        return
    with store_errors(path):
        text = files.read(path).decode(errors="replace").strip()
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or int(text) > FORMAT:
        shown = text if is_number else "that is no number"  # it may be any file's content
        raise StoreError(
            f"{directory} has format {shown}, and this version of Roquet reads up to"
            f" {FORMAT}: start the version that wrote it,"
            " or restore a backup from before the upgrade"
        )


def read_checkpoint(files: Files, directory: Path) -> StoreCheckpoint:
    """Read the checkpoint; a missing file gives an empty one."""
    data = read_if_exists(files, directory / "checkpoint")
    return StoreCheckpoint() if data is None else unpack_checkpoint(data)


def _holder(files: Files, directory: Path) -> str:
    try:
        return files.read(directory / "abort").decode(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


def load_log(
    pool: MapPool, directory: Path, config: StoreConfig, checkpoint: StoreCheckpoint
) -> CommitLog:
    """Load the log's files, with the size that they have."""
    path = directory / "commitlog"
    right = checkpoint.note.log_file_size if checkpoint.note else config.log_file_size
    commit_log = CommitLog(pool, path, right, config.log_step)
    commit_log.load(pool.files.list(path), is_sure=checkpoint.note is not None)
    if files := commit_log.segments.files:
        _log_size(path, commit_log.segments.file_size, config.log_file_size)
        begin = checkpoint.log_begin or 0
        if files[0].start < begin < files[0].start + files[0].size:
            commit_log.origin = begin
    return commit_log


def load_queues(
    pool: MapPool, directory: Path, config: StoreConfig, checkpoint: StoreCheckpoint
) -> ConsumeQueues:
    """Learn which queues exist, and the sizes of their files; no file is read."""
    path, files = directory / "consumequeue", pool.files
    queues = ConsumeQueues(pool, path, config.queue_file_entries, config.queue_step)
    sizes: dict[QueueName, dict[int, int]] = {}
    for topic, size in files.list(path).items():
        topic_path = path / topic
        for name, inner in files.list(topic_path).items() if size is None else ():
            queue_path = topic_path / name
            if inner is None and name.isdigit() and name.isascii():
                queues.add(topic, int(name))
                listed = queues.listed[topic, int(name)] = files.list(queue_path)
                sizes[topic, int(name)] = sizes_by_start(queue_path, listed)
            else:
                log.warning("%s does not belong there and is ignored", queue_path)
    queues.file_size = _queue_size(sizes.values(), queues.file_size, checkpoint)
    _log_size(path, queues.file_size, config.queue_file_entries * ENTRY_SIZE)
    single = {0: queues.file_size}
    for queue, file_sizes in sizes.items():
        if file_sizes != single:
            _check_sizes(queues, queue, file_sizes, is_sure=checkpoint.note is not None)
    return queues


def _check_sizes(
    queues: ConsumeQueues, name: QueueName, sizes: Mapping[int, int], *, is_sure: bool
) -> None:
    """Note where a queue begins, or why its files cannot be used.

    Raises StoreError for a wrong size, unless the right one is certain: then that is a fault of the
    queue.
    """
    starts = sorted(sizes)
    for start, following in zip(starts, [*starts[1:], None], strict=False):
        size = sizes[start]
        if size != queues.file_size and not (size == 0 and following is None):
            if not is_sure:
                raise wrong_size_error(queues.path(name, start), size, queues.file_size)
            queues.faults[name] = f"{queues.path(name, start)} has {size} bytes"
        elif following is not None and following != start + queues.file_size:
            queues.faults[name] = f"{queues.path(name, start + queues.file_size)} is missing"
    if starts and starts[0]:
        queues.begins[name] = starts[0] // ENTRY_SIZE


def _queue_size(
    sizes: Iterable[dict[int, int]], configured: int, checkpoint: StoreCheckpoint
) -> int:
    if checkpoint.note:
        return checkpoint.note.queue_file_size
    agreed = {common_size(file_sizes, configured, ENTRY_SIZE) for file_sizes in sizes}
    return agreed.pop() if len(agreed) == 1 else configured


def _log_size(path: Path, size: int, configured: int) -> None:
    if size != configured:
        log.info("%s keeps its files of %d bytes; %d are configured", path, size, configured)
