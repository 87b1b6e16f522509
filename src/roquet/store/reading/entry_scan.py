"""Entry scan: the matching entries of a queue, a few at a time, and their records' ranges.

Entries are unpacked many together. A filter by tags, which may match few of many, searches for them
instead; once every fourth entry matches, unpacking all of them is cheaper.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, compress
from operator import add, ne
from typing import Final

import msgspec

from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.layout import FILLER_SIZE

IntColumn = Sequence[int]


class LogExtents:
    """Half-open ranges [start, stop) of the log; adjacent records share one."""

    __slots__ = ("count", "size", "starts", "stops")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.count = 0
        self.size = 0
        """Bytes of all extents."""

    def fitting_count(self, sizes: IntColumn, count_max: int, size_max: int) -> int:
        """How many of these records may be added within the limits; the very first one always."""
        fit = min(len(sizes), count_max)
        if self.size + sum(sizes) > size_max:
            fit = min(fit, bisect_right(list(accumulate(sizes)), size_max - self.size))
        return fit or int(not self.count and len(sizes) > 0)

    def add_records(self, positions: IntColumn, sizes: IntColumn) -> None:
        """Add records by position and size."""
        self.add(*merge_adjacent(positions, sizes), len(sizes), sum(sizes))

    def add(self, starts: list[int], stops: list[int], count: int, size: int) -> None:
        """Add ranges that hold `count` records of `size` bytes."""
        if self.stops and self.stops[-1] == starts[0]:
            self.stops[-1] = stops[0]
            starts, stops = starts[1:], stops[1:]
        self.starts += starts
        self.stops += stops
        self.count += count
        self.size += size


def merge_adjacent(positions: IntColumn, sizes: IntColumn) -> tuple[list[int], list[int]]:
    """Starts and stops of the ranges that adjacent records form."""
    ends = list(map(add, positions, sizes))
    following = positions[1:]
    gaps = list(map(ne, following, ends))
    if True not in gaps:
        return [positions[0]], ends[-1:]
    return [positions[0], *compress(following, gaps)], [*compress(ends, gaps), ends[-1]]


def select_rows(picks: Sequence[bool], *columns: IntColumn) -> list[tuple[int, ...]]:
    """The picked rows of each column."""
    return [tuple(compress(column, picks)) for column in columns]


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


QUEUES_MAX: Final = 64
"""Queues of one range: each costs a few searches, together less than a millisecond."""


class ContiguousRange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Positions [start, stop) of the log, and the number of records there."""

    start: int
    stop: int
    count: int
    next_offset: int
    """Of the queue that was requested first: the offset behind its last record in the range."""


class _Share:
    """The entries of one queue that lead into the range."""

    __slots__ = ("behind", "first", "queue")

    def __init__(self, queue: ConsumeQueue, start: int, stop: int) -> None:
        self.queue = queue
        self.first = queue.offset_of(start)
        self.behind = queue.offset_of(stop)

    def end(self) -> int:
        """Where the queue's last record in the range ends; 0 without one."""
        if self.first == self.behind:
            return 0
        position, size, _ = self.queue.entry(self.behind - 1)
        return position + size

    def size(self) -> int:
        """Bytes of the queue's records in the range."""
        return self.queue.records_size(self.first, self.behind)


def contiguous_range(
    commit_log: CommitLog,
    requested: Mapping[ConsumeQueue, int],
    limits: tuple[int, int],
    visible_end: int,
) -> ContiguousRange | None:
    """The range from the first of these offsets on; None if it holds other queues' records.

        log       ─a1─b1─a2─c1─b2─a3─x1─      a, b, c are requested, x is not
        range      └───────────────┘

    A sum proves that no others are in it: the sizes of the queues' records add up to its length.
    The caller checks whether the records are whole. None ends behind `visible_end`.

    The range is shortened in front of others' records, but not below the lesser limit of bytes. The
    first queue must have its offset, and its record is in the range.
    """
    start = min(_first_positions(commit_log, requested), default=-1)
    file = commit_log.segments.file_at(start)
    if file is None or not 0 < len(requested) <= QUEUES_MAX:
        return None
    least, most = limits
    end = min(file.start + file.size, visible_end)
    while True:
        candidate = _range_up_to(requested, start, min(start + most, end))
        if candidate is not None or most // 2 < least:
            return candidate
        most //= 2


def _range_up_to(
    requested: Mapping[ConsumeQueue, int], start: int, limit: int
) -> ContiguousRange | None:
    shares = [_Share(queue, start, limit) for queue in requested]
    last = max(shares, key=_Share.end)
    if last.end() > limit:
        last.behind -= 1
    stop = max(share.end() for share in shares)
    leading, offset = shares[0], next(iter(requested.values()))
    if not leading.first <= offset < leading.behind:
        return None
    if sum(share.size() for share in shares) != stop - start:
        return None
    count = sum(share.behind - share.first for share in shares)
    return ContiguousRange(start=start, stop=stop, count=count, next_offset=leading.behind)


def _first_positions(commit_log: CommitLog, requested: Mapping[ConsumeQueue, int]) -> list[int]:
    """Where the records of these offsets begin, as far as they exist."""
    entries = [
        queue.entry(offset)
        for queue, offset in requested.items()
        if queue.min_offset(commit_log.begin) <= offset < queue.end
    ]
    return [position for position, size, _ in entries if size != FILLER_SIZE]
