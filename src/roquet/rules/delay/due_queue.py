"""Due queue: the messages of one second, in the order of their due times.

chain of units ──▶ read one by one ──▶ by due time, then by arrival ──▶ delivered
                    │
                    └▶ keys of cancelled messages
"""

from heapq import heapify, heappop, heappush
from typing import Final

POSITION_BITS: Final = 48
"""Bits of a unit's position, packed into one number with its time: 256 TiB of timer log."""

_POSITION_MASK: Final = (1 << POSITION_BITS) - 1


class DueQueue:
    """Messages of one second, a number for each, since there may be a million."""

    def __init__(self, begin_ms: int, last: int, done: tuple[int, int]) -> None:
        self.begin_ms = begin_ms
        self.next = last
        """Next unit to read: a chain, from the newest back; -1 at its end."""
        self._done = self._key(*done) if done[0] else -1
        self._keys: list[int] = []
        self._is_ordered = False
        self._recalled: set[tuple[str, str]] = set()

    @property
    def is_known(self) -> bool:
        """Whether all units have been read, so that the first due message is known."""
        return self.next < 0

    def add(self, due_ms: int, position: int) -> None:
        """Add a message, unless it was delivered before."""
        key = self._key(due_ms, position)
        if key <= self._done:
            return
        if self._is_ordered:
            heappush(self._keys, key)
        else:
            self._keys.append(key)

    def recall(self, topic: str, unique_key: str) -> None:
        """Cancel a message."""
        self._recalled.add((topic, unique_key))

    def is_recalled(self, topic: str, unique_key: str) -> bool:
        """Whether a message was cancelled by its sender."""
        return (topic, unique_key) in self._recalled

    def first(self) -> tuple[int, int] | None:
        """Due time and unit position of the next message; None if none is left."""
        if not self._is_ordered:
            heapify(self._keys)
            self._is_ordered = True
        if not self._keys:
            return None
        key = self._keys[0]
        return self.begin_ms + (key >> POSITION_BITS), key & _POSITION_MASK

    def drop(self) -> None:
        """Remove the first message."""
        heappop(self._keys)

    def _key(self, due_ms: int, position: int) -> int:
        """Number that sorts messages by time and then by arrival."""
        return max(due_ms - self.begin_ms, 0) << POSITION_BITS | position
