"""Rows: the entries of a queue that are wanted, some at a time.

Entries are unpacked many together. Where some tags are wanted, which may be few of many, they are
searched for instead; where that finds every fourth entry, unpacking all of them is cheaper.
"""

from collections.abc import Callable, Sequence
from typing import Final

from roquet.store.commit_log.extents import IntColumn, select_rows
from roquet.store.consume_queue.queues import ConsumeQueue

UNPACK_MIN: Final = 32
"""Entries looked at in one step at least, when few messages are still to be found."""

SEARCH_MIN: Final = 64
"""Entries searched at first, which shows how many there are of those that are wanted."""

SEARCH_MAX: Final = 4_096
"""Entries searched in one step: 50 us, some of which are in vain in the last one."""

DENSE_RATIO: Final = 4
"""Where one of so many entries is wanted, it costs less to unpack all of them."""

TagCodeFilter = Callable[[int], bool] | frozenset[int] | None
"""Which tag codes: asked with each of them, or told; None wants everything."""

ScannedEntries = tuple[Sequence[int], IntColumn, IntColumn]
"""Offsets, positions and sizes of entries."""


class EntryScan:
    """What a queue holds from an offset on, up to another one; `offset` moves on with each step."""

    __slots__ = ("_codes", "_found", "_looked", "_wanted", "offset", "queue", "stop")

    def __init__(self, queue: ConsumeQueue, offset: int, stop: int, wanted: TagCodeFilter) -> None:
        self.queue = queue
        self.offset = offset
        self.stop = stop
        self._codes: frozenset[int] | None = None
        self._wanted: Callable[[int], bool] | None = None
        if isinstance(wanted, frozenset):
            self._codes = wanted
        else:
            self._wanted = wanted
        self._looked = self._found = 0

    @property
    def wants_all(self) -> bool:
        """Whether no entry is left out."""
        return self._codes is None and self._wanted is None

    def take(self, left: int) -> ScannedEntries:
        """Some more: `left` are still to be found, and a few more may come."""
        if self._codes is not None:
            return self._searched(self._codes, left)
        count = min(self.stop - self.offset, max(left, UNPACK_MIN))
        positions, sizes, codes = self.queue.columns(self.offset, count)
        offsets: Sequence[int] = range(self.offset, self.offset + len(sizes))
        self.offset += len(sizes)
        if self._wanted is None:
            return offsets, positions, sizes
        picks = list(map(self._wanted, codes))
        offsets, positions, sizes = select_rows(picks, offsets, positions, sizes)
        return offsets, positions, sizes

    def _searched(self, codes: frozenset[int], left: int) -> ScannedEntries:
        # The longer little is found, the more are searched together, but not many in vain.
        step = min(max(SEARCH_MIN, 4 * self._looked), SEARCH_MAX)
        if self._found:
            step = min(step, left * self._looked // self._found + UNPACK_MIN)
        count, found = self.queue.tagged(self.offset, min(self.stop - self.offset, step), codes)
        self.offset += count
        self._looked += count
        self._found += len(found)
        if len(found) * DENSE_RATIO >= count:
            self._codes, self._wanted = None, codes.__contains__
        if not found:
            return (), (), ()
        offsets, positions, sizes = zip(*found, strict=True)
        return offsets, positions, sizes
