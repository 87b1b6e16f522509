"""A RecordBatch to the bytes of a batch send.

Columns: `body` (bytes or text), and when they are there `key` (or `keys`), `tag`, `message_id`,
`flag` and a map `properties`, in which what has a column of its own is left out.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.arrow.slices import bytes_of, offsets_of
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal
from roquet.wire.batch import BATCH_ITEM_SIZE_MIN

_HEAD: Final = np.dtype(
    [("total", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")]
)
_LENGTH: Final = np.dtype(">i2")
_COLUMN_OF: Final = (
    (names.KEYS, "keys"),
    (names.KEYS, "key"),
    (names.TAGS, "tag"),
    (names.UNIQUE_KEY, "message_id"),
)


def encode(batch: pa.RecordBatch) -> pa.Array:
    """Each row as an item of a batch body: a binary column whose values only need joining."""
    bodies = pc.fill_null(batch.column("body").cast(pa.binary()), b"")
    texts = property_texts(batch)
    body_sizes, text_sizes = _sizes(bodies), _sizes(texts)
    if len(texts) and text_sizes.max() > names.PROPERTIES_SIZE_MAX:
        raise MessageIllegal(
            f"properties of {text_sizes.max()} bytes: {names.PROPERTIES_SIZE_MAX} fit"
        )
    heads = np.zeros(len(batch), _HEAD)
    heads["total"] = BATCH_ITEM_SIZE_MIN + body_sizes + text_sizes
    heads["body_size"] = body_sizes
    if "flag" in batch.schema.names:
        heads["flag"] = pc.fill_null(batch.column("flag"), 0).to_numpy()
    lengths = _as_column(text_sizes.astype(_LENGTH))
    return pc.binary_join_element_wise(_as_column(heads), bodies, lengths, texts, b"")


def bodies_of(items: pa.Array, size_max: int) -> Iterator[bytes]:
    """The items joined to as few batch bodies as go below the limit, in order."""
    edges, data = offsets_of(items).astype(np.int64), bytes_of(items)
    first = 0
    while first < len(items):
        last = int(np.searchsorted(edges, edges[first] + size_max, side="right")) - 1
        if last == first:
            size = edges[first + 1] - edges[first]
            raise MessageIllegal(f"row {first} makes a message of {size} bytes: {size_max} fit")
        yield data[edges[first] : edges[last]].tobytes()
        first = last


def property_texts(batch: pa.RecordBatch) -> pa.Array:
    """The property text of each row: a binary column."""
    texts: list[pa.Array] = []
    said: set[str] = set()
    for name, column in _COLUMN_OF:
        if column in batch.schema.names and name not in said:
            said.add(name)
            texts.append(_texts_of(name, batch.column(column)))
    if "properties" in batch.schema.names:
        texts.append(_map_texts(batch.column("properties"), said))
    if not texts:
        return pa.array([b""] * len(batch), pa.binary())
    return pc.binary_join_element_wise(*texts, b"")


def _texts_of(name: str, values: pa.Array) -> pa.Array:
    """One property's text in each row; none where the value is null or empty."""
    values = pc.fill_null(values.cast(pa.string()), "")
    pieces = _pieces(pa.repeat(pa.scalar(name), len(values)), values)
    return pc.if_else(pc.equal(values, ""), pa.scalar(b"", pa.binary()), pieces)


def _map_texts(column: pa.Array, said: set[str]) -> pa.Array:
    """All properties' text in each row, but for those that are said already."""
    lists = column.cast(pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())])))
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    flat = lists.flatten()
    keys, values = pc.struct_field(flat, 0), pc.fill_null(pc.struct_field(flat, 1), "")
    known = pc.is_in(keys, pa.array(sorted(said), pa.string()))
    kept = pc.and_(pc.invert(known), pc.not_equal(values, ""))
    rows = np.repeat(np.arange(len(column)), counts)[kept.to_numpy(zero_copy_only=False)]
    offsets = np.searchsorted(rows, np.arange(len(column) + 1)).astype(np.int32)
    pieces = _pieces(keys.filter(kept), values.filter(kept))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pieces), b"")


def _pieces(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Each pair as property text."""
    for texts in (keys, values):
        if pc.any(pc.match_substring_regex(texts, "[\x01\x02]")).as_py():
            raise MessageIllegal("a property holds U+0001 or U+0002, which separate properties")
    ended = pc.binary_join_element_wise(values, "", names.PROPERTY_SEPARATOR)
    joined = pc.binary_join_element_wise(keys, ended, names.NAME_VALUE_SEPARATOR)
    return joined.cast(pa.binary())


def _sizes(column: pa.Array) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = pc.binary_length(column).to_numpy().astype(np.int64)
    return sizes


def _as_column(values: NDArray[Any]) -> pa.Array:
    """The bytes of each value as a binary column, without a copy."""
    width = values.dtype.itemsize
    edges = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
