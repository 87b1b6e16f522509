"""Arrow columns cut from a buffer of bytes, each with a single copy made in C++."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

BLOCK_SIZE_MAX: Final = 2**31 - 1
"""Bytes: Spark only takes columns with 32-bit offsets."""


def slice_column(
    block: object, starts: Int64Array, ends: Int64Array, kind: pa.DataType
) -> pa.Array:
    """The slices of a block as a binary or string column; they are in order and do not overlap.

    The block is first viewed as a column in which every second value is a gap between two slices:
    that costs nothing. Taking the others is one copy.
    """
    count = len(starts)
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, np.int32)
    edges[0::2], edges[1::2] = starts, ends
    gapped = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(block)]
    )
    return gapped.take(pa.array(np.arange(0, 2 * count, 2)))


def offsets_of(column: pa.Array) -> NDArray[np.int32]:
    """Where each value of a binary column begins in `bytes_of`, and where the last one ends."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


def bytes_of(column: pa.Array) -> NDArray[np.uint8]:
    """The buffer of a binary column's values."""
    data = column.buffers()[2]
    return np.frombuffer(b"" if data is None else data, np.uint8)


def fixed_width_texts(rows: NDArray[np.uint8]) -> pa.Array:
    """A string column of equally long ASCII texts, one for each row of the matrix."""
    count, width = rows.shape
    edges = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(edges), data])
