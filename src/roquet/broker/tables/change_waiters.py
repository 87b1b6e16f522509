"""ChangeWaiters: replicas that wait for a change of the tables, so many at once; in memory only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

WAITERS_MAX: Final = 32
"""Requests that may wait: each looks at the tables every few milliseconds. More than a group has
replicas, and few enough that nobody stops the broker with such requests."""


class ChangeWaiters:
    """Counts the requests that wait."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def place(self) -> Iterator[bool]:
        """A place for one request while the block lasts; False when all are taken."""
        is_free = self.count < WAITERS_MAX
        self.count += is_free
        try:
            yield is_free
        finally:
            self.count -= is_free
