"""Segments: equal-sized files seen as one address space."""

import errno
from collections.abc import Mapping
from pathlib import Path

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.mapped_file import MappedFile, MapPool, path_of
from roquet.store.layout import file_name, file_start

log = logger(__name__)


class Segments:
    """Files of one directory, named by the first byte that they hold, without a gap."""

    __slots__ = ("_directory", "file_size", "files", "pool")

    def __init__(self, pool: MapPool, directory: Path, file_size: int) -> None:
        self.pool = pool
        self._directory = str(directory)  # text takes less memory than a Path, and there are many
        self.file_size = file_size
        self.files: list[MappedFile] = []

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        return path_of(self._directory)

    def load(self, listed: Mapping[str, int | None]) -> None:
        """Load a directory's files. Raises StoreError for a missing one or a wrong size."""
        directory = self.directory
        sizes = sizes_by_start(directory, listed)
        starts = sorted(sizes)
        for start, following in zip(starts, [*starts[1:], None], strict=False):
            path = directory / file_name(start)
            if sizes[start] == 0 and following is None:
                if not self.pool.is_writable:
                    continue
                self.pool.files.create(path, self.file_size)  # created just before a loss of power
            elif sizes[start] != self.file_size:
                raise wrong_size_error(path, sizes[start], self.file_size)
            if following is not None and following != start + self.file_size:
                raise _missing(path, directory / file_name(start + self.file_size))
            file = MappedFile(self.pool, path, start, self.file_size)
            file.is_new = not self.pool.has_durable_names
            self.files.append(file)

    @property
    def begin(self) -> int:
        """The first byte held."""
        return self.files[0].start if self.files else 0

    @property
    def limit(self) -> int:
        """The position behind the last byte of the last file."""
        return self.files[-1].start + self.file_size if self.files else 0

    def file_at(self, position: int) -> MappedFile | None:
        """The file that holds a byte; None if none does."""
        files = self.files
        if not files:
            return None
        index = (position - files[0].start) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def obtain(self, start: int) -> MappedFile:
        """The file that begins at `start`, created if it is missing; then it must be the next one.

        Raises StoreFull.
        """
        assert start % self.file_size == 0, f"{start} is not the begin of a file"
        if existing := self.file_at(start):
            return existing
        assert not self.files or start == self.limit, f"{start} leaves a gap behind {self.limit}"
        file = MappedFile(self.pool, self.directory / file_name(start), start, self.file_size)
        file.create()
        self.files.append(file)
        return file

    def drop_before(self, position: int) -> list[MappedFile]:
        """Delete the files that end at or before a position, oldest first; never the newest."""
        dropped: list[MappedFile] = []
        while len(self.files) > 1 and self.files[0].start + self.file_size <= position:
            dropped.append(self._delete(0))
        return dropped

    def drop_from(self, position: int) -> list[MappedFile]:
        """Delete the files that begin at or behind a position, newest first."""
        dropped: list[MappedFile] = []
        while self.files and self.files[-1].start >= position:
            dropped.append(self._delete(-1))
        return dropped

    def _delete(self, index: int) -> MappedFile:
        file = self.files[index]
        self.pool.files.remove(file.path)
        self.pool.drop(file)
        # A new list: a flush in another thread may be iterating over the old one.
        self.files = [remaining for remaining in self.files if remaining is not file]
        return file


def sizes_by_start(directory: Path, listed: Mapping[str, int | None]) -> dict[int, int]:
    """First byte to size of a directory's numbered files; others are ignored with a warning."""
    sizes: dict[int, int] = {}
    for name, size in listed.items():
        start = file_start(name)
        if start is not None and size is None:
            raise store_error(directory / name, IsADirectoryError(errno.EISDIR, "Is a directory"))
        if start is None or size is None:
            log.warning("%s does not belong there and is ignored", directory / name)
        else:
            sizes[start] = size
    return sizes


def common_size(sizes: Mapping[int, int], configured: int, unit: int) -> int:
    """The file size of a directory: the one on which all its files agree, else the configured one.

    A size has to be a multiple of `unit`, and every first position a multiple of the size.
    """
    distinct = {size for size in sizes.values() if size}
    if len(distinct) == 1:
        (size,) = distinct
        if size % unit == 0 and all(start % size == 0 for start in sizes):
            return size
    return configured


def wrong_size_error(path: Path, size: int, right: int) -> StoreError:
    """The error for a file that was truncated, or made with another configuration."""
    return StoreError(
        f"{path} has {size} bytes instead of {right}: restore it from a copy, or configure"
        " the size with which it was made; nothing was changed"
    )


def _missing(path: Path, missing: Path) -> StoreError:
    return StoreError(
        f"{missing} is missing between {path.name} and later files: restore it from a copy, or"
        " move the later files away to go on without them; nothing was changed"
    )
