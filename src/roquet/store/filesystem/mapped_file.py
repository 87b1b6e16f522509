"""MappedFile: one file of full length, seen as memory; MapPool bounds how many are mapped.

Where there are more files than maps, files that are rarely written need no map: their last bytes
are buffered until a flush writes them without a map, or until somebody reads the file.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.store.filesystem.files import Files

log = logger(__name__)

path_of = lru_cache(64)(Path)
"""Cached: a caller that needs a path once needs it again at once, and making one costs 10 us."""


class MappedFile:
    """One file: mapped when it is read or often written, unmapped when others need the map more.

    `mapped_view` is its memory or None; frequent writers look there first and call `view`
    otherwise. `buffered` are the last bytes, from `buffered_at` on, while there is no map: those
    from `written` on are not in the file yet, and those in front of it spare a map to readers that
    come soon. `allocated` is the position up to which blocks are known to exist: only below it may
    be written.
    """

    __slots__ = (
        "_path",
        "allocated",
        "buffered",
        "buffered_at",
        "is_dirty",
        "is_growing",
        "is_new",
        "is_used",
        "mapped_view",
        "pool",
        "size",
        "start",
        "written",
    )

    def __init__(self, pool: "MapPool", path: Path, start: int, size: int) -> None:
        self.pool = pool
        self._path = str(path)  # a Path takes four times the memory, and there are many files
        self.start = start
        self.size = size
        self.mapped_view: memoryview | None = None
        self.allocated = 0
        self.is_used = False
        self.is_dirty = False
        self.is_growing = False
        self.is_new = False
        self.buffered = b""
        self.buffered_at = 0
        self.written = 0

    @property
    def path(self) -> Path:
        """The path of the file."""
        return path_of(self._path)

    def view(self) -> memoryview:
        """The whole file as memory. Slices that others hold outlive the map."""
        self.is_used = True
        view = self.mapped_view
        return self.pool.map_file(self) if view is None else view

    def view_to_write(self) -> memoryview | None:
        """The file as memory, or None if the caller is to `buffer` its bytes."""
        if self.pool.has_free_map or self.unwritten >= BUFFERED_MAX_BYTES:
            return self.view()
        return None

    @property
    def unwritten(self) -> int:
        """How many buffered bytes are not in the file yet."""
        return self.buffered_at + len(self.buffered) - self.written if self.buffered else 0

    def buffer(self, at: int, data: bytes) -> None:
        """Buffer bytes for position `at` of the file; they follow those buffered already."""
        if not self.buffered:
            self.buffered_at = self.written = at
        self.buffered += data
        self.mark_dirty()

    def write_buffered(self) -> None:
        """Write the unwritten bytes without a map; those written before leave the buffer."""
        data = self.buffered[self.written - self.buffered_at :]
        self.pool.files.write(self.path, self.written, data)
        self.buffered, self.buffered_at = data, self.written
        self.written += len(data)

    def locate(self, at: int) -> tuple[memoryview | bytes, int]:
        """Memory that holds the file from a position on, and the position's index in it."""
        view = self.mapped_view
        if view is not None:
            self.is_used = True
            return view, at
        if self.buffered and at >= self.buffered_at:
            return self.buffered, at - self.buffered_at
        return self.view(), at

    def create(self) -> None:
        """Create the file in its full length; no blocks yet. Raises StoreFull."""
        self.pool.files.create(self.path, self.size)
        self.is_new = True

    def extend(self, end: int, step: int) -> None:
        """Allocate blocks up to `end` at least, in steps, so that writing below it cannot fail.

        Raises StoreFull. Existing blocks keep their content. The first step begins at the caller's
        next write, since older bytes have their blocks.
        """
        target = min(self.size, -(-end // step) * step)
        if target > self.allocated:
            self.pool.files.allocate(self.path, self.allocated, target - self.allocated)
            self.allocated = target
            self.set_growing(True)

    def set_growing(self, is_growing: bool) -> None:
        """Say whether the next writes go to pages that were never touched."""
        if self.is_growing is not is_growing:
            self.is_growing = is_growing
            if self.mapped_view is not None:
                self.pool.files.advise_growth(self.mapped_view, is_growing)

    @contextmanager
    def random_access(self) -> Iterator[None]:
        """Suspend read-ahead: around scattered reads it would make megabytes of zeros."""
        was_growing = self.is_growing
        self.set_growing(True)
        try:
            yield
        finally:
            self.set_growing(was_growing)

    def clear(self, start: int) -> bool:
        """Zero the file from `start` on; True if anything else was there.

        Pages that hold zeros are not touched: they may have no blocks to be written to.
        """
        if start < self.buffered_at + len(self.buffered):
            self.view()  # writes the buffer
        end = self.pool.files.data_end(self.path, self.size)
        if start >= end:
            return False
        has_changed = False
        with self.random_access():
            view = self.view()
            while start < end:
                stop = min(end, (start // PAGE_SIZE + 1) * PAGE_SIZE)
                zeros = bytes(stop - start)
                if bytes(view[start:stop]) != zeros:
                    view[start:stop] = zeros
                    has_changed = True
                start = stop
        if has_changed:
            self.mark_dirty()
        return has_changed

    def rewrite(self, start: int, stop: int) -> None:
        """Write a range of the file once more, for the next flush to make durable.

        The previous process may have died, or met a disk failure, before these bytes were durable;
        the system shows them and may believe that they are on the disk already. Zeros are left out:
        they may have no blocks. Raises OSError.
        """
        if start >= stop:
            return
        view = self.view()
        for at in range(start // PAGE_SIZE * PAGE_SIZE, stop, REWRITE_SIZE):
            data = bytes(view[at : min(at + REWRITE_SIZE, stop)])
            if data.strip(b"\0"):
                self.pool.files.write(self.path, at, data)
        self.mark_dirty()

    def mark_dirty(self) -> None:
        """Note that the file has bytes to be made durable."""
        if not self.is_dirty:
            self.is_dirty = True
            self.pool.dirty.append(self)


PAGE_SIZE = 4096

REWRITE_SIZE: Final = 64 * 1024
"""Bytes rewritten at a time."""

BUFFERED_MAX_BYTES: Final = 4096
"""A file with this many unwritten bytes within one flush is written often enough for a map."""


class MapPool:
    """The maps held at once; when there are too many, an unused one is dropped (second chance)."""

    def __init__(self, files: Files, maps_max: int, *, writable: bool = True) -> None:
        self.files = files
        self._maps_max = maps_max
        self.is_writable = writable
        self.has_durable_names = True
        """Whether the names of existing files are durable: not after a crash."""
        self._held: dict[MappedFile, None] = {}
        self.dirty: list[MappedFile] = []
        """Files written to since `take_dirty`."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_free_map(self) -> bool:
        """Whether another file can be mapped without unmapping one."""
        return len(self._held) < self._maps_max

    def map_file(self, file: MappedFile) -> memoryview:
        """Map a file, and unmap another when there are too many."""
        while len(self._held) >= self._maps_max:
            self._drop_one()
        try:
            view = self.files.map(file.path, file.size, writable=self.is_writable)
        except StoreError as error:
            if not self._held or not _is_too_many(error):
                raise
            self._shrink()
            view = self.files.map(file.path, file.size, writable=self.is_writable)
        file.mapped_view = view
        if file.is_growing:
            self.files.advise_growth(view, True)
        self._held[file] = None
        if file.buffered:
            view[file.buffered_at : file.buffered_at + len(file.buffered)] = file.buffered
            file.buffered = b""
        return view

    def drop(self, file: MappedFile) -> None:
        """Unmap a file that is deleted or no longer used; slices that readers hold stay valid."""
        file.mapped_view = None
        file.buffered = b""
        self._held.pop(file, None)

    def take_dirty(self) -> list[MappedFile]:
        """The files that have to be made durable; marking starts anew."""
        taken, self.dirty = self.dirty, []
        for file in taken:
            file.is_dirty = False
        return taken

    def drop_all(self) -> None:
        """Unmap everything."""
        for file in list(self._held):
            self.drop(file)

    def _shrink(self) -> None:
        """Lower the limit to what the process can map: connections take descriptors, too."""
        self._maps_max = max(len(self._held) * 3 // 4, 1)
        log.warning("only %d files can be mapped at once (see ulimit -n)", self._maps_max)
        while len(self._held) >= self._maps_max:
            self._drop_one()

    def _drop_one(self) -> None:
        while True:
            oldest = next(iter(self._held))
            del self._held[oldest]
            if not oldest.is_used:
                oldest.mapped_view = None
                return
            oldest.is_used = False
            self._held[oldest] = None


def _is_too_many(error: StoreError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENOMEM)
