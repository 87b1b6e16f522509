"""Disk: the file operations of a table, each atomic and durable.

Archives need a directory that the driver and all workers see: a local one, or a shared file system
with renames, hard links and locks.
"""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

_IS_POSIX: Final = os.name == "posix"


class Disk:
    """The file system. Tests replace it by one that fails between two steps."""

    def make(self, directory: Path) -> None:
        """Create a directory and its parents."""
        directory.mkdir(parents=True, exist_ok=True)

    def put(self, path: Path, data: bytes) -> None:
        """Write a complete file, replacing an older one."""
        fresh = _temporary_name(path)
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        self.sync(path.parent)

    def move(self, source: Path, target: Path) -> None:
        """Move a file atomically."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)

    def clear(self, directory: Path) -> None:
        """Remove a directory and its content, even while a task still writes there.

        It is renamed first, so that a late writer finds no directory.
        """
        renamed = directory.with_name(f"{directory.name}.gone")
        with suppress(FileNotFoundError):
            directory.rename(renamed if not renamed.exists() else _temporary_name(renamed))
        for leftover in directory.parent.glob("*.gone*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def sync(self, directory: Path) -> None:
        """Make the directory's entries durable: files created, moved and removed in it."""
        if not _IS_POSIX:  # Windows opens no directories
            return
        try:
            sync(directory)
        except OSError as error:  # some network file systems do not support it
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise


def sync(path: Path) -> None:
    """Flush the bytes of a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f"{path.name}.{uuid4().hex[:8]}")
