"""The interface of journals: small named records that change in place.

A directory has a lock for the one process that changes them, an object store a compare-and-set.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol


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
