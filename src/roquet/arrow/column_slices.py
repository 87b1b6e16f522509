"""Arrow columns cut from a buffer of bytes, each with a single copy made in C++."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.wire.records.speedups import compiled

Block = bytes | memoryview | NDArray[np.uint8]
Int64Array = NDArray[np.int64]

BufferLike = NDArray[np.int32] | NDArray[np.uint8] | bytes
ColumnBuffers = tuple[BufferLike, BufferLike]
"""The 32-bit offsets and the bytes of a binary column without nulls."""

BLOCK_SIZE_MAX: Final = 2**31 - 1
"""Bytes: Spark only takes columns with 32-bit offsets."""


def slice_column(block: Block, starts: Int64Array, ends: Int64Array, kind: pa.DataType) -> pa.Array:
    """The slices of a block as a binary or string column; they are in order and do not overlap."""
    if not len(starts):
        return pa.array([], kind)
    return binary_column(cut_slices(block, starts, ends), len(starts), kind)


@compiled
def cut_slices(block: Block, starts: Int64Array, ends: Int64Array) -> ColumnBuffers:
    """The slices of a block, of which there is one at least, as a column.

    ValueError for a slice that is not inside the block, which Arrow would not notice.

    The block is first viewed as a column in which every second value is a gap between two slices:
    that costs nothing. Taking the others is one copy.
    """
    count = len(starts)
    if not ((starts >= 0) & (starts <= ends) & (ends <= len(block))).all():
        raise ValueError("a slice is not inside its block")
    edges = np.empty(2 * count, np.int32)
    edges[0::2], edges[1::2] = starts, ends
    gapped = binary_column((edges, np.frombuffer(block, np.uint8)), 2 * count - 1, pa.binary())
    slices = gapped.take(pa.array(np.arange(0, 2 * count, 2)))
    return offsets_of(slices), bytes_of(slices)


@compiled
def contains(data: memoryview, wanted: bytes) -> bool:
    """Whether a text is anywhere in the data."""
    return wanted in bytes(data)


def offsets_of(column: pa.Array) -> NDArray[np.int32]:
    """Where each value of a binary column begins in `bytes_of`, and where the last one ends."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


def bytes_of(column: pa.Array) -> NDArray[np.uint8]:
    """The buffer of a binary column's values."""
    data = column.buffers()[2]
    return np.frombuffer(b"" if data is None else data, np.uint8)


def binary_column(buffers: ColumnBuffers, count: int, kind: pa.DataType) -> pa.Array:
    """The binary or string column of these offsets and bytes, without a copy."""
    offsets, data = map(pa.py_buffer, buffers)
    return pa.Array.from_buffers(kind, count, [None, offsets, data])


def fixed_width_texts(rows: NDArray[np.uint8]) -> pa.Array:
    """A string column of equally long ASCII texts, one for each row of the matrix."""
    count, width = rows.shape
    edges = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(edges), data])
