"""Record layout: where the records of a block and their parts are, as numpy columns.

Each record's length leads to the next one. V1 and V2, IPv4 and IPv6 may be mixed: they differ only
in where their parts begin. A part is read only when it is known to lie inside its record.
"""

from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from roquet.arrow.column_slices import BLOCK_SIZE_MAX
from roquet.model.errors import RecordError
from roquet.model.flags import SysFlag
from roquet.wire.records.host_bytes import HOST_SIZES
from roquet.wire.records.record import BORN_AT, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from roquet.wire.records.speedups import compiled

BytePositions = NDArray[np.int64]
NumericArray = NDArray[Any]

_TOTAL: Final = Struct(">i")

_HEAD: Final = np.dtype(
    {
        "names": ["total", "magic", "queue_id", "flag", "queue_offset", "position", "sys_flag"],
        "formats": [">i4", ">u4", ">i4", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [0, 4, 12, 16, 20, 28, 36],
        "itemsize": BORN_AT,
    }
)
"""The fields that stand at the same place in every record; `wire.records.record` draws it."""

_RECONSUME_SIZE, _PREPARED_SIZE, _LENGTH_SIZE, _TIME_SIZE = 4, 8, 4, 8


class RecordLayout:
    """The records of one block: their heads, and the positions of the parts that follow."""

    def __init__(self, block: bytes | memoryview, starts: BytePositions) -> None:
        self.block = block
        self.starts = starts
        # Gathered as plain bytes, which numpy does four times as fast as field by field.
        self.head: NumericArray = self.gather(starts, f"V{_HEAD.itemsize}").view(_HEAD)
        self._ends = starts + self.head["total"]
        self._find_bodies()
        self._find_tails()

    @classmethod
    def of(cls, block: bytes | memoryview) -> "RecordLayout":
        """All records of a block; `RecordError` when it does not end with a whole one."""
        if len(block) > BLOCK_SIZE_MAX:
            raise RecordError(f"{len(block)} bytes at once: {BLOCK_SIZE_MAX} is the most")
        return cls(block, record_starts(block))

    def __len__(self) -> int:
        return len(self.starts)

    def between(self, first: int, last: int) -> "RecordLayout":
        """The records of the rows [first, last)."""
        return RecordLayout(self.block, self.starts[first:last])

    def where(self, wanted: NDArray[np.bool_]) -> "RecordLayout":
        """The records of the rows where `wanted` is true."""
        return RecordLayout(self.block, self.starts[wanted])

    def gather(self, at: BytePositions, kind: DTypeLike) -> NumericArray:
        """The values at these positions of the block."""
        dtype = np.dtype(kind)
        size = len(self.block) - dtype.itemsize + 1
        return np.ndarray((max(size, 0),), dtype, self.block, strides=(1,))[at]

    def _find_bodies(self) -> None:
        magic = self.head["magic"]
        self._require((magic == MAGIC_V1) | (magic == MAGIC_V2))
        self.born_at = self.starts + BORN_AT
        self.stored_at = self.born_at + _TIME_SIZE + self._host_sizes(SysFlag.BORN_HOST_V6)
        self.store_host_at = self.stored_at + _TIME_SIZE
        self.times_at = self.store_host_at + self._host_sizes(SysFlag.STORE_HOST_V6)
        self.body_at = self.times_at + _RECONSUME_SIZE + _PREPARED_SIZE + _LENGTH_SIZE
        self._require(self.body_at <= self._ends)
        self.body_end = self.body_at + self.gather(self.body_at - _LENGTH_SIZE, ">i4")
        self._require(self.body_at <= self.body_end)

    def _find_tails(self) -> None:
        is_v2 = self.head["magic"] == MAGIC_V2
        self.topic_at = self.body_end + np.where(is_v2, 2, 1)
        self._require(self.topic_at <= self._ends)
        sizes = self.gather(self.topic_at - 2, ">i2")
        self.topic_end = self.topic_at + np.where(is_v2, sizes, sizes & 0xFF)
        self.properties_at = self.topic_end + 2
        self._require((self.topic_at <= self.topic_end) & (self.properties_at <= self._ends))
        self.properties_end = self.properties_at + self.gather(self.topic_end, ">i2")
        self._require(self.properties_end == self._ends)

    def _host_sizes(self, v6: SysFlag) -> NumericArray:
        return np.where(self.head["sys_flag"] & int(v6), HOST_SIZES[1], HOST_SIZES[0])

    def _require(self, holds: NumericArray) -> None:
        if not holds.all():
            at = int(self.starts[holds.argmin()])
            raise RecordError(f"record at {at} of the block has lengths that disagree")


def record_starts(block: bytes | memoryview) -> BytePositions:
    """The positions of a block's records; the last one must end where the block ends."""
    return np.frombuffer(record_positions(block), np.int64)


@compiled
def record_positions(block: bytes | memoryview) -> BytePositions | bytes:
    """The positions of a block's records as 64-bit numbers; RecordError names a damaged one."""
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
