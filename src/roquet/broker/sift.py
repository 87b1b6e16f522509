"""Sift: the messages of a queue that an expression wants, found among all of them.

A look goes through so many messages that it takes a moment, and no longer; whoever wants to see
more lets others have their turn in between.

    records   │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │   looked at together
    signs             x       x           where one is that a match must show
    records           3       5           looked at closely: one of them may match
"""

import asyncio
from collections.abc import Iterable
from struct import Struct
from typing import Final

from roquet.broker.filters import Filter
from roquet.store.reader import Slice
from roquet.store.store import Store
from roquet.wire.record import QUEUE_OFFSET_AT
from roquet.wire.skim import properties_of

SIFTED_MAX: Final = 32_768
"""Messages of all looks for one answer: then it says how far it is."""

LOOK_MAX: Final = 2_048
"""Messages of one look with a simple expression: a millisecond or two."""

LOOK_MIN: Final = 16
"""Messages of one look, however long the expression is."""

TERMS_SIMPLE: Final = 4
"""Names and values of a simple expression."""

BLOCK_SIZE: Final = 1024 * 1024
"""Bytes of messages of one look: they are copied once, which takes a tenth of a millisecond."""

_LENGTH: Final = Struct(">i")


async def sifted(
    store: Store,
    turn: asyncio.Lock,
    place: tuple[str, int, int],
    wanted: Filter,
    limits: tuple[int, int],
) -> Slice:
    """The next messages of a queue that are wanted, in as many looks as it takes.

    The limits are of messages found and of their bytes. Between two looks it is others' turn.
    """
    (topic, queue_id, at), (count_max, bytes_max) = place, limits
    stop = min(store.bounds(topic, queue_id)[1], at + SIFTED_MAX)
    parts: list[memoryview] = []
    size = 0
    while at < stop and len(parts) < count_max and size < bytes_max:
        async with turn:
            look = min(look_count(wanted), stop - at)
            left = count_max - len(parts), bytes_max - size
            found = sift(store, (topic, queue_id, at), wanted, (look, *left))
            is_over = parts and size + found.size > bytes_max
            if is_over or found.next_offset <= at:  # or the queue has gone meanwhile
                break
            parts += found.parts
            at, size = found.next_offset, size + found.size
            await asyncio.sleep(0)
    return Slice(parts, len(parts), size, at)


def look_count(wanted: Filter) -> int:
    """How many messages one look may go through."""
    return max(LOOK_MIN, LOOK_MAX * TERMS_SIMPLE // max(TERMS_SIMPLE, wanted.terms))


def sift(
    store: Store, place: tuple[str, int, int], wanted: Filter, limits: tuple[int, int, int]
) -> Slice:
    """The next messages of a queue that are wanted, as one look finds them.

    `place` is topic, queue id and offset; the limits are of messages looked at, of messages found
    and of their bytes. One that is wanted always fits.
    """
    topic, queue_id, offset = place
    look_max, count_max, bytes_max = limits
    found = store.read(topic, queue_id, offset, count_max=look_max, bytes_max=BLOCK_SIZE)
    block = b"".join(found.parts)
    parts: list[memoryview] = []
    size, view = 0, memoryview(block)
    for at, stop in _candidates(block, wanted):
        if not wanted.matches(properties_of(block, at, stop)):
            continue
        if len(parts) >= count_max or (parts and size + stop - at > bytes_max):
            return Slice(parts, len(parts), size, _offset_of(block, at))
        parts.append(view[at:stop])
        size += stop - at
    return Slice(parts, len(parts), size, found.next_offset)


def _offset_of(block: bytes, at: int) -> int:
    at += QUEUE_OFFSET_AT
    return int.from_bytes(block[at : at + 8], "big")


def _candidates(block: bytes, wanted: Filter) -> Iterable[tuple[int, int]]:
    """Where those records are that may match, first and behind the last byte."""
    seen = wanted.seen(block)
    at, end, length = 0, len(block), _LENGTH.unpack_from
    if seen is None:
        while at < end:
            (size,) = length(block, at)
            yield at, at + size
            at += size
        return
    for sign in seen:
        if sign < at:
            continue  # of a record that was given already
        stop = at
        while stop <= sign:
            at = stop
            stop += length(block, at)[0]
        yield at, stop
        at = stop
