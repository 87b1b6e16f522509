"""Files: the file system operations that the store needs; RealFiles does them.

Assumptions about the disk: the length of a file is set once, in full. Blocks are allocated before a
range is written through a map, so that a full disk is an error of `allocate` and not a signal.
Bytes are durable after `sync` of their file, whether they were written through a map or without; a
new name is durable after `sync` of its directory. Except on Windows, a map shows at once what was
written without it. `replace` shows either the old or the new content, whatever happens.
"""
# ruff: noqa: D102 - the methods of RealFiles are described in Files

import errno
import mmap
import os
import shutil
import sys
from contextlib import closing
from io import FileIO
from pathlib import Path
from typing import Final, Protocol

from roquet.rules.retention import DiskUsage
from roquet.store.filesystem import libc
from roquet.store.filesystem.directory_lock import (
    DirectoryLock,
    FileLock,
    store_error,
    store_errors,
)
from roquet.store.filesystem.libc import DiskSync, find_disk_sync
from roquet.store.filesystem.private_files import make_directories, open_private, open_regular

_PIECE_SIZE: Final = 64 * 1024

_GONE: Final = -1

_O_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""Without this flag Windows translates line ends."""

MAPS_MAX: Final = 16_384
"""A quarter of what Linux allows a process by default. A queue that is rarely written would cost 8
KiB while it is mapped, for a page and for its page table."""

MAPS_MIN: Final = 400
"""Affordable within the usual limit of 1,024 descriptors."""

DESCRIPTORS_KEPT: Final = 500
"""Reserved for connections and everything else."""


class FileWriter(Protocol):
    """A file that stays open for writing, which may cost a descriptor."""

    def write(self, start: int, data: bytes | memoryview) -> None:
        """Write bytes to allocated blocks. Raises OSError; then a part of them may be written."""

    def close(self) -> None:
        """Close the file; nothing becomes durable by that."""


class Files(Protocol):
    """The file system as the store uses it."""

    def list(self, directory: Path) -> dict[str, int | None]:
        """Names in a directory, with sizes, None for directories; empty if it is missing."""

    def create(self, path: Path, size: int) -> None:
        """Create a file of that length, and its directories, without blocks; content stays."""

    def allocate(self, path: Path, start: int, size: int) -> None:
        """Allocate blocks for a range, which keeps its content. Raises StoreFull."""

    def map(self, path: Path, size: int, *, writable: bool = True) -> memoryview:
        """Map the first `size` bytes of a file, to be read and written as memory."""

    def maps_max(self) -> int:
        """How many maps may be held at once."""

    def write(self, path: Path, start: int, data: bytes | memoryview) -> None:
        """Write bytes to allocated blocks, without a map."""

    def open_writer(self, path: Path) -> FileWriter:
        """Open an existing file for many writes without a map. Raises OSError."""

    def advise_growth(self, view: memoryview, is_growing: bool) -> None:
        """Say whether untouched pages of a map will be written next, or else read."""

    def release_pages(self, view: memoryview, size: int) -> None:
        """Release the first `size` bytes of a map from this process; access brings them back."""

    def data_end(self, path: Path, size: int) -> int:
        """The end of all bytes ever written; `size` if the file system cannot tell."""

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        """Make a file's bytes, or a directory's names, survive a loss of power.

        `view` is the map through which the file was written, if it still exists.
        """

    def disk_sync(self, directory: Path) -> DiskSync | None:
        """The disk of a directory, where it can be synced as a whole; None elsewhere."""

    def read(self, path: Path) -> bytes:
        """All bytes of a small file; FileNotFoundError if there is none."""

    def peek(self, path: Path, start: int, size: int) -> bytes:
        """Some bytes of a file that is also writable, fewer at its end.

        Raises FileNotFoundError if there is none, StoreError for one that cannot be used.
        """

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        """Replace a file's whole content atomically; `keep` leaves the old one as `.bak`."""

    def remove(self, path: Path) -> None:
        """Delete a file, or a directory with its content; a missing path is no error."""

    def move(self, path: Path, target: Path) -> None:
        """Rename a directory with its content, atomically; a missing path is no error."""

    def lock(self, path: Path, holder: str) -> DirectoryLock:
        """Lock a directory by a file in it. Raises StoreLocked, which names the holder."""

    def usage(self, directory: Path, /) -> DiskUsage:
        """Size and free space of the disk that holds a directory."""


