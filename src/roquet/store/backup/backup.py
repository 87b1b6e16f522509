"""Backup: a consistent copy of a data directory, made while a broker uses it.

    BACKUPS/20261123T221906123Z/manifest.json     a backup is complete once it has its name
                                data/commitlog/…
            20261124T221906123Z/…                 unchanged files are links to those before
            partial/                              is being made, or was given up

Only files are read: the broker does not notice. Files of the log do not change once they are full,
so each backup after the first one copies the newest of them, the queues and the tables.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from roquet import __version__
from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.store.backup.contents import (
    CHECKPOINT_NAME,
    LOG_NAME,
    LogExtent,
    bytes_at,
    check_is_store,
    checkpoint_of,
    log_extent,
    queue_files,
    read_tables,
    tombstones_of,
)
from roquet.store.backup.copying import (
    CopiedBytes,
    content_end,
    copy_file,
    has_same_ends,
    read_range,
    write_file,
)
from roquet.store.backup.manifest import (
    DATA_NAME,
    FILE_NAME,
    BackedUpFile,
    BackupManifest,
    read_manifest,
)
from roquet.store.consume_queue.topic_tombstones import FILE_NAME as TOMBSTONES_NAME
from roquet.store.filesystem.directory_lock import FileLock, store_error, store_errors
from roquet.store.filesystem.files import RealFiles, sync_directory
from roquet.store.filesystem.private_files import make_directories
from roquet.store.layout import StoreCheckpoint, file_name, pack_checkpoint
from roquet.store.recovery.open_directory import read_checkpoint

log = logger(__name__)

PARTIAL_NAME: Final = "partial"

NAME: Final = re.compile(r"[0-9]{8}T[0-9]{9}Z")
"""Form of the names of backups: their times in UTC to the ms, so that names sort by time."""

TRIES: Final = 10
"""Attempts to copy all queues before a topic is deleted, or the log is cut, again."""

CUT_ADVICE: Final = "its log was cut while it was copied, as a replica's may be: try again"


class BackupResult(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was made."""

    path: Path
    manifest: BackupManifest
    copied: int
    """Bytes that were copied; the rest is shared with the backup before."""


