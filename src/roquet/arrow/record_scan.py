"""Record scan: where records begin in a block of record bytes.

Each record's length leads to the next one, so a scan is a chase from length to length. A short
block is chased in one loop. In a long block, all records may have one size, which a single
comparison shows; otherwise the block is cut at magic numbers, and the parts are chased side by side
with numpy. A magic number inside a body makes a false cut: then the part in front of it does not
end at the cut, and the loop scans the whole block.
"""

from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roquet.model.errors import RecordError
from roquet.wire.records.record import MAGIC_V1, RECORD_SIZE_MIN
from roquet.wire.records.speedups import compiled

BytePositions = NDArray[np.int64]

LONG_BLOCK: Final = 1024 * 1024
"""Bytes from which the side-by-side chase is faster; at 4 MiB it is three times as fast."""

CHASE_SIZE: Final = 16 * 1024
"""Bytes of one part: about fifty records, and so many numpy steps for the chase."""

WINDOW: Final = 4 * 1024
"""Bytes in which a cut is searched for; without one there, two parts stay together."""

_TOTAL: Final = Struct(">i")
_MAGIC: Final = MAGIC_V1.to_bytes(4, "big")


def record_starts(block: bytes | memoryview) -> BytePositions:
    """The positions of a block's records; the last one must end where the block ends."""
    return np.frombuffer(record_positions(block), np.int64)


@compiled
def record_positions(block: bytes | memoryview) -> BytePositions | bytes:
    """The positions of a block's records as 64-bit numbers. RecordError if one is damaged."""
    if len(block) >= LONG_BLOCK:
        starts = _equal_sizes(block)
        if starts is None:
            starts = scan_side_by_side(block)
        if starts is not None:
            return starts
    return scan_in_loop(block)


def scan_in_loop(block: bytes | memoryview) -> BytePositions:
    """The positions, one record after another; RecordError names the first damaged record."""
    starts: list[int] = []
    append, total_at = starts.append, _TOTAL.unpack_from
    at, end = 0, len(block)
    last = end - RECORD_SIZE_MIN
    while at <= last:
        append(at)
        (total,) = total_at(block, at)
        if total < RECORD_SIZE_MIN:
            raise RecordError(f"record at {at} claims {total} bytes")
        at += total
    if at != end:
        raise RecordError(f"record at {at if at < end else starts[-1]} is cut short by {at - end}")
    return np.array(starts, np.int64)


def _equal_sizes(block: bytes | memoryview) -> BytePositions | None:
    """The positions if all records are as long as the first; None otherwise."""
    (total,) = _TOTAL.unpack_from(block, 0)
    if total < RECORD_SIZE_MIN or len(block) % total:
        return None
    totals = np.ndarray((len(block) // total,), ">i4", block, strides=(total,))
    return np.arange(0, len(block), total) if (totals == total).all() else None


def scan_side_by_side(block: bytes | memoryview) -> BytePositions | None:
    """The positions; None when the parts do not fit: damage and false cuts are left to the loop."""
    totals = np.ndarray((len(block) - 3,), ">i4", block, strides=(1,))
    cuts = _cuts(block)
    at, ends = cuts, np.append(cuts[1:], len(block))
    steps: list[BytePositions] = []
    while at.size:
        steps.append(at)
        total = totals[at]
        at = at + total
        if (total < RECORD_SIZE_MIN).any() or (at > ends).any():
            return None
        within = at < ends
        if not within.all():
            at, ends = at[within], ends[within]
        if at.size and at.max() > len(block) - RECORD_SIZE_MIN:
            return None
    starts = np.concatenate(steps)
    starts.sort()
    return starts


def _cuts(block: bytes | memoryview) -> BytePositions:
    cuts = [0]
    for at in range(CHASE_SIZE, len(block), CHASE_SIZE):
        magic_at = bytes(block[at : at + WINDOW]).find(_MAGIC)
        if magic_at >= 0 and at + magic_at - 4 > cuts[-1]:
            cuts.append(at + magic_at - 4)
    return np.array(cuts, np.int64)
