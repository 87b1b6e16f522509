"""Consume window: messages of a queue in flight, and the progress that may be committed.

    handled       in flight           not read yet
    ──────────┬─────────────────┬───────────────────▶ offsets
              committable       next

Progress is the offset of the lowest message still in flight, so a message that was not handled is
read again after a crash, whatever was handled behind it.
"""

from collections.abc import Iterable
from typing import Final


class ConsumeWindow:
    """Messages of one queue in flight, across pulls."""

    __slots__ = ("_sizes", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Offset of the next pull."""
        self.size = 0
        """Bytes in flight."""
        self._sizes: dict[int, int] = {}
        """Bytes of each message in flight, in the order of offsets."""

    @property
    def count(self) -> int:
        """Messages in flight."""
        return len(self._sizes)

    @property
    def committable(self) -> int:
        """Progress that may be committed: every message before it is handled."""
        return next(iter(self._sizes), self.next_offset)

    @property
    def span(self) -> int:
        """Distance from the lowest to the highest offset in flight."""
        return next(reversed(self._sizes)) - next(iter(self._sizes)) if self._sizes else 0

    def take(self, messages: Iterable[tuple[int, int]], next_offset: int) -> None:
        """Add messages in flight, as (offset, size) in rising order; sets the next offset."""
        highest = next(reversed(self._sizes), -1)
        for offset, size in messages:
            assert offset > highest, "offsets of a queue only grow"
            highest = offset
            self._sizes[offset] = size
            self.size += size
        self.next_offset = next_offset

    def finish(self, offset: int) -> None:
        """Mark a message as handled; repeated calls, and unknown messages, change nothing."""
        self.size -= self._sizes.pop(offset, 0)

    def move(self, next_offset: int) -> None:
        """Continue at another offset, as the broker or the user decided.

        Forward: messages in flight still count. Back: they will be read again, so they are
        forgotten.
        """
        if next_offset < self.next_offset:
            self._sizes.clear()
            self.size = 0
        self.next_offset = next_offset


RETRY_PAUSE_MS: Final = 1_000
"""Pause before a message whose handler failed is retried; it doubles with each try."""

RETRY_PAUSE_MS_MAX: Final = 30_000
"""Longest pause: a repaired dependency is noticed within it."""


def retry_pause_ms(tries: int) -> int:
    """Pause before the next try of a message that has failed `tries` times."""
    return min(RETRY_PAUSE_MS << min(tries, 20), RETRY_PAUSE_MS_MAX)
