"""MemoryFiles: the store's files in memory, for `--memory` and tests."""
# ruff: noqa: D102 - the methods are described in Files

import errno
import mmap
from pathlib import Path
from typing import Final

from roquet.rules.retention import DiskUsage
from roquet.store.filesystem.directory_lock import DirectoryLock, locked_error, store_error
from roquet.store.filesystem.files import MAPS_MAX, FileWriter
from roquet.store.filesystem.libc import DiskSync

CHUNK_SIZE: Final = 64 * 1024
EMPTY_CHUNK: Final = bytes(CHUNK_SIZE)
"""Files are copied in chunks of this size: large files are mostly empty."""


class MemoryFiles:
    """Files that vanish with the process. `capacity` is the size of the simulated disk in bytes."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self.contents: dict[Path, mmap.mmap | bytes] = {}
        self.blocks: dict[Path, int] = {}
        self._held: set[Path] = set()

    def copy(self) -> "MemoryFiles":
        """An independent copy: what the next process finds after this one was killed."""
        twin = MemoryFiles(self.capacity)
        twin.blocks = dict(self.blocks)
        for path, content in self.contents.items():
            twin.contents[path] = content if isinstance(content, bytes) else _twin(content)
        return twin

    def list(self, directory: Path) -> dict[str, int | None]:
        sizes: dict[str, int | None] = {}
        prefix = f"{directory}/"
        # A copy: a flush in another thread may add files.
        for path, content in tuple(self.contents.items()):
            if (text := str(path)).startswith(prefix):
                name, inner, _ = text[len(prefix) :].partition("/")
                sizes[name] = None if inner else len(content)
        return sizes

    def create(self, path: Path, size: int) -> None:
        old = self.contents.get(path, b"")
        if len(old) < size:
            self.contents[path] = content = mmap.mmap(-1, size)
            content[: len(old)] = old[:]

    def allocate(self, path: Path, start: int, size: int) -> None:
        allocated = self.blocks.get(path, 0)
        more = max(0, start + size - allocated)
        if sum(self.blocks.values()) + more > self.capacity:
            raise store_error(path, OSError(errno.ENOSPC, "No space left on device"))
        self.blocks[path] = allocated + more

    def map(self, path: Path, size: int, *, writable: bool = True) -> memoryview:
        view = memoryview(self.contents[path])[:size]
        return view if writable else view.toreadonly()

    def maps_max(self) -> int:
        """See Files: without descriptors there is no limit."""
        return MAPS_MAX

    def write(self, path: Path, start: int, data: bytes | memoryview) -> None:
        content = self.contents.get(path)
        if content is None:
            raise FileNotFoundError(str(path))
        memoryview(content)[start : start + len(data)] = data

    def open_writer(self, path: Path) -> FileWriter:
        if path not in self.contents:
            raise FileNotFoundError(str(path))
        return _MemoryWriter(self, path)

    def advise_growth(self, view: memoryview, is_growing: bool) -> None:
        """Do nothing: there is no disk to read ahead from."""

    def release_pages(self, view: memoryview, size: int) -> None:
        """Do nothing: the only copy of the bytes is here."""

    def data_end(self, path: Path, size: int) -> int:
        return min(size, self.blocks.get(path, 0))

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        """Do nothing: nothing survives a loss of power."""

    def disk_sync(self, _directory: Path) -> DiskSync | None:
        """None: there is no disk."""
        return None

    def read(self, path: Path) -> bytes:
        try:
            return bytes(self.contents[path])
        except KeyError:
            raise FileNotFoundError(str(path)) from None

    def peek(self, path: Path, start: int, size: int) -> bytes:
        try:
            return self.contents[path][start : start + size]
        except KeyError:
            raise FileNotFoundError(str(path)) from None

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        if keep and path in self.contents:
            self.contents[path.with_name(path.name + ".bak")] = self.contents[path]
        self.contents[path] = data

    def remove(self, path: Path) -> None:
        for removed in [p for p in self.contents if p == path or is_inside(p, path)]:
            self.contents.pop(removed)
            self.blocks.pop(removed, None)

    def move(self, path: Path, target: Path) -> None:
        for moved in [p for p in self.contents if is_inside(p, path)]:
            name = target / moved.relative_to(path)
            self.contents[name] = self.contents.pop(moved)
            if moved in self.blocks:
                self.blocks[name] = self.blocks.pop(moved)

    def lock(self, path: Path, holder: str) -> DirectoryLock:
        if path in self._held:
            raise locked_error(path, holder)
        self._held.add(path)
        return _MemoryLock(self._held, path)

    def usage(self, _directory: Path) -> DiskUsage:
        return DiskUsage(self.capacity, self.capacity - sum(self.blocks.values()))


class _MemoryWriter:
    def __init__(self, files: MemoryFiles, path: Path) -> None:
        self._files, self._path = files, path

    def write(self, start: int, data: bytes | memoryview) -> None:
        self._files.write(self._path, start, data)

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class _MemoryLock:
    def __init__(self, held: set[Path], path: Path) -> None:
        self._held, self._path = held, path

    def release(self) -> None:
        """Let others take the directory."""
        self._held.discard(self._path)


def is_inside(path: Path, directory: Path) -> bool:
    """Whether a file is in a directory or below it; `Path.parents` would be slower by far."""
    return str(path).startswith(f"{directory}/")


def _twin(content: mmap.mmap) -> mmap.mmap:
    """A copy; empty chunks are not touched, so that they cost no memory in either."""
    twin = mmap.mmap(-1, len(content))
    for start in range(0, len(content), CHUNK_SIZE):
        piece = content[start : start + CHUNK_SIZE]
        if piece != EMPTY_CHUNK[: len(piece)]:
            twin[start : start + CHUNK_SIZE] = piece
    return twin
