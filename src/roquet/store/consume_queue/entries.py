"""Queue entries: several at a time, by columns; search for tag codes; how many a file holds.

    ┌──────────────┬──────────┬──────────────┐
    │ position (8) │ size (4) │ tag code (8) │ …
    └──────────────┴──────────┴──────────────┘

Everything is big endian. A file ends with entries of zeros.
"""

import sys
from functools import lru_cache
from itertools import compress
from typing import Final

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
def adjacent_range(
    view: memoryview | bytes, at: int, count: int, size_max: int
) -> tuple[int, int] | None:
    """Start and stop of the log's range with the records of `count` entries in a file.

    `at` is the index of the first entry's byte. None if the records do not follow each other in the
    log, have more than `size_max` bytes together, or the file ends before.
    """
    end = at + count * ENTRY_SIZE
    if end > len(view):
        return None
    found, _, starts, stops = join_entries(view[at:end], size_max, 0)
    return (starts[0], stops[0]) if found == count and len(starts) == 1 else None


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


WORD_SIZE: Final = 4
WORDS: Final = ENTRY_SIZE // WORD_SIZE
WORD_AT: Final = WORDS - 1
"""The index of the last word of an entry: the low half of its code."""

SEARCHED_MAX: Final = 8
"""Codes that are searched one after the other; with more it is cheaper to test each entry."""


SETS_MAX: Final = 1_024
"""Sets of codes whose words are cached: a group has one or few."""


def find_tagged(entries: memoryview, codes: frozenset[int]) -> list[int]:
    """The numbers of the entries, from 0, whose code has the low word of one of these codes.

    The caller has to compare the whole code: others may have the same low word. Words are copied
    as they are stored, at a tenth of the cost of converting them to numbers.
    """
    words = _words(codes)
    column = entries.cast("I")[WORD_AT::WORDS]
    if len(words) > SEARCHED_MAX:
        picks = map(words.__contains__, column.tolist())
        return list(compress(range(len(column)), picks))
    text = column.tobytes()
    numbers = [at for word in words.values() for at in _places(text, word)]
    if len(words) > 1:
        numbers.sort()
    return numbers


@lru_cache(SETS_MAX)
def _words(codes: frozenset[int]) -> dict[int, bytes]:
    """The low words of codes, as this machine's numbers and as stored."""
    stored = {(code & 0xFFFF_FFFF).to_bytes(WORD_SIZE, "big") for code in codes}
    return {int.from_bytes(word, sys.byteorder): word for word in stored}


def _places(text: bytes, word: bytes) -> list[int]:
    """The numbers of the words in a text that equal this one."""
    numbers = []
    find, at = text.find, text.find(word)
    while at >= 0:
        if at % WORD_SIZE == 0:
            numbers.append(at // WORD_SIZE)
        at = find(word, at + 1)  # a match across two words may overlap an aligned one
    return numbers
