"""Backup contents: which files of a data directory belong into a backup, and up to which position.

    tables, checkpoint ──▶ queues ──▶ the log's end, found by reading ──▶ the log up to there

In this order no table is ahead of the log. What is younger than the checkpoint is put right by the
recovery of the restored directory, as after a crash. Left out is what is made from the rest: the
key index, timer log and timer wheel; and what belongs to one machine: locks and the boot id.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import StoreError
from roquet.store.backup.copying import read_range
from roquet.store.commit_log.log import CommitLog
from roquet.store.config import StoreConfig
from roquet.store.consume_queue.topic_tombstones import FILE_NAME as TOMBSTONES_NAME
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.private_files import read_unlinked
from roquet.store.layout import StoreCheckpoint, file_name, file_start, unpack_checkpoint
from roquet.store.recovery.open_directory import check_format, load_log

LOG_NAME: Final = "commitlog"
QUEUES_NAME: Final = "consumequeue"
CHECKPOINT_NAME: Final = "checkpoint"

OF_THE_MACHINE: Final = frozenset(("lock", "abort", "bootId"))
"""Files that say who uses the directory, and whether that machine lost a part of the log."""

UNFINISHED_SUFFIXES: Final = (".tmp", ".old")
"""Ends of the names of tables that are being replaced."""

HEAD_SIZE: Final = 4096
"""Bytes of the last record that are remembered."""

READS_MAX: Final = 100
"""Attempts to read all tables before one of them is saved again."""


class LogExtent(msgspec.Struct, frozen=True, kw_only=True):
    """The log at one moment."""

    begin: int
    """Start of the first file."""
    end: int
    """Position behind the last whole record."""
    last_record: int
    """Position of that record; -1 for none that was read."""
    head: bytes
    """The first bytes of that record: other ones there show that the log was cut since."""
    file_size: int
    starts: tuple[int, ...]
    """First position of each file, in order."""


def check_is_store(directory: Path) -> None:
    """Raise StoreError for a directory that holds no log, or one of a later format."""
    names = RealFiles().list(directory)
    if names.keys() & {LOG_NAME, CHECKPOINT_NAME, "lock"}:
        check_format(RealFiles(), directory)
        return
    inner = sorted(n for n, size in names.items() if size is None and _has_log(directory / n))
    advice = f"; back up {directory / inner[0]} instead" if inner else ""
    raise StoreError(f"{directory} is not a data directory: there is no {LOG_NAME} in it{advice}")


def _has_log(directory: Path) -> bool:
    return LOG_NAME in RealFiles().list(directory)


def read_tables(directory: Path) -> Mapping[str, bytes]:
    """The small files by path, all as they were at one moment.

    They are read again until nothing has changed in between. Raises StoreError for files that are
    saved without a pause, and for unreadable ones.
    """
    before = _read_once(directory)
    for _ in range(READS_MAX):
        now = _read_once(directory)
        if now == before:
            return now
        before = now
    raise StoreError(f"{directory}: its tables change faster than they can be read: try again")


def _read_once(directory: Path) -> dict[str, bytes]:
    files, found = RealFiles(), dict[str, bytes]()
    for folder in ("", "config"):
        for name, size in files.list(directory / folder).items():
            is_other = size is None or name in OF_THE_MACHINE
            if is_other or name.endswith(UNFINISHED_SUFFIXES) or name == "timerwheel":
                continue
            path = directory / folder / name
            try:
                found[f"{folder}/{name}".lstrip("/")] = read_unlinked(path)
            except FileNotFoundError:  # replaced, or removed, since it was listed
                continue
            except OSError as error:
                raise store_error(path, error) from error
    return found


def tombstones_of(directory: Path) -> bytes:
    """The file that says which topics were deleted, as it is now; empty without one."""
    try:
        return RealFiles().read(directory / TOMBSTONES_NAME)
    except FileNotFoundError:
        return b""


def checkpoint_of(tables: Mapping[str, bytes]) -> StoreCheckpoint:
    """The checkpoint among the tables; an empty one if there is none."""
    return unpack_checkpoint(tables.get(CHECKPOINT_NAME, b""))


def bytes_at(directory: Path, checkpoint: StoreCheckpoint) -> bytes:
    """The log's bytes in front of a checkpoint: others there show that it was cut since.

    Empty for a log that had no record then, and for one whose file is gone.
    """
    note = checkpoint.note
    if note is None or note.last_record < 0:
        return b""
    end, found = note.position, b""
    for start in (note.last_record, end - min(HEAD_SIZE, (end - 1) % note.log_file_size + 1)):
        at = start % note.log_file_size
        path = directory / LOG_NAME / file_name(start - at)
        try:
            found += read_range(path, at, min(HEAD_SIZE, end - start))
        except FileNotFoundError:
            return b""
    return found


def queue_files(directory: Path) -> Iterator[tuple[str, int, bool]]:
    """Path, size and completeness of each consume queue file, in order.

    A complete file is followed by another one, and does not change any more.
    """
    files, root = RealFiles(), directory / QUEUES_NAME
    for topic, size in sorted(files.list(root).items()):
        for queue_id, inner in sorted(files.list(root / topic).items()) if size is None else ():
            found = files.list(root / topic / queue_id) if inner is None else {}
            sizes = {n: s for n, s in sorted(found.items()) if s and file_start(n) is not None}
            for name, file_size in sizes.items():
                is_complete = name != max(sizes)
                yield f"{QUEUES_NAME}/{topic}/{queue_id}/{name}", file_size or 0, is_complete


def log_extent(directory: Path, checkpoint: StoreCheckpoint) -> LogExtent:
    """Find the log's end as of now, by reading the records behind the checkpoint.

    Raises StoreError for a log that cannot be used.
    """
    pool = MapPool(RealFiles(), RealFiles().maps_max(), writable=False)
    try:
        commit_log = load_log(pool, directory, StoreConfig(), checkpoint)
        return _extent_of(commit_log, checkpoint)
    finally:
        pool.drop_all()


def _extent_of(commit_log: CommitLog, checkpoint: StoreCheckpoint) -> LogExtent:
    segments, note = commit_log.segments, checkpoint.note
    end = segments.begin
    last_record = -1
    if note is not None and segments.begin <= note.position <= segments.limit:
        end, last_record = note.position, note.last_record
    for _, position, record in commit_log.walk(end, segments.limit, end, check_crc=True):
        end, last_record = position + record[0], position
    commit_log.end = end
    return LogExtent(
        begin=segments.begin,
        end=end,
        last_record=last_record,
        head=bytes(commit_log.file_bytes(last_record, HEAD_SIZE)),
        file_size=segments.file_size,
        starts=tuple(file.start for file in segments.files),
    )
