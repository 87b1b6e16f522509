"""The consume window: what is in flight, and what may be committed.

    handled       in flight           not read yet
    ──────────┬─────────────────┬───────────────────▶ offsets
              committable       next

Progress is the offset of the lowest message still in flight, so a message that was not handled is
read again after a crash, however many behind it were.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final


class ConsumeWindow:
    """What one queue has in flight, from one pull to the next."""

    __slots__ = ("_done", "_order", "_sizes", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Where the next pull begins."""
        self.size = 0
        """Bytes in flight."""
        self._sizes: dict[int, int] = {}
        self._order: deque[int] = deque()
        self._done: set[int] = set()

    @property
    def count(self) -> int:
        """Messages in flight."""
        return len(self._sizes)

    @property
    def committable(self) -> int:
        """The progress that may be noted: everything before it is handled."""
        return self._order[0] if self._order else self.next_offset

    @property
    def span(self) -> int:
        """From the lowest to the highest offset in flight."""
        order = self._order
        while order and order[-1] in self._done:
            self._done.discard(order.pop())
        return order[-1] - order[0] if order else 0

    def take(self, found: Iterable[tuple[int, int]], next_offset: int) -> None:
        """Messages found, as (offset, size) in rising order, are in flight; go on from there."""
        for offset, size in found:
            assert not self._order or offset > self._order[-1], "offsets of a queue only grow"
            self._order.append(offset)
            self._sizes[offset] = size
            self.size += size
        self.next_offset = next_offset

    def finish(self, offset: int) -> None:
        """One message is handled; saying so twice, or of a message of a former window, is fine."""
        size = self._sizes.pop(offset, None)
        if size is None:
            return
        self.size -= size
        self._done.add(offset)
        while self._order and self._order[0] in self._done:
            self._done.discard(self._order.popleft())

    def move(self, next_offset: int) -> None:
        """The broker, or the user, says where to go on.

        Forward: what is in flight still counts. Back: it will be read again, so it is forgotten.
        """
        if next_offset < self.next_offset:
            self._order.clear()
            self._sizes.clear()
            self._done.clear()
            self.size = 0
        self.next_offset = next_offset


RETRY_PAUSE_MS: Final = 1_000
"""Before a message whose handler failed comes again; it doubles with each try."""

RETRY_PAUSE_MS_MAX: Final = 30_000
"""The longest of these pauses: what was broken outside is found mended within it."""


def retry_pause_ms(tries: int) -> int:
    """The pause before the next try of a message that failed so many times before."""
    return min(RETRY_PAUSE_MS << min(tries, 20), RETRY_PAUSE_MS_MAX)
