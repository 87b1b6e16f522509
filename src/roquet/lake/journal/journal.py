"""Journals: small named records that change in place, and those in a directory.

A directory has a lock for the one process that changes them, an object store a compare-and-set. A
record in a directory appears whole or not at all. The added records of a change appear before the
removed ones go: a kill in between leaves both.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from roquet.lake.files.disk import Disk
from roquet.model.errors import StoreError


class Journal(Protocol):
    """Records by name."""

    def read(self) -> None:
        """Take in what other processes have changed."""

    def names(self) -> list[str]:
        """The sorted names of the records; other names may be among them."""

    def content(self, name: str) -> bytes:
        """The content of a record."""

    def address(self, name: str) -> str:
        """The path or URL of a record, for users."""

    def change(self, added: Mapping[str, bytes], removed: Collection[str] = ()) -> None:
        """Add or replace records durably, and remove others. Raises RoquetError."""


class ExclusiveJournal(Journal, Protocol):
    """Records that one process at a time changes."""

    def locked(
        self, timeout_ms: int, pause: Callable[[int], object]
    ) -> AbstractContextManager[None]:
        """Exclude other processes; StoreError after the timeout."""

    def check_lock(self) -> None:
        """Raise RoquetError when another process may have the lock by now."""


class DirectoryJournal:
    """The records in a directory, which is created by its first change."""

    def __init__(self, directory: Path, record: str, disk: Disk | None = None) -> None:
        """`record` says in errors what a record is, such as "commit record"."""
        self.directory, self._record, self._disk = directory, record, disk or Disk()

    def read(self) -> None:
        """Do nothing: each call reads the directory."""

    def names(self) -> list[str]:
        """The sorted names of the directory's files, of which some may be no records."""
        return sorted(path.name for path in self.directory.glob("*"))

    def content(self, name: str) -> bytes:
        """The content of a record; OSError for one that is not there."""
        return (self.directory / name).read_bytes()

    def address(self, name: str) -> str:
        """The path of a record, for users."""
        return str(self.directory / name)

    def make(self) -> None:
        """Create the directory; StoreError when it cannot be."""
        try:
            self._disk.make(self.directory)
        except OSError as error:
            text = f"the {self._record}s cannot be in {self.directory}: {error}"
            raise StoreError(text) from None

    def change(self, added: Mapping[str, bytes], removed: Collection[str] = ()) -> None:
        """Add records durably, then remove others; StoreError for one that cannot be written."""
        self.make()
        for name, data in added.items():
            path = self.directory / name
            try:
                self._disk.put(path, data)
            except OSError as error:
                text = f"a {self._record} cannot be written to {path}: {error}"
                raise StoreError(text) from error
        for name in removed:
            self._disk.remove(self.directory / name)
        if removed:
            self._disk.sync(self.directory)
