"""Property columns: the property texts of messages, made a column at a time.

The unique key and the row key are generated, the rest comes from the user's columns. System
properties in a map of properties are dropped: a frame that was read from a topic has them there.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.arrow.column_slices import (
    ColumnBuffers,
    binary_column,
    bytes_of,
    fixed_width_texts,
    offsets_of,
)
from roquet.arrow.encode import property_texts
from roquet.model import properties as names
from roquet.spark.sink.options import SinkOptions
from roquet.wire.records.speedups import compiled

USER_SETTABLE: Final = frozenset({names.UNIQUE_KEY, names.KEYS, names.TAGS, names.SHARDING_KEY})
"""System properties taken from the map, unless a column has them; the others are about the message
that the row is a copy of."""

DROPPED: Final = pa.array(sorted((names.RESERVED | {names.SINK_ROW}) - USER_SETTABLE))

ArrowColumns = Mapping[str, pa.Array]
UniqueKeyMaker = Callable[[int, int], pa.Array]
"""Makes unique keys: (first row number, count) to an array of keys."""

_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
_MAP: Final = pa.map_(pa.string(), pa.string())
_HEX_OF_BYTES: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), "S2")
_HEX: Final = np.char.add(np.repeat(_HEX_OF_BYTES, 256), np.tile(_HEX_OF_BYTES, 256))
"""The hexadecimal text of each 16-bit number."""

SECONDS_MAX: Final = 1e15
"""Largest delay: thirty million years, which fit into 64 bits as ms."""

_COUNTS: Final = 65_536
"""Values of the counter in a unique key; after them its time advances by 1 ms."""


def unique_keys(ip: bytes, pid: int, seed: int, since_month_ms: int) -> UniqueKeyMaker:
    """A maker of keys as `wire.records.message_id` defines them.

    `seed` differs by task of a process.
    """
    head = (ip + (pid & 0xFFFF).to_bytes(2) + (seed & 0xFFFF_FFFF).to_bytes(4)).hex().upper()
    head_texts = np.frombuffer(head.encode(), np.uint8)

    def make(first: int, count: int) -> pa.Array:
        numbers = np.arange(first, first + count)
        times = since_month_ms + numbers // _COUNTS
        texts = np.empty((count, len(head) + 12), np.uint8)
        texts[:, :-12] = head_texts
        tails = texts[:, -12:].view(_HEX.dtype)
        tails[:, 0], tails[:, 1] = _HEX[times >> 16 & 0xFFFF], _HEX[times & 0xFFFF]
        tails[:, 2] = _HEX[numbers % _COUNTS]
        return fixed_width_texts(texts)

    return make


def row_keys(prefix: str, first: int, count: int) -> pa.Array:
    """The row keys (ROQUET_ROW) from a row number on; readers drop duplicates by them."""
    return binary_column(numbered_texts(prefix.encode(), first, count), count, pa.string())


@compiled
def numbered_texts(prefix: bytes, first: int, count: int) -> ColumnBuffers:
    """Texts, each of which is the prefix and one of the consecutive numbers from `first` on."""
    numbers = pa.array(np.arange(first, first + count)).cast(pa.string()).cast(pa.binary())
    texts = pc.binary_join_element_wise(prefix, numbers, b"")
    return offsets_of(texts), bytes_of(texts)


def property_texts_of(columns: ArrowColumns, unique: pa.Array, row: pa.Array) -> pa.Array:
    """The property text of each row, from the frame's columns, unique keys and row keys."""
    texts: dict[str, pa.Array] = {"message_id": unique, "row": row}
    for name in ("key", "tag", "order_key"):
        if name in columns:
            texts[name] = columns[name]
    if "message_id" in columns:
        texts["message_id"] = _unless_empty(columns["message_id"], unique)
    if "keys" in columns:
        texts["keys"] = _join_keys(columns["keys"])
    if "properties" in columns:
        values = without(columns["properties"], DROPPED)
        if "message_id" not in columns:
            keys = pc.map_lookup(values, names.UNIQUE_KEY, "first")
            texts["message_id"] = _unless_empty(keys, unique)
        texts["properties"] = values
    return property_texts(pa.RecordBatch.from_pydict(texts))


def _unless_empty(values: pa.Array, rest: pa.Array) -> pa.Array:
    return pc.coalesce(pc.if_else(pc.equal(values, ""), None, values), rest)


def _join_keys(keys: pa.Array) -> pa.Array:
    """The keys of each row as one text; lists are joined by blanks, without null and empty keys."""
    if not pa.types.is_list(keys.type):
        return keys
    lists = keys.cast(pa.list_(pa.string()))
    flat = pc.list_flatten(lists)
    kept = pc.fill_null(pc.not_equal(flat, ""), False)
    if not pc.all(kept, min_count=0).as_py():  # Arrow joins a list with a null to null
        rows = pc.list_parent_indices(lists).filter(kept).to_numpy()
        offsets = np.searchsorted(rows, np.arange(len(lists) + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), flat.filter(kept))
    return pc.binary_join(lists, names.KEYS_SEPARATOR)


def without(column: pa.Array, dropped: pa.Array) -> pa.Array:
    """A map column without the entries of these names."""
    lists = column.cast(_PAIRS)
    flat = lists.flatten()
    keys, values = pc.struct_field(flat, 0), pc.struct_field(flat, 1)
    kept = pc.invert(pc.is_in(keys, dropped))
    if pc.all(kept, min_count=0).as_py():
        return column.cast(_MAP)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    rows = np.repeat(np.arange(len(column)), counts)[kept.to_numpy(zero_copy_only=False)]
    offsets = np.searchsorted(rows, np.arange(len(column) + 1)).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys.filter(kept), values.filter(kept))


def transaction_text(options: SinkOptions) -> bytes:
    """The property text that makes a message a half message."""
    pairs = {
        names.TRANSACTION_PREPARED: "true",
        names.PRODUCER_GROUP: options.group,
        names.CHECK_IMMUNITY_TIME: str(options.transaction_time_ms // 1_000),
    }
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs.items()]).encode()


def _as_int64(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.int64())


def _seconds_to_ms(seconds: pa.Array) -> pa.Array:
    return pc.ceil(pc.multiply(seconds.cast(pa.float64()), 1_000.0)).cast(pa.int64())


def is_no_time(seconds: pa.Array) -> pa.Array:
    """A mask of seconds that are NaN or infinite, or too large for ms in 64 bits."""
    return pc.invert(pc.less(pc.abs(seconds.cast(pa.float64(), safe=False)), SECONDS_MAX))


def _epoch_ms(times: pa.Array) -> pa.Array:
    # Rounded up, so that no message is delivered early.
    micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return pc.divide(pc.add(micros, 999), 1_000)


class DelayColumn(NamedTuple):
    """A column that delays messages."""

    column: str
    property: str
    as_number: Callable[[pa.Array], pa.Array]
    """Converts the column to the property's numbers."""


DELAY_COLUMNS: Final = (
    DelayColumn("delay_level", names.DELAY, _as_int64),
    DelayColumn("delay", names.TIMER_DELAY_MS, _seconds_to_ms),
    DelayColumn("deliver_at", names.TIMER_DELIVER_MS, _epoch_ms),
)
"""The columns that delay messages."""


def delay_texts(numbers: pa.Array, name: str) -> pa.Array:
    """The delaying property of each row; null where the number is 0 or null."""
    value = pc.if_else(pc.equal(numbers, 0), None, numbers).cast(pa.string())
    return pc.binary_join_element_wise(f"{name}\x01", value, "\x02", "")
