"""Restore: checks a backup, and makes a data directory of it.

The directory gets its name once it is complete. It looks like that of a broker that was killed: its
first start recovers, and makes the key index and the timer files.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from roquet.model.errors import StoreError
from roquet.store.backup.backup import backups_in
from roquet.store.backup.copying import CopiedBytes, checksum, copy_file, write_file
from roquet.store.backup.manifest import (
    DATA_NAME,
    FILE_NAME,
    BackedUpFile,
    BackupManifest,
    read_manifest,
)
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import sync_directory
from roquet.store.filesystem.private_files import make_directories

ABORT: Final = "abort"
"""File of a store that was not closed."""


def find_backup(path: Path) -> Path:
    """The backup at a path, or the newest one in that directory of backups. Raises StoreError."""
    if (path / FILE_NAME).is_file():
        return path
    if backups := backups_in(path):
        return backups[-1]
    raise StoreError(f"{path} is not a backup, and there is none in it: no {FILE_NAME}")


def damaged_files(backup: Path) -> Iterator[str]:
    """Files of a backup that are missing or not what was copied, each with the fault.

    Raises StoreError for a damaged manifest.
    """
    for file in read_manifest(backup).files:
        try:
            path = _source(backup, file)
            if checksum(path) != _expected(file):
                yield f"{path} is damaged: its checksum is another one"
        except StoreError as error:
            yield str(error)
        except OSError as error:
            yield f"{path} cannot be read: {error.strerror}"


def restore(
    backup: Path, directory: Path, marks: Mapping[str, bytes] = MappingProxyType({})
) -> BackupManifest:
    """Make a data directory of a backup; it must be missing or empty before.

    `marks` are files to add, by name. Raises StoreError, which names the damaged file of a backup;
    then there is no directory.
    """
    manifest = read_manifest(backup)
    directory = directory.resolve()  # an empty directory is replaced, but not a link to it
    partial = directory.with_name(f"{directory.name}.restoring")
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise StoreError(f"{directory} is not empty: give a directory that does not exist")
        if directory.is_mount():
            raise StoreError(f"{directory} is a mount point: give a directory in it")
        if partial.exists():
            shutil.rmtree(partial)
        _fill(backup, partial, manifest)
        for name, data in {ABORT: b"restored", **marks}.items():
            write_file(partial / name, data)
        for folder, _, _ in os.walk(partial):
            sync_directory(Path(folder))
        with suppress(FileNotFoundError):
            directory.rmdir()
        partial.rename(directory)
        sync_directory(directory.parent)
    except OSError as error:
        raise store_error(directory, error) from error
    finally:
        with suppress(OSError):
            shutil.rmtree(partial)
    return manifest


def _fill(backup: Path, partial: Path, manifest: BackupManifest) -> None:
    make_directories(partial / "commitlog")
    for file in manifest.files:
        source = _source(backup, file)
        try:
            copied = copy_file(source, partial / file.path, file.stored, file.size)
        except FileNotFoundError:
            raise StoreError(f"{source} is missing: {_ADVICE}") from None
        except OSError as error:
            raise StoreError(f"{source} cannot be read ({error.strerror}): {_ADVICE}") from error
        if copied != _expected(file):
            raise StoreError(f"{source} is damaged: {_ADVICE}")


_ADVICE: Final = "restore another backup; nothing was restored"


def _source(backup: Path, file: BackedUpFile) -> Path:
    """The stored file. Raises StoreError for a link: it may lead out of the backup."""
    data = backup / DATA_NAME
    if Path(os.path.realpath(data / file.path)) != Path(os.path.realpath(data)) / file.path:
        raise StoreError(f"{data / file.path} is, or is behind, a link: {_ADVICE}")
    return data / file.path


def _expected(file: BackedUpFile) -> CopiedBytes:
    return CopiedBytes(file.stored, file.sha256)
