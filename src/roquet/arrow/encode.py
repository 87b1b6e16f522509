"""Batch encoding: a RecordBatch to the bytes of a batch send.

Columns: `body` (bytes or text), and optionally `key` (or `keys`), `tag`, `message_id`, `flag`,
`order_key`, `row` (the row that the message carries: `ROQUET_ROW`) and a map `properties`, in which
properties with a column of their own are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.arrow.column_slices import ColumnBuffers, binary_column, bytes_of, offsets_of
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal
from roquet.wire.records.batch import BATCH_ITEM_SIZE_MIN
from roquet.wire.records.speedups import compiled

_HEAD: Final = np.dtype(
    [("total", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")]
)
_LENGTH: Final = np.dtype(">i2")
_COLUMN_OF: Final = (
    # Properties that differ in each message go first, so that brokers can cache the rest.
    (names.UNIQUE_KEY, "message_id"),
    (names.SINK_ROW, "row"),
    (names.KEYS, "keys"),
    (names.KEYS, "key"),
    (names.TAGS, "tag"),
    (names.SHARDING_KEY, "order_key"),
)
_MIDDLE: Final = names.NAME_VALUE_SEPARATOR.encode()
_END: Final = names.PROPERTY_SEPARATOR.encode()
_NOTHING: Final = pa.scalar(b"", pa.binary())


def encode(batch: pa.RecordBatch) -> pa.Array:
    """Encode rows as items of a batch body: a binary column whose values only need joining."""
    bodies = pc.fill_null(batch.column("body").cast(pa.binary()), b"")
    texts = property_texts(batch)
    if len(texts) and (size := int(_sizes(texts).max())) > names.PROPERTIES_SIZE_MAX:
        raise MessageIllegal(f"properties of {size} bytes: {names.PROPERTIES_SIZE_MAX} fit")
    flags = np.zeros(len(batch), np.int32)
    if "flag" in batch.schema.names:
        flags = pc.fill_null(batch.column("flag"), 0).to_numpy()
    return batch_items(bodies, texts, flags)


def batch_items(bodies: pa.Array, texts: pa.Array, flags: NDArray[np.int32]) -> pa.Array:
    """Encode items from finished bodies, property texts and flags."""
    body_sizes, text_sizes = _sizes(bodies), _sizes(texts)
    heads = np.zeros(len(bodies), _HEAD)
    heads["total"] = BATCH_ITEM_SIZE_MIN + body_sizes + text_sizes
    heads["body_size"] = body_sizes
    heads["flag"] = flags
    lengths = _as_column(text_sizes.astype(_LENGTH))
    return pc.binary_join_element_wise(_as_column(heads), bodies, lengths, texts, _NOTHING)


@compiled
def batch_body(
    bodies: pa.Array, texts: pa.Array, flags: NDArray[np.int32], rows: NDArray[np.int64]
) -> bytes:
    """The body of a batch of the rows at these indices, in this order.

    Bodies and texts are binary columns without nulls; a text is at most PROPERTIES_SIZE_MAX bytes.
    """
    if (np.diff(rows) == 1).all():  # a slice copies nothing
        first, count = int(rows[0]) if len(rows) else 0, len(rows)
        bodies, texts = bodies.slice(first, count), texts.slice(first, count)
    else:
        picked = pa.array(rows)
        bodies, texts = bodies.take(picked), texts.take(picked)
    return join_items(batch_items(bodies, texts, flags[rows]), 0, len(rows))


def batch_bodies(items: pa.Array, size_max: int) -> Iterator[bytes]:
    """Join the items to as few batch bodies as stay within the limit, in order."""
    edges = offsets_of(items).astype(np.int64)
    first = 0
    while first < len(items):
        last = int(np.searchsorted(edges, edges[first] + size_max, side="right")) - 1
        if last == first:
            size = edges[first + 1] - edges[first]
            raise MessageIllegal(f"row {first} makes a message of {size} bytes: {size_max} fit")
        yield join_items(items, first, last)
        first = last


def join_items(items: pa.Array, first: int, last: int) -> bytes:
    """The items [first, last) as one batch body."""
    edges = offsets_of(items)
    return bytes_of(items)[edges[first] : edges[last]].tobytes()


def split_evenly(
    sizes: NDArray[np.int64], size_max: int, count_max: int
) -> Iterator[tuple[int, int]]:
    """Ranges [first, last) of items within both limits, about equal in bytes.

    An item over the limit by itself gets a range of its own.
    """
    count = len(sizes)
    if not count:
        return
    edges = np.concatenate(([0], np.cumsum(sizes)))
    part_count = max(-(-int(edges[-1]) // size_max), -(-count // count_max))
    aim = int(edges[-1]) / part_count
    first = 0
    while first < count:
        most = int(np.searchsorted(edges, edges[first] + size_max, side="right")) - 1
        even = int(np.searchsorted(edges, edges[first] + aim, side="left"))
        last = max(min(even, most, first + count_max, count), first + 1)
        yield first, last
        first = last


def property_texts(batch: pa.RecordBatch) -> pa.Array:
    """The property text of each row: a binary column.

    Null and empty values are left out. MessageIllegal if a value holds a separator.
    """
    columns: dict[str, pa.Array] = {}
    for name, column in _COLUMN_OF:
        if column in batch.schema.names and name not in columns:
            columns[name] = batch.column(column).cast(pa.binary())
    texts = _joined(columns, len(batch))
    if "properties" in batch.schema.names:
        others = _map_texts(batch.column("properties"), set(columns))
        texts = pc.binary_join_element_wise(texts, others, _NOTHING)
    return texts


def _joined(columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    if not columns:
        return pa.array([b""] * count, pa.binary())
    texts = join_properties([name.encode() for name in columns], list(columns.values()))
    return binary_column(texts, count, pa.binary())


@compiled
def join_properties(names: Sequence[bytes], columns: Sequence[pa.Array]) -> ColumnBuffers:
    """The property texts, from a binary column for each name.

    Null and empty values are left out. MessageIllegal if a value holds a separator.
    """
    parts: list[pa.Array | pa.Scalar] = []
    for name, values in zip(names, columns, strict=True):
        parts += _texts_of(name, values)
    texts = pc.binary_join_element_wise(*parts, _NOTHING)
    return offsets_of(texts), bytes_of(texts)


def _texts_of(name: bytes, values: pa.Array) -> list[pa.Array | pa.Scalar]:
    """One property's text in each row, in parts; empty where the value is null or empty."""
    _check_separators(values)
    begin, end = pa.scalar(name + _MIDDLE, pa.binary()), pa.scalar(_END, pa.binary())
    if not values.null_count and (not len(values) or _sizes(values).min()):
        return [begin, values, end]
    values = pc.fill_null(values, b"")
    pieces = pc.binary_join_element_wise(begin, values, end, _NOTHING)
    return [pc.if_else(pc.equal(values, _NOTHING), _NOTHING, pieces)]


