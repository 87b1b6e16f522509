"""Filter scan: finds the messages of a queue that match an expression.

One step scans as many messages as take about a millisecond; others have their turn between steps.

    messages     │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │   read as one block
    properties      ─   ─   ─   ─   ─   ─    located in one pass
    expression          x       x            evaluated for all of them in one call
"""

import asyncio
from collections.abc import Sequence
from operator import sub
from typing import Final

from roquet.broker.filtering.filter_cache import CompiledFilter
from roquet.store.store import RecordBlock, Slice, Store
from roquet.wire.records.partial_decode import property_positions
from roquet.wire.records.record import QUEUE_OFFSET_AT

SCAN_MAX: Final = 32_768
"""Messages scanned for one reply; then it returns the offset reached."""

STEPS_MAX: Final = 512
"""Steps for one reply: a second or two. Longer ones would end in the client's timeout, again and
again."""

STEP_MAX: Final = 2_048
"""Messages of one step with a simple expression: a millisecond or two."""

STEP_MIN: Final = 16
"""Messages of one step, however long the expression is."""

TERMS_SIMPLE: Final = 4
"""Names and values of a simple expression."""

STEP_SIZE: Final = 1024 * 1024
"""Bytes of one step, for long messages: a millisecond, too."""

STEP_WORK: Final = 1024 * 1024
"""Bytes of properties of one step times what each costs (`_cost`): a millisecond or two."""

DECODE_TERMS: Final = 20
"""Names and values whose search costs as much as to decode the properties once."""

DECODE_WORK: Final = 64 * 1024
"""Work of one message from which on decoding is the cheaper way; short ones are searched faster."""

BLOCK_SIZE: Final = 256 * 1024
"""Bytes that are copied and searched together: larger blocks do not fit the processor's cache,
which makes each byte three times as expensive."""

BLOCK_COUNT_MIN: Final = 128
"""Messages of the first block, in case many match; each block may have four times as many."""


async def scan(
    store: Store,
    turn: asyncio.Lock,
    start: tuple[str, int, int],
    wanted: CompiledFilter,
    limits: tuple[int, int],
) -> Slice:
    """The next matching messages of a queue, in as many steps as needed.

    `place` is topic, queue id and offset; `limits` are messages found and their bytes. Others have
    their turn between steps.
    """
    (topic, queue_id, at), (count_max, bytes_max) = start, limits
    stop = min(store.bounds(topic, queue_id)[1], at + SCAN_MAX)
    parts: list[memoryview] = []
    size = 0
    for _ in range(STEPS_MAX):
        if at >= stop or len(parts) >= count_max or size >= bytes_max:
            break
        async with turn:
            look = min(scan_count(wanted), stop - at)
            left = count_max - len(parts), bytes_max - size
            matches = scan_once(store, (topic, queue_id, at), wanted, (look, *left))
            is_over = parts and size + matches.size > bytes_max
            if is_over or matches.next_offset <= at:  # or the queue has gone meanwhile
                break
            parts += matches.parts
            at, size = matches.next_offset, size + matches.size
            await asyncio.sleep(0)
    return Slice(parts, len(parts), size, at)


def scan_count(wanted: CompiledFilter) -> int:
    """Messages of one step with this expression."""
    return max(STEP_MIN, STEP_MAX * TERMS_SIMPLE // max(TERMS_SIMPLE, wanted.terms))


def scan_once(
    store: Store, start: tuple[str, int, int], wanted: CompiledFilter, limits: tuple[int, int, int]
) -> Slice:
    """The next matching messages of a queue, as one step finds them.

    `place` is topic, queue id and offset; `limits` are messages scanned, messages found and their
    bytes. The first match is returned whatever its size.
    """
    (topic, queue_id, at), (look_max, count_max, bytes_max) = start, limits
    parts: list[memoryview] = []
    size, looked_size, stop, step = 0, 0, at + look_max, BLOCK_COUNT_MIN
    cost, work = _cost(wanted), 0
    block_max = min(BLOCK_SIZE, STEP_WORK // cost)
    while at < stop and looked_size < STEP_SIZE and work < STEP_WORK:
        count = min(step, stop - at)
        block = store.read_block(topic, queue_id, at, count_max=count, bytes_max=block_max)
        begins = property_positions(block.data, block.edges, topic.encode())
        left = count_max - len(parts), bytes_max - size
        matching, behind = _matching(block, begins, wanted, left, is_first=not parts)
        parts += matching
        size += sum(map(len, matching))
        if behind is not None or block.next_offset <= at:
            return Slice(parts, len(parts), size, block.next_offset if behind is None else behind)
        step = _next_count(block.next_offset - at, len(block.data))
        at, looked_size = block.next_offset, looked_size + len(block.data)
        work += cost * max(sum(block.edges[1:]) - sum(begins), 0)  # of a damaged one it may be less
    return Slice(parts, len(parts), size, at)


def _cost(wanted: CompiledFilter) -> int:
    """Cost of a byte of properties: a search for each term, or a decoding and a comparison."""
    return 1 + min(wanted.terms, DECODE_TERMS) + wanted.terms // 10


def _next_count(count: int, size: int) -> int:
    """Messages of the next block: as many as fit if they are as long as the last ones."""
    return min(4 * count, count * BLOCK_SIZE // max(size, 1)) + 1


def _matching(
    block: RecordBlock,
    begins: Sequence[int],
    wanted: CompiledFilter,
    left: tuple[int, int],
    *,
    is_first: bool,
) -> tuple[list[memoryview], int | None]:
    """The matching records of a block, and the offset of the next match if it does not fit."""
    (count_max, bytes_max), parts = left, list[memoryview]()
    data, edges = block.data, block.edges
    view, matching = memoryview(data), wanted.matching
    if (
        wanted.terms > DECODE_TERMS
        and max(map(sub, edges[1:], begins), default=0) * wanted.terms > DECODE_WORK
    ):
        matching = wanted.matching_decoded
    for index in matching(data, begins, edges, min(count_max, len(begins)) + 1):
        at, stop = edges[index], edges[index + 1]
        bytes_max -= stop - at
        may_pass = is_first and not parts
        if len(parts) >= count_max or (bytes_max < 0 and not may_pass):
            return parts, _offset_of(data, at)
        parts.append(view[at:stop])
    return parts, None


def _offset_of(block: bytes, at: int) -> int:
    at += QUEUE_OFFSET_AT
    return int.from_bytes(block[at : at + 8], "big")
