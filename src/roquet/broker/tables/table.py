"""Table: a dict with a version, saved atomically.

The files are the genuine broker's: JSON in Java's dialect below `config/`, the edition before
beside it as `.bak`.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

import msgspec

from roquet.model.errors import FieldError, StoreError
from roquet.model.topic import DataVersion
from roquet.store.files import Files
from roquet.wire import dialect

log = logging.getLogger(__name__)

S = TypeVar("S", bound=msgspec.Struct)


class TableFile:
    """One JSON file and its `.bak`."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path
        self._lock = Lock()
        self._kept = dialect.Kept()
        self._given = self._written = 0

    def read(self, wanted: type[S]) -> S | None:
        """What the file says, else its `.bak`; None when there is neither."""
        backup = self.path.with_name(f"{self.path.name}.bak")
        try:
            found = self._parse(self.path, wanted)
            return self._parse(backup, wanted) if found is None else found
        except StoreError as error:
            saved = self._parse(backup, wanted)
            if saved is None:
                raise
            log.warning("%s (now its .bak is used)", error)
            return saved

    def writing(self, value: msgspec.Struct) -> Callable[[], None]:
        """The work of replacing what the file says: it may be done in another thread."""
        data = dialect.dumps(value, pretty=True, kept=self._kept)
        self._given = turn = self._given + 1

        def work() -> None:
            # A save in another thread may be late: what is newer stays.
            with self._lock:
                if turn > self._written:
                    self._files.replace(self.path, data, keep=True)
                    self._written = turn

        return work

    def _parse(self, path: Path, wanted: type[S]) -> S | None:
        try:
            return dialect.loads(self._files.read(path), wanted)
        except FileNotFoundError:
            return None
        except FieldError as error:
            raise StoreError(
                f"{path} cannot be read: {error}; mend it, or delete it to begin with none"
            ) from error


class Table(Generic[S]):
    """What tables share: a version, and when to save."""

    kind: type[S]

    def __init__(self, file: TableFile | None) -> None:
        self._file = file
        self.version = DataVersion()
        self.unsaved = False
        found = file.read(self.kind) if file else None
        if found is not None:
            self.take(found)

    def take(self, found: S) -> None:
        """Hold what a file said."""
        raise NotImplementedError

    def content(self) -> S:
        """What the file should say."""
        raise NotImplementedError

    def touch(self, now_ms: int) -> None:
        """Note that the table is another edition now."""
        self.version = self.version.next(now_ms)
        self.unsaved = True

    def save(self) -> None:
        """Write the file, if it does not say what the table holds."""
        if work := self.saving():
            try:
                work()
            except BaseException:
                self.unsaved = True
                raise

    def saving(self) -> Callable[[], None] | None:
        """The work of `save`, to be done at once or in another thread; None without any.

        Who does the work sets `unsaved` again should it fail.
        """
        if not self.unsaved:
            return None
        self.unsaved = False
        return self._file.writing(self.content()) if self._file else None