def _map_texts(column: pa.Array, said: set[str]) -> pa.Array:
    """The text of all properties of the map but those in `said`, for each row."""
    lists = column.cast(pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())])))
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    flat = lists.flatten()
    keys, values = pc.struct_field(flat, 0), pc.fill_null(pc.struct_field(flat, 1), "")
    known = pc.is_in(keys, pa.array(sorted(said), pa.string()))
    kept = pc.and_(pc.invert(known), pc.not_equal(values, ""))
    rows = np.repeat(np.arange(len(column)), counts)[kept.to_numpy(zero_copy_only=False)]
    offsets = np.searchsorted(rows, np.arange(len(column) + 1)).astype(np.int32)
    pieces = _pair_texts(keys.filter(kept), values.filter(kept))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pieces), b"")


def _pair_texts(keys: pa.Array, values: pa.Array) -> pa.Array:
    keys, values = keys.cast(pa.binary()), values.cast(pa.binary())
    for texts in (keys, values):
        _check_separators(texts)
    return pc.binary_join_element_wise(keys, _MIDDLE, values, _END, _NOTHING)


def _check_separators(texts: pa.Array) -> None:
    texts = texts.drop_null()
    if not len(texts):
        return
    edges = offsets_of(texts)
    # The separators are 1 and 2: minus one, with wrap-around, only they are below 2.
    if (bytes_of(texts)[edges[0] : edges[-1]] - np.uint8(1) < 2).any():
        raise MessageIllegal("a property holds U+0001 or U+0002, which separate properties")


def _sizes(column: pa.Array) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = pc.binary_length(column).to_numpy().astype(np.int64)
    return sizes


def _as_column(values: NDArray[Any]) -> pa.Array:
    """The bytes of each value as a binary column, without a copy."""
    width = values.dtype.itemsize
    edges = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
