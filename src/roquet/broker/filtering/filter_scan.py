"""Sift: the messages of a queue that an expression wants, found among all of them.

A look goes through so many messages that it takes a moment, and no longer; whoever wants to see
more lets others have their turn in between.

    messages  │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │   looked at together
    signs             x       x           what shows that they may match
    messages          3       5           looked at closely
"""

import asyncio
from typing import Final

from roquet.broker.filtering.filter_cache import CompiledFilter
from roquet.store.store import RecordBlock, Slice, Store
from roquet.wire.records.partial_decode import properties_of
from roquet.wire.records.record import QUEUE_OFFSET_AT

SCAN_MAX: Final = 32_768
"""Messages of all looks for one answer: then it says how far it is."""

STEP_MAX: Final = 2_048
"""Messages of one look with a simple expression: a millisecond or two."""

STEP_MIN: Final = 16
"""Messages of one look, however long the expression is."""

TERMS_SIMPLE: Final = 4
"""Names and values of a simple expression."""

STEP_SIZE: Final = 1024 * 1024
"""Bytes of messages of one look, where they are long: a millisecond, too."""

BLOCK_SIZE: Final = 256 * 1024
"""Bytes that are copied and searched together: larger blocks do not stay in the processor's cache,
which makes each byte cost three times as much."""

BLOCK_COUNT_MIN: Final = 128
"""Messages of the first block, where many may match; each block may have four times as many."""


async def scan(
    store: Store,
    turn: asyncio.Lock,
    place: tuple[str, int, int],
    wanted: CompiledFilter,
    limits: tuple[int, int],
) -> Slice:
    """The next messages of a queue that are wanted, in as many looks as it takes.

    The limits are of messages found and of their bytes. Between two looks it is others' turn.
    """
    (topic, queue_id, at), (count_max, bytes_max) = place, limits
    stop = min(store.bounds(topic, queue_id)[1], at + SCAN_MAX)
    parts: list[memoryview] = []
    size = 0
    while at < stop and len(parts) < count_max and size < bytes_max:
        async with turn:
            look = min(scan_count(wanted), stop - at)
            left = count_max - len(parts), bytes_max - size
            found = scan_once(store, (topic, queue_id, at), wanted, (look, *left))
            is_over = parts and size + found.size > bytes_max
            if is_over or found.next_offset <= at:  # or the queue has gone meanwhile
                break
            parts += found.parts
            at, size = found.next_offset, size + found.size
            await asyncio.sleep(0)
    return Slice(parts, len(parts), size, at)


def scan_count(wanted: CompiledFilter) -> int:
    """How many messages one look may go through."""
    return max(STEP_MIN, STEP_MAX * TERMS_SIMPLE // max(TERMS_SIMPLE, wanted.terms))


def scan_once(
    store: Store, place: tuple[str, int, int], wanted: CompiledFilter, limits: tuple[int, int, int]
) -> Slice:
    """The next messages of a queue that are wanted, as one look finds them.

    `place` is topic, queue id and offset; the limits are of messages looked at, of messages found
    and of their bytes. One that is wanted always fits.
    """
    (topic, queue_id, at), (look_max, count_max, bytes_max) = place, limits
    parts: list[memoryview] = []
    size, looked_size, stop, step = 0, 0, at + look_max, BLOCK_COUNT_MIN
    while at < stop and looked_size < STEP_SIZE:
        count = min(step, stop - at)
        block = store.read_block(topic, queue_id, at, count_max=count, bytes_max=BLOCK_SIZE)
        left = count_max - len(parts), bytes_max - size
        found, behind = _found(block, wanted, left, is_first=not parts)
        parts += found
        size += sum(map(len, found))
        if behind is not None or block.next_offset <= at:
            return Slice(parts, len(parts), size, block.next_offset if behind is None else behind)
        step = _next_count(block.next_offset - at, len(block.data))
        at, looked_size = block.next_offset, looked_size + len(block.data)
    return Slice(parts, len(parts), size, at)


def _next_count(count: int, size: int) -> int:
    """How many messages the block behind one may have: as many as fit, if they are as long."""
    return min(4 * count, count * BLOCK_SIZE // max(size, 1)) + 1


def _found(
    block: RecordBlock, wanted: CompiledFilter, left: tuple[int, int], *, is_first: bool
) -> tuple[list[memoryview], int | None]:
    """What is wanted of some records; and the offset of the next one, if it does not fit."""
    (count_max, bytes_max), parts = left, list[memoryview]()
    data, edges = block.data, block.edges
    view = memoryview(data)
    for number in wanted.signs.candidates(data, edges):
        at, stop = edges[number], edges[number + 1]
        if not wanted.matches(properties_of(data, at, stop)):
            continue
        bytes_max -= stop - at
        may_pass = is_first and not parts
        if len(parts) >= count_max or (bytes_max < 0 and not may_pass):
            return parts, _offset_of(data, at)
        parts.append(view[at:stop])
    return parts, None


def _offset_of(block: bytes, at: int) -> int:
    at += QUEUE_OFFSET_AT
    return int.from_bytes(block[at : at + 8], "big")