def backups_in(target: Path) -> list[Path]:
    """The complete backups in a directory of backups, oldest first.

    Those that were given names of their own, which do not sort by time, are left out.
    """
    try:
        found = [path for path in target.iterdir() if (path / FILE_NAME).is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise store_error(target, error) from error
    return sorted(path for path in found if _time_of(path.name) is not None)


def back_up(directory: Path, target: Path, now_ms: int) -> BackupResult:
    """Make a backup of a data directory in a directory of backups.

    It has every message that was acknowledged before the call. Raises StoreError, StoreLocked while
    another backup is being made there.
    """
    check_is_store(directory)
    if target.resolve().is_relative_to(directory.resolve()):
        raise StoreError(f"{target} is inside {directory}: keep backups elsewhere")
    lock = FileLock(target / "lock", "another backup")
    partial = target / PARTIAL_NAME
    try:
        if partial.exists():
            shutil.rmtree(partial)
        return _Backup(directory, target, now_ms).make()
    except OSError as error:
        raise store_error(Path(error.filename or target), error) from error
    finally:
        with suppress(OSError):
            shutil.rmtree(partial)
        lock.release()


def remove_old(target: Path, keep: int) -> list[Path]:
    """Remove all complete backups but the newest `keep`; gives their paths. Raises StoreError.

    What a removal left that was killed goes, too.
    """
    old = backups_in(target)[:-keep]
    for path in [*old, *_half_removed(target)]:
        with store_errors(path):
            (path / FILE_NAME).unlink(missing_ok=True)  # first: a half must not look like a whole
            shutil.rmtree(path)
    return old


def _half_removed(target: Path) -> list[Path]:
    """Directories with the names of backups that have no manifest any more."""
    dated = [target / n for n in RealFiles().list(target) if _time_of(n) is not None]
    return [path for path in dated if not (path / FILE_NAME).exists()]


class _Backup:
    def __init__(self, directory: Path, target: Path, now_ms: int) -> None:
        self._directory = directory
        self._target = target
        self._now_ms = now_ms
        self._data = target / PARTIAL_NAME / DATA_NAME
        self._files: list[BackedUpFile] = []
        self._copied = 0
        self._last = _newest(backups_in(target))
        self._noted = StoreCheckpoint()
        """The checkpoint among the copied tables."""
        self._before = b""
        """The log's bytes in front of it."""

    def make(self) -> BackupResult:
        """Copy everything, in the order that `contents` explains, and name the backup."""
        tables, extent = self._copy_queues()
        log_files = self._copy_log(extent)
        begin = _start_of(log_files[0]) if log_files else extent.begin
        _move_begin(tables, begin)
        for path, data in tables.items():
            copied = write_file(self._data / path, data)
            self._add(path, len(data), copied)
        manifest = BackupManifest(
            version=__version__, made_ms=self._now_ms, log_begin=begin, log_end=extent.end,
            files=(*self._files, *log_files),
        )  # fmt: skip
        return BackupResult(path=self._publish(manifest), manifest=manifest, copied=self._copied)

    def _copy_queues(self) -> tuple[dict[str, bytes], LogExtent]:
        """Copy the queues between the tables and the log's end, and give those.

        This is done again if a topic was deleted meanwhile: its queues would be those of a topic
        made anew, while the tables do not say where the records of the deleted one end. So it is
        if the log was cut in front of its checkpoint, whose queue ends are others since.
        """
        for _ in range(TRIES):
            tables = dict(read_tables(self._directory))
            self._noted = checkpoint_of(tables)
            self._before = bytes_at(self._directory, self._noted)
            for path, size, is_complete in queue_files(self._directory):
                with suppress(FileNotFoundError):  # expired, or its topic was deleted
                    end = content_end(self._directory / path, size)
                    self._files.append(self._take(path, size, end, is_shared=is_complete))
            extent = log_extent(self._directory, self._noted)
            is_same = tombstones_of(self._directory) == tables.get(TOMBSTONES_NAME, b"")
            if is_same and not self._is_cut():
                return tables, extent
            self._files, self._copied = [], 0
            if self._data.exists():
                shutil.rmtree(self._data)
        raise StoreError(
            f"{self._directory}: topics are deleted, or the log is cut, all the time: try again"
        )

    def _copy_log(self, extent: LogExtent) -> list[BackedUpFile]:
        """Copy the log up to its end, without the files that expire meanwhile."""
        found: list[BackedUpFile] = []
        for start in extent.starts:
            # Not `content_end`: whether a mapped page counts as data is the file system's affair.
            end = min(max(extent.end - start, 0), extent.file_size)
            path = f"{LOG_NAME}/{file_name(start)}"
            is_full = start + extent.file_size <= extent.end
            try:
                found.append(self._take(path, extent.file_size, end, is_shared=is_full))
            except FileNotFoundError:
                log.info("%s expired while the backup was made", path)
                found.clear()
        is_whole = not extent.starts or (found and self._has_last_record(extent))
        if not is_whole or self._is_cut():
            raise StoreError(f"{self._directory}: {CUT_ADVICE}")
        return found

    def _has_last_record(self, extent: LogExtent) -> bool:
        """Whether the last record is still the one that was found, in the log and in the copy."""
        at = extent.last_record % extent.file_size
        name = f"{LOG_NAME}/{file_name(extent.last_record - at)}"
        size = len(extent.head)
        return not extent.head or all(
            read_range(directory / name, at, size) == extent.head
            for directory in (self._directory, self._data)
        )

    def _is_cut(self) -> bool:
        """Whether the log was cut in front of the copied checkpoint.

        A cut lowers the checkpoint first, which may have grown since: then other bytes are there.
        """
        now, noted = read_checkpoint(RealFiles(), self._directory).note, self._noted.note
        is_lower = now is not None and noted is not None and now.position < noted.position
        return is_lower or bytes_at(self._directory, self._noted) != self._before

    def _take(self, path: str, size: int, end: int, *, is_shared: bool) -> BackedUpFile:
        """Copy a file up to `end`, or link its last copy. Raises FileNotFoundError."""
        if is_shared and (known := self._shared(path, size, end)) is not None:
            return known
        copied = copy_file(self._directory / path, self._data / path, end)
        self._copied += copied.stored
        return _file(path, size, copied)

    def _shared(self, path: str, size: int, end: int) -> BackedUpFile | None:
        """The file of the last backup, if it is the same and could be linked."""
        known = self._last.files.get(path) if self._last is not None else None
        if self._last is None or known is None or (known.size, known.stored) != (size, end):
            return None
        before, now = self._last.path / DATA_NAME / path, self._data / path
        if not has_same_ends(self._directory / path, before, end):
            return None
        make_directories(now.parent)
        try:
            os.link(before, now)
        except OSError:  # a file system without links, or with too many of them
            return None
        return known

    def _add(self, path: str, size: int, copied: CopiedBytes) -> None:
        self._files.append(_file(path, size, copied))
        self._copied += copied.stored

    def _name(self) -> str:
        """A name behind those of all other backups, even if the clock was set back."""
        made = datetime.fromtimestamp(0, tz=UTC) + timedelta(milliseconds=self._now_ms)
        if backups := backups_in(self._target):
            newest = _time_of(backups[-1].name)
            assert newest is not None, "others are no backups"
            made = max(made, newest + timedelta(milliseconds=1))
        return f"{made:%Y%m%dT%H%M%S}{made.microsecond // 1000:03d}Z"

    def _publish(self, manifest: BackupManifest) -> Path:
        """Write the manifest, make all names durable and give the backup its own."""
        partial = self._target / PARTIAL_NAME
        make_directories(self._data)
        write_file(partial / FILE_NAME, msgspec.json.format(msgspec.json.encode(manifest)))
        for directory, _, _ in os.walk(partial):
            sync_directory(Path(directory))
        path = self._target / self._name()
        partial.rename(path)
        sync_directory(self._target)
        return path


class _LastBackup(msgspec.Struct, frozen=True):
    path: Path
    files: Mapping[str, BackedUpFile]


def _newest(backups: Sequence[Path]) -> _LastBackup | None:
    """The newest backup whose manifest can be read."""
    for path in reversed(backups):
        try:
            return _LastBackup(path, read_manifest(path).by_path())
        except StoreError as error:
            log.warning("%s", error)
    return None


def _file(path: str, size: int, copied: CopiedBytes) -> BackedUpFile:
    return BackedUpFile(path=path, size=size, stored=copied.stored, sha256=copied.sha256)


def _start_of(file: BackedUpFile) -> int:
    return int(file.path.rpartition("/")[2])


def _move_begin(tables: dict[str, bytes], begin: int) -> None:
    """Note in the copied checkpoint that files in front of the copied log have expired since."""
    checkpoint = checkpoint_of(tables)
    noted = checkpoint.log_begin if checkpoint.note is not None else None
    if noted is not None and noted < begin:
        moved = msgspec.structs.replace(checkpoint, log_begin=begin)
        tables[CHECKPOINT_NAME] = pack_checkpoint(moved)


def _time_of(name: str) -> datetime | None:
    """The time in the name of a backup, in UTC; None for any other name."""
    if NAME.fullmatch(name) is None:
        return None
    try:
        return datetime.strptime(f"{name[:-1]}000+0000", "%Y%m%dT%H%M%S%f%z")
    except ValueError:
        return None
