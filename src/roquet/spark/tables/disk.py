"""Disk: the few things that a table asks of its file system, each whole or not at all.

Archives need a directory that the driver and all workers see: a local one, or a shared file system
that can rename, link and lock.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

_IS_POSIX: Final = os.name == "posix"


class Disk:
    """The real one. Tests have another, which ends the world between two steps."""

    def make(self, directory: Path) -> None:
        """A directory, with those above it."""
        directory.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path, data: bytes) -> None:
        """A file that was not there, with all of its bytes; FileExistsError when it was."""
        fresh = _written(path, data)
        try:
            path.hardlink_to(fresh)
        finally:
            fresh.unlink()
        self.sync(path.parent)

    def put(self, path: Path, data: bytes) -> None:
        """A file, in place of what was there."""
        _written(path, data).replace(path)
        self.sync(path.parent)

    def move(self, source: Path, target: Path) -> None:
        """A file goes elsewhere; nobody sees a part of it."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """A file is gone, if it was there."""
        path.unlink(missing_ok=True)

    def clear(self, directory: Path) -> None:
        """A directory is gone with all that is in it, also when somebody still writes there.

        It is moved first: a writer that comes late then finds no directory to write to.
        """
        aside = directory.with_name(f"{directory.name}.gone")
        with suppress(FileNotFoundError):
            directory.rename(aside if not aside.exists() else _unlike(aside))
        for one in directory.parent.glob("*.gone*"):
            shutil.rmtree(one, ignore_errors=True)

    def sync(self, directory: Path) -> None:
        """What was created, moved or removed here stays so after a power cut."""
        if _IS_POSIX:  # Windows opens no directories
            sync(directory)


def sync(path: Path) -> None:
    """The bytes of a file, or the entries of a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _written(path: Path, data: bytes) -> Path:
    """The bytes in a file beside the wanted one, on the disk."""
    fresh = _unlike(path)
    with fresh.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def _unlike(path: Path) -> Path:
    return path.with_name(f"{path.name}.{uuid4().hex[:8]}")
