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
        "names": [*("total", "magic", "queue_id", "flag"),
                  *("queue_offset", "position", "sys_flag", "born_ms")],
        "formats": [">i4", ">u4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8"],
        "offsets": [0, 4, 12, 16, 20, 28, 36, BORN_AT],
        "itemsize": BORN_AT + 8,
    }
)  # fmt: skip
"""The fields that stand at the same place in every record; `wire.records.record` draws it."""

_RECONSUME_SIZE, _PREPARED_SIZE, _LENGTH_SIZE, _TIME_SIZE = 4, 8, 4, 8

_LONG: Final = (
    *("start", "queue_offset", "position", "born_ms", "stored_ms"),
    *("store_host_at", "body_at", "body_end", "topic_at", "topic_end"),
)
_SHORT: Final = ("total", "queue_id", "flag", "sys_flag")

FIELDS: Final = np.dtype(
    [*((name, np.int64) for name in _LONG), *((name, np.int32) for name in _SHORT)]
)
"""Numbers of one record, and the positions in the block of its parts; the compiled form of
`record_fields` has the same struct."""


class RecordLayout:
    """The records of one block: their numbers, and the positions of their parts."""

    def __init__(self, block: bytes | memoryview, fields: NumericArray) -> None:
        self.block, self.fields = block, fields
        self.starts: BytePositions = fields["start"]
        self.body_at: BytePositions = fields["body_at"]
        self.body_end: BytePositions = fields["body_end"]
        self.topic_at: BytePositions = fields["topic_at"]
        self.topic_end: BytePositions = fields["topic_end"]

    @classmethod
    def of(cls, block: bytes | memoryview) -> "RecordLayout":
        """All records of a block; `RecordError` when it does not end with a whole one."""
        if len(block) > BLOCK_SIZE_MAX:
            raise RecordError(f"{len(block)} bytes at once: {BLOCK_SIZE_MAX} is the most")
        return cls(block, np.frombuffer(record_fields(block), FIELDS))

    def __len__(self) -> int:
        return len(self.fields)

    def between(self, first: int, last: int) -> "RecordLayout":
        """The records of the rows [first, last)."""
        return RecordLayout(self.block, self.fields[first:last])

    def where(self, wanted: NDArray[np.bool_]) -> "RecordLayout":
        """The records of the rows where `wanted` is true."""
        return RecordLayout(self.block, self.fields[wanted])

    @property
    def times_at(self) -> BytePositions:
        """The positions of the counts of earlier deliveries."""
        return self.body_at - (_RECONSUME_SIZE + _PREPARED_SIZE + _LENGTH_SIZE)

    @property
    def properties_at(self) -> BytePositions:
        """The positions of the property texts."""
        return self.topic_end + 2

    @property
    def properties_end(self) -> BytePositions:
        """The ends of the property texts, which are those of the records."""
        ends: BytePositions = self.starts + self.fields["total"]
        return ends

    def gather(self, at: BytePositions, kind: DTypeLike) -> NumericArray:
        """The values at these positions of the block."""
        return _gather(self.block, at, kind)


@compiled
def record_fields(block: bytes | memoryview) -> NumericArray | bytes:
    """The `FIELDS` of a block's records; RecordError names a damaged one."""
    starts = record_starts(block)
    # Gathered as plain bytes, which numpy does four times as fast as field by field.
    head = _gather(block, starts, f"V{_HEAD.itemsize}").view(_HEAD)
    fields = np.empty(len(starts), FIELDS)
    fields["start"] = starts
    for name in (*_SHORT, "queue_offset", "position", "born_ms"):
        fields[name] = head[name]
    ends, is_v2 = starts + head["total"], head["magic"] == MAGIC_V2
    _require(starts, is_v2 | (head["magic"] == MAGIC_V1))
    stored_at = starts + BORN_AT + _TIME_SIZE + _host_sizes(head, SysFlag.BORN_HOST_V6)
    store_host_at = stored_at + _TIME_SIZE
    times_at = store_host_at + _host_sizes(head, SysFlag.STORE_HOST_V6)
    body_at = times_at + _RECONSUME_SIZE + _PREPARED_SIZE + _LENGTH_SIZE
    _require(starts, body_at <= ends)
    body_end = body_at + _gather(block, body_at - _LENGTH_SIZE, ">i4")
    _require(starts, body_at <= body_end)
    topic_at = body_end + np.where(is_v2, 2, 1)
    _require(starts, topic_at <= ends)
    sizes = _gather(block, topic_at - 2, ">i2")
    topic_end = topic_at + np.where(is_v2, sizes, sizes & 0xFF)
    _require(starts, (topic_at <= topic_end) & (topic_end + 2 <= ends))
    _require(starts, topic_end + 2 + _gather(block, topic_end, ">i2") == ends)
    fields["stored_ms"] = _gather(block, stored_at, ">i8")
    fields["store_host_at"] = store_host_at
    fields["body_at"], fields["body_end"] = body_at, body_end
    fields["topic_at"], fields["topic_end"] = topic_at, topic_end
    return fields


def record_starts(block: bytes | memoryview) -> BytePositions:
    """The positions of a block's records; the last one must end where the block ends."""
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


def _gather(block: bytes | memoryview, at: BytePositions, kind: DTypeLike) -> NumericArray:
    dtype = np.dtype(kind)
    size = len(block) - dtype.itemsize + 1
    return np.ndarray((max(size, 0),), dtype, block, strides=(1,))[at]


def _host_sizes(head: NumericArray, v6: SysFlag) -> NumericArray:
    return np.where(head["sys_flag"] & int(v6), HOST_SIZES[1], HOST_SIZES[0])


def _require(starts: BytePositions, holds: NumericArray) -> None:
    if not holds.all():
        at = int(starts[holds.argmin()])
        raise RecordError(f"record at {at} of the block has lengths that disagree")
