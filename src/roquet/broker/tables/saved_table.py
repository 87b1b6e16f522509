"""SavedTable: a table with a version, saved atomically as JSON.

The files are those of the genuine broker: JSON in fastjson's dialect below `config/`, with the
previous edition as `.bak`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from roquet.log_records import logger
from roquet.model.errors import FieldError, StoreError
from roquet.model.topic import DataVersion
from roquet.net.threads import in_thread
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import Files
from roquet.wire.fastjson import codec

log = logger(__name__)

S = TypeVar("S", bound=msgspec.Struct)


class _Unreadable(StoreError):
    """A file that exists and cannot be read."""


class TableFile:
    """One JSON file and its `.bak`."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path
        self._lock = Lock()
        self._kept = codec.EncodedTextCache()
        self._started = self._written = 0
        self._backup = path.with_name(f"{path.name}.bak")
        self._has_backup = True

    def read(self, wanted: type[S]) -> S | None:
        """The content of the file, else of its `.bak`; None when there is neither.

        Raises StoreError when neither can be parsed, and for a file that cannot be read: it may be
        newer than its `.bak`.
        """
        try:
            table = self._parse(self.path, wanted)
        except _Unreadable:
            raise
        except StoreError as error:
            saved = self._parse(self._backup, wanted)
            if saved is None:
                raise
            log.warning("%s (now its .bak is used)", error)
            return saved
        if table is None:
            table = self._parse(self._backup, wanted)
            if table is not None:
                log.warning("%s is missing: its .bak is used", self.path)
            self._has_backup = table is not None
        return table

    def fault(self, wanted: type[S]) -> tuple[str, bool] | None:
        """Why the file cannot be used, and whether its `.bak` is instead; None without a fault."""
        try:
            self._parse(self.path, wanted)
        except _Unreadable as error:
            return str(error), False
        except StoreError as error:
            with suppress(StoreError):
                return str(error), self._parse(self._backup, wanted) is not None
            return str(error), False
        return None

    def writing(self, value: msgspec.Struct) -> Callable[[], None]:
        """The work of replacing the file's content; it may be done in another thread.

        The value must not change meanwhile.
        """
        self._started = turn = self._started + 1

        def work() -> None:
            # A save in another thread may be late: a newer one stays.
            with self._lock:
                if turn > self._written:
                    data = codec.dumps(value, pretty=True, text_cache=self._kept)
                    self._files.replace(self.path, data, keep=True)
                    if not self._has_backup:  # from the first edition on there are two copies
                        self._files.replace(self._backup, data)
                        self._has_backup = True
                    self._written = turn

        return work

    def _parse(self, path: Path, wanted: type[S]) -> S | None:
        try:
            data = self._files.read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _Unreadable(str(store_error(path, error))) from error
        # Another table is JSON as well: all its keys would be ignored, and the table be empty.
        key = wanted.__struct_encode_fields__[0]
        try:
            table, fault = codec.loads(data, wanted), f"there is no {key} in it"
        except FieldError as error:
            table, fault = None, str(error)
        if table is None or key.encode() not in data:
            raise StoreError(
                f"{path} cannot be read: {fault}; mend it, or delete it to begin with none"
            )
        return table


class TableChange(NamedTuple):
    """A change of a table in memory that is not saved yet."""

    undo: Callable[[], object]
    """Undo it, where nothing else has changed the same since: the save has failed."""
    done: Callable[[], object]
    """Called when it is on the disk."""


def _nothing() -> None:
    pass


NO_CHANGE: Final = TableChange(_nothing, _nothing)


class SavedTable(Generic[S]):
    """Base of the tables: a version, and saving."""

    kind: type[S]

    def __init__(self, file: TableFile | None) -> None:
        self._file = file
        self.version = DataVersion()
        self.edition = 0
        """Count of the changes in this process: unlike the version every change raises it, of
        offsets, too. A save that failed counts as one."""
        self._unsaved = False
        self._changing = asyncio.Lock()
        self._threads = 0
        """Saves running in threads: what they write is not on the disk yet."""
        table = file.read(self.kind) if file else None
        self.is_new = file is not None and table is None
        """Whether there was no file: the broker is new, or the file was lost."""
        if table is not None:
            self.take(table)

    @property
    def unsaved(self) -> bool:
        """Whether the table has changed since its last save; to set it notes a change."""
        return self._unsaved

    @unsaved.setter
    def unsaved(self, unsaved: bool) -> None:
        self._unsaved = unsaved
        self.edition += unsaved

    def take(self, table: S) -> None:
        """Take the content of a file."""
        raise NotImplementedError

    def content(self) -> S:
        """The content to save."""
        raise NotImplementedError

    def touch(self, now_ms: int) -> None:
        """Raise the version, and note that the table is not saved."""
        self.version = self.version.next(now_ms)
        self.unsaved = True

    def save(self) -> None:
        """Write the file, if the table has changed."""
        if self._threads:
            self.unsaved = True
        if work := self.saving():
            try:
                work()
            except BaseException:
                self.unsaved = True
                raise

    async def saved(self, before: Callable[[], object] = _nothing) -> None:
        """Write the file in a thread, after `before`; returns when the file is up to date.

        A save that is still running may fail, so its content counts as not saved.
        """
        if self._threads:
            self.unsaved = True
        if (work := self.saving()) is None:
            return

        def both() -> None:
            before()
            work()

        self._threads += 1
        try:
            await in_thread(both)
        except BaseException:
            self.unsaved = True
            raise
        finally:
            self._threads -= 1

    async def change(self, begin: Callable[[], TableChange]) -> None:
        """Make a change and save it in a thread; undo it when the save fails.

        Changes are serialized: each starts from what is on the disk.
        """
        async with self._changing:
            change = begin()
            try:
                await self.saved()
            except BaseException:
                change.undo()
                raise
            change.done()

    def change_now(self, change: TableChange) -> None:
        """Save a change at once, for callers that cannot wait; undo it when the save fails."""
        try:
            self.save()
        except BaseException:
            change.undo()
            raise
        change.done()

    def saving(self) -> Callable[[], None] | None:
        """The work of `save`, for this or another thread; None when nothing has changed.

        The caller sets `unsaved` again if the work fails.
        """
        if not self._unsaved:
            return None
        self._unsaved = False
        return self._file.writing(self.content()) if self._file else None