def read_if_exists(files: Files, path: Path) -> bytes | None:
    """All bytes of a small file; None if there is none. Raises StoreError."""
    try:
        return files.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error(path, error) from error


class RealFiles:
    """The operating system's files."""

    def list(self, directory: Path) -> dict[str, int | None]:
        try:
            entries = os.scandir(directory)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise store_error(directory, error) from error
        with entries:
            return {entry.name: size for entry in entries if (size := _size(entry)) != _GONE}

    def create(self, path: Path, size: int) -> None:
        with store_errors(path):
            handle = _create(path)
            try:
                if os.fstat(handle).st_size < size:
                    os.ftruncate(handle, size)
            finally:
                os.close(handle)

    def allocate(self, path: Path, start: int, size: int) -> None:
        with store_errors(path):
            if sys.platform == "linux":
                handle = open_regular(path, os.O_RDWR)
                try:
                    os.posix_fallocate(handle, start, size)
                finally:
                    os.close(handle)
            else:
                with open(path, "r+b", buffering=0, opener=open_regular) as file:
                    _fill(file, start, size)

    def map(self, path: Path, size: int, *, writable: bool = True) -> memoryview:
        try:
            # Not path.open: its buffers cost as much as the map, and there may be very many queues.
            descriptor = open_regular(path, (os.O_RDWR if writable else os.O_RDONLY) | _O_BINARY)
            try:
                return libc.map_file(descriptor, size, writable=writable)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise store_error(path, error) from error

    def maps_max(self) -> int:
        if not libc.maps_keep_descriptors():
            return MAPS_MAX
        return max(MAPS_MIN, min(MAPS_MAX, (_descriptors_max() - DESCRIPTORS_KEPT) * 3 // 4))

    def write(self, path: Path, start: int, data: bytes | memoryview) -> None:
        with closing(_DescriptorWriter(path)) as writer:
            writer.write(start, data)

    def open_writer(self, path: Path) -> FileWriter:
        return _DescriptorWriter(path)

    def advise_growth(self, view: memoryview, is_growing: bool) -> None:
        """See Files.

        Linux reads ahead up to 2 MiB when a page is first touched: where nothing was written yet,
        that takes 6 to 20 ms of zeroing.
        """
        memory = view.obj
        if isinstance(memory, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
            memory.madvise(mmap.MADV_RANDOM if is_growing else mmap.MADV_NORMAL)

    def release_pages(self, view: memoryview, size: int) -> None:
        memory = view.obj
        if isinstance(memory, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and size:
            memory.madvise(mmap.MADV_DONTNEED, 0, size)

    def data_end(self, path: Path, size: int) -> int:
        if not hasattr(os, "SEEK_DATA"):
            return size
        with open(path, "rb", opener=open_regular) as file:
            return _data_end(file.fileno(), size)

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        if view is not None and sys.platform != "linux" and isinstance(view.obj, mmap.mmap):
            view.obj.flush()  # Linux's fdatasync writes mapped pages by itself
        try:
            handle = open_regular(path, os.O_RDWR | _O_BINARY)
        except (IsADirectoryError, PermissionError):
            if not path.is_dir():
                raise
            sync_directory(path)
            return
        try:
            _sync(handle)
        finally:
            os.close(handle)

    def disk_sync(self, directory: Path) -> DiskSync | None:
        return find_disk_sync(directory)

    def read(self, path: Path) -> bytes:
        with open(path, "rb", opener=open_regular) as file:
            return file.read()

    def peek(self, path: Path, start: int, size: int) -> bytes:
        try:
            handle = open_regular(path, os.O_RDWR | _O_BINARY)
            try:
                os.lseek(handle, start, os.SEEK_SET)
                return os.read(handle, size)
            finally:
                os.close(handle)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_error(path, error) from error

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        new = path.with_name(path.name + ".tmp")
        with store_errors(path):
            make_directories(path.parent, sync_directory)
            _write(new, data)
            if keep and path.exists():
                old = path.with_name(path.name + ".old")
                _write(old, self.read(path))
                old.replace(path.with_name(path.name + ".bak"))
            new.replace(path)
            sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        with store_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def move(self, path: Path, target: Path) -> None:
        with store_errors(target):
            make_directories(target.parent, sync_directory)
            if path.exists():
                path.rename(target)

    def lock(self, path: Path, holder: str) -> DirectoryLock:
        return FileLock(path, holder)

    def usage(self, directory: Path) -> DiskUsage:
        usage = shutil.disk_usage(directory)
        # As `df` counts: blocks reserved for root are neither used nor free.
        return DiskUsage(usage.used + usage.free, usage.free)


class _DescriptorWriter:
    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        self._descriptor = open_regular(path, os.O_WRONLY | _O_BINARY)

    def write(self, start: int, data: bytes | memoryview) -> None:
        _write_at(self._descriptor, start, data)

    def close(self) -> None:
        os.close(self._descriptor)


def _size(entry: os.DirEntry[str]) -> int | None:
    """A file's size, None for a directory, `_GONE` for one deleted since it was listed.

    Raises StoreError for a dangling link.
    """
    try:
        return None if entry.is_dir() else entry.stat().st_size
    except OSError as error:
        if os.path.lexists(entry.path):
            raise store_error(Path(entry.path), error) from error
        return _GONE


def _write(path: Path, data: bytes) -> None:
    """Create a file with these bytes, durable except for its name.

    Always a new file: a second flush of a file whose flush has failed would prove nothing.
    """
    path.unlink(missing_ok=True)
    handle = open_private(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_BINARY)
    try:
        _write_all(handle, data)
        _sync(handle)
    finally:
        os.close(handle)


def _write_at(handle: int, start: int, data: bytes | memoryview) -> None:
    if hasattr(os, "pwrite"):  # one call instead of two
        written = os.pwrite(handle, data, start)
        if written == len(data):
            return
        start, data = start + written, memoryview(data)[written:]
    os.lseek(handle, start, os.SEEK_SET)
    _write_all(handle, data)


def _write_all(handle: int, data: bytes | memoryview) -> None:
    """Write all bytes: the system may take a part at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _create(path: Path) -> int:
    # Not path.open: there may be very many queues, and each pays this before its first message.
    flags = os.O_RDWR | os.O_CREAT | _O_BINARY
    try:
        return open_regular(path, flags)
    except FileNotFoundError:
        make_directories(path.parent)
        return open_regular(path, flags)


def _fill(file: FileIO, start: int, size: int) -> None:
    """Allocate blocks without fallocate: write back what the range reads as."""
    while size > 0:
        file.seek(start)
        piece = file.read(min(size, _PIECE_SIZE))
        file.seek(start)
        file.write(piece)
        start, size = start + len(piece), size - len(piece)


def _sync(handle: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        # fsync leaves the bytes in the drive's cache there.
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    elif sys.platform == "win32":
        os.fsync(handle)
    else:
        os.fdatasync(handle)


def sync_directory(path: Path) -> None:
    """Make a directory's names durable; nothing to do on Windows."""
    if sys.platform == "win32":  # directories cannot be opened there, and need not be
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _data_end(handle: int, size: int) -> int:
    end = at = 0
    while at < size:
        try:
            at = os.lseek(handle, os.lseek(handle, at, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                break
            return size
        end = at
    return min(end, size)


def _descriptors_max() -> int:
    """The process's limit of open files; 0 if unknown."""
    try:
        import resource  # not on Windows
    except ImportError:
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAPS_MAX * 2 if soft == resource.RLIM_INFINITY else soft
