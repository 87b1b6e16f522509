"""Entry scan: the matching entries of a queue, a few at a time.

Entries are unpacked many together. A filter by tags, which may match few of many, searches for them
instead; once every fourth entry matches, unpacking all of them is cheaper.
"""

from collections.abc import Callable, Sequence
from typing import Final

from roquet.store.commit_log.extents import IntColumn, select_rows
from roquet.store.consume_queue.queue import ConsumeQueue

UNPACK_MIN: Final = 32
"""Entries unpacked in one step at least, when few messages are still wanted."""

UNPACK_MAX: Final = 128
"""Entries unpacked in one step at most: records behind the limit of bytes must not be touched, they
may lie on the disk alone."""

SEARCH_MIN: Final = 64
"""Entries searched at first, which shows how many of them match."""

SEARCH_MAX: Final = 4_096
"""Entries searched in one step: 50 us, some of it in vain in the last step."""

DENSE_RATIO: Final = 4
"""Where one of this many entries matches, unpacking all of them costs less."""

TagCodeFilter = Callable[[int], bool] | frozenset[int] | None
"""Wanted tag codes: a predicate, or a set of codes; None for all entries."""

ScannedEntries = tuple[Sequence[int], IntColumn, IntColumn]
"""Offsets, positions and sizes of entries."""


class EntryScan:
    """The entries of a queue in [offset, stop) that match; `offset` advances with each step."""

    __slots__ = ("_codes", "_match_count", "_searched_count", "_wanted", "offset", "queue", "stop")

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
        self._searched_count = self._match_count = 0

    @property
    def wants_all(self) -> bool:
        """Whether every entry matches."""
        return self._codes is None and self._wanted is None

    def next_entries(self, left: int) -> ScannedEntries:
        """The next matching entries: `left` are still wanted, and a few more may come."""
        if self._codes is not None:
            return self._search(self._codes, left)
        count = min(self.stop - self.offset, max(left, UNPACK_MIN), UNPACK_MAX)
        positions: IntColumn
        sizes: IntColumn
        positions, sizes, codes = self.queue.columns(self.offset, count)
        offsets: Sequence[int] = range(self.offset, self.offset + len(sizes))
        self.offset += len(sizes)
        if self._wanted is None:
            return offsets, positions, sizes
        picks = list(map(self._wanted, codes))
        offsets, positions, sizes = select_rows(picks, offsets, positions, sizes)
        return offsets, positions, sizes

    def _search(self, codes: frozenset[int], left: int) -> ScannedEntries:
        # The fewer matches so far, the more entries are searched at once, but not many in vain.
        step = min(max(SEARCH_MIN, 4 * self._searched_count), SEARCH_MAX)
        if self._match_count:
            step = min(step, left * self._searched_count // self._match_count + UNPACK_MIN)
        count, matches = self.queue.find_tagged(
            self.offset, min(self.stop - self.offset, step), codes
        )
        self.offset += count
        self._searched_count += count
        self._match_count += len(matches)
        if len(matches) * DENSE_RATIO >= count:
            self._codes, self._wanted = None, codes.__contains__
        if not matches:
            return (), (), ()
        offsets, positions, sizes = zip(*matches, strict=True)
        return offsets, positions, sizes
