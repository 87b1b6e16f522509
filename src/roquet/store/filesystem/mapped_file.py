"""MappedFile: one file of full length, seen as memory; MapPool bounds how many are held.

Where there are more files than maps, those that are only written to now and then need none: what
goes to them is kept, until a flush writes it without a map or somebody looks at the file.
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
"""A path from its text; whoever asks once asks again at once, and making one costs 10 us."""


class MappedFile:
    """One file: mapped when looked at, perhaps unmapped when others are needed more.

    `held` is its memory or None; whoever writes often looks there first and asks `view` else.
    `kept` are the last bytes, from `kept_at` on, while there is no map: from `written` on they wait
    to be written, and in front of it they save a map to who reads them soon.
    `reach` says how far its blocks are known to be on the disk: only below it may be written.
    """

    __slots__ = (
        "_path",
        "held",
        "is_dirty",
        "is_growing",
        "is_new",
        "is_used",
        "kept",
        "kept_at",
        "pool",
        "reach",
        "size",
        "start",
        "written",
    )

    def __init__(self, pool: "MapPool", path: Path, start: int, size: int) -> None:
        self.pool = pool
        self._path = str(path)  # a Path takes four times the memory, and there are many files
        self.start = start
        self.size = size
        self.held: memoryview | None = None
        self.reach = 0
        self.is_used = False
        self.is_dirty = False
        self.is_growing = False
        self.is_new = False
        self.kept = b""
        self.kept_at = 0
        self.written = 0

    @property
    def path(self) -> Path:
        """Where the file is."""
        return path_of(self._path)

    def view(self) -> memoryview:
        """The whole file as memory. Parts of it that are in others' hands outlive the map."""
        self.is_used = True
        held = self.held
        return self.pool.hold(self) if held is None else held

    def hold_to_write(self) -> memoryview | None:
        """The file as memory, or None: keep what is to be written."""
        if self.pool.has_room or self.waiting >= PENDING_MAX:
            return self.view()
        return None

    @property
    def waiting(self) -> int:
        """How many bytes wait to be written."""
        return self.kept_at + len(self.kept) - self.written if self.kept else 0

    def keep(self, at: int, data: bytes) -> None:
        """Remember what goes to a place of the file, right behind what is remembered already."""
        if not self.kept:
            self.kept_at = self.written = at
        self.kept += data
        self.mark()

    def write_kept(self) -> None:
        """Write what waits, without a map; what was written the last time is kept no longer."""
        data = self.kept[self.written - self.kept_at :]
        self.pool.files.write(self.path, self.written, data)
        self.kept, self.kept_at = data, self.written
        self.written += len(data)

    def look(self, at: int) -> tuple[memoryview | bytes, int]:
        """What holds a place of the file, and all behind it, and where in that the place is."""
        held = self.held
        if held is not None:
            self.is_used = True
            return held, at
        if self.kept and at >= self.kept_at:
            return self.kept, at - self.kept_at
        return self.view(), at

    def make(self) -> None:
        """Create the file in its full length; no blocks yet. Raises StoreFull."""
        self.pool.files.create(self.path, self.size)
        self.is_new = True

    def extend(self, end: int, step: int) -> None:
        """Blocks up to `end` at least, in steps, so that writing below cannot fail.

        Raises StoreFull. Blocks that are there already stay as they are; the first step begins
        where the caller writes next, since older bytes have theirs.
        """
        target = min(self.size, -(-end // step) * step)
        if target > self.reach:
            self.pool.files.allocate(self.path, self.reach, target - self.reach)
            self.reach = target
            self.grow(True)

    def grow(self, is_growing: bool) -> None:
        """Say whether more is about to be written to pages that were never touched."""
        if self.is_growing is not is_growing:
            self.is_growing = is_growing
            if self.held is not None:
                self.pool.files.growing(self.held, is_growing)

    @contextmanager
    def leaping(self) -> Iterator[None]:
        """Pages are looked at here and there: reading ahead would make megabytes of zeros."""
        was_growing = self.is_growing
        self.grow(True)
        try:
            yield
        finally:
            self.grow(was_growing)

    def clear(self, start: int) -> bool:
        """Zeros from `start` on; whether anything else was there.

        Pages that hold zeros are not touched: they may have no blocks to be written to.
        """
        if start < self.kept_at + len(self.kept):
            self.view()  # writes it
        end = self.pool.files.data_end(self.path, self.size)
        if start >= end:
            return False
        found = False
        with self.leaping():
            view = self.view()
            while start < end:
                stop = min(end, (start // PAGE_SIZE + 1) * PAGE_SIZE)
                zeros = bytes(stop - start)
                if bytes(view[start:stop]) != zeros:
                    view[start:stop] = zeros
                    found = True
                start = stop
        if found:
            self.mark()
        return found

    def redo(self, start: int, stop: int) -> None:
        """Write what the file holds between two places once more, for the next flush to keep.

        The process before may have died, or been told that the disk failed, before these bytes
        were durable. The system shows them and may believe that they are on the disk already.
        Zeros are left out: they may have no blocks. Raises OSError.
        """
        if start >= stop:
            return
        view = self.view()
        for at in range(start // PAGE_SIZE * PAGE_SIZE, stop, REWRITE_SIZE):
            data = bytes(view[at : min(at + REWRITE_SIZE, stop)])
            if data.strip(b"\0"):
                self.pool.files.write(self.path, at, data)
        self.mark()

    def mark(self) -> None:
        """Remember that there is something to be made durable."""
        if not self.is_dirty:
            self.is_dirty = True
            self.pool.dirty.append(self)


PAGE_SIZE = 4096

REWRITE_SIZE: Final = 64 * 1024
"""Bytes written once more at a time."""

PENDING_MAX: Final = 4096
"""So many bytes within one flush, and a file is written to often enough to be worth a map."""


class MapPool:
    """The maps held at once: who was not used since the last look goes first."""

    def __init__(self, files: Files, maps_max: int, *, writable: bool = True) -> None:
        self.files = files
        self._maps_max = maps_max
        self.is_writable = writable
        self.has_sure_names = True
        """Whether the names of files that were found are durable: not after a crash."""
        self._held: dict[MappedFile, None] = {}
        self.dirty: list[MappedFile] = []
        """Files written to since `take_dirty`."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_room(self) -> bool:
        """Whether one more map takes nobody's place."""
        return len(self._held) < self._maps_max

    def hold(self, file: MappedFile) -> memoryview:
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
        file.held = view
        if file.is_growing:
            self.files.growing(view, True)
        self._held[file] = None
        if file.kept:
            view[file.kept_at : file.kept_at + len(file.kept)] = file.kept
            file.kept = b""
        return view

    def drop(self, file: MappedFile) -> None:
        """Unmap a file that is gone or done; slices of it that somebody still reads keep theirs."""
        file.held = None
        file.kept = b""
        self._held.pop(file, None)

    def take_dirty(self) -> list[MappedFile]:
        """What has to be made durable; from now on files are marked anew."""
        taken, self.dirty = self.dirty, []
        for file in taken:
            file.is_dirty = False
        return taken

    def drop_all(self) -> None:
        """Unmap everything."""
        for file in list(self._held):
            self.drop(file)

    def _shrink(self) -> None:
        """The process may have fewer maps than was thought: connections take descriptors, too."""
        self._maps_max = max(len(self._held) * 3 // 4, 1)
        log.warning("only %d files can be held mapped (see ulimit -n)", self._maps_max)
        while len(self._held) >= self._maps_max:
            self._drop_one()

    def _drop_one(self) -> None:
        while True:
            oldest = next(iter(self._held))
            del self._held[oldest]
            if not oldest.is_used:
                oldest.held = None
                return
            oldest.is_used = False
            self._held[oldest] = None


def _is_too_many(error: StoreError) -> bool:
    """Whether the process has as many files open, or maps, as it may have."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENOMEM)
