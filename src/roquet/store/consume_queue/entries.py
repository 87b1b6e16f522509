"""Queue entries: several at a time, by columns, and how many of them a file holds.

    ┌──────────────┬──────────┬──────────────┐
    │ position (8) │ size (4) │ tag code (8) │ …
    └──────────────┴──────────┴──────────────┘

Everything is big endian. A file ends with entries of zeros.
"""

import msgspec

from roquet.store.layout import ENTRY_SIZE, FILLER_SIZE
from roquet.wire.records.record import ENTRY
from roquet.wire.records.speedups import compiled

ConsumeQueueEntry = tuple[int, int, int]
"""Position, size and tag code. A plain tuple: reads make many of them."""

TaggedEntry = tuple[int, int, int]
"""Offset, position and size of one entry."""

EntryColumns = tuple[list[int], list[int], list[int]]
"""Positions, sizes and tag codes of consecutive entries."""


class EntryExtents(msgspec.Struct, frozen=True, gc=False):
    """Ranges [start, stop) of the log that hold the records of consecutive entries."""

    count: int
    """Entries."""
    size: int
    """Bytes of their records, which may lie apart."""
    starts: list[int]
    stops: list[int]


@compiled
def entry_columns(entries: memoryview | bytes) -> EntryColumns:
    """Positions, sizes and tag codes of encoded entries."""
    rows = list(ENTRY.iter_unpack(entries))
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def entry_extents(entries: memoryview | bytes, size_max: int, *, least: int = 0) -> EntryExtents:
    """Ranges of the log with the records of these entries: adjacent records share one.

    They end in front of an entry without a record, and with the last record that fits into
    `size_max` bytes, but not before `least` records.
    """
    return EntryExtents(*join_entries(entries, size_max, least))


@compiled
def sum_sizes(entries: memoryview | bytes) -> int:
    """Bytes of the records of encoded entries."""
    return sum(size for _, size, _ in ENTRY.iter_unpack(entries))


@compiled
def join_entries(
    entries: memoryview | bytes, size_max: int, least: int
) -> tuple[int, int, list[int], list[int]]:
    """Count, bytes, starts and stops, as `entry_extents` says."""
    count, total = 0, 0
    starts: list[int] = []
    stops: list[int] = []
    for position, size, _ in ENTRY.iter_unpack(entries):
        if size == FILLER_SIZE or (total + size > size_max and count >= least):
            break
        if stops and stops[-1] == position:
            stops[-1] = position + size
        else:
            starts.append(position)
            stops.append(position + size)
        count, total = count + 1, total + size
    return count, total, starts, stops


def count_entries(view: memoryview, capacity: int, least: int = 0) -> int:
    """How many entries a file holds; the search begins at `least`, near which most files end.

    Each probe costs a page, even where there was none.
    """

    def is_entry(index: int) -> bool:
        return bool(ENTRY.unpack_from(view, index * ENTRY_SIZE)[1] > 0)

    step = 1
    while least + step < capacity and is_entry(least + step - 1):
        step *= 2
    low, high = least + step // 2, min(least + step, capacity)
    while low < high:
        middle = (low + high) // 2
        if is_entry(middle):
            low = middle + 1
        else:
            high = middle
    return low
