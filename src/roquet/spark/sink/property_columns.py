"""Texts: what a message says of itself besides its body, a column at a time.

The unique key and the row's key are made here; the rest is the user's. What only the system may
say is left out of a map of properties: a frame that was read from a topic has it there.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.arrow.column_slices import fixed_width_texts
from roquet.arrow.encode import property_texts
from roquet.model import properties as names
from roquet.spark.sink.options import SinkOptions

USER_SETTABLE: Final = frozenset({names.UNIQUE_KEY, names.KEYS, names.TAGS, names.SHARDING_KEY})
"""System properties that are taken from the map, where no column says them; the others say what
became of another message, the one that this one is a copy of."""

DROPPED: Final = pa.array(sorted((names.RESERVED | {names.SINK_ROW}) - USER_SETTABLE))

ArrowColumns = Mapping[str, pa.Array]
UniqueKeyMaker = Callable[[int, int], pa.Array]
"""Makes the unique keys of rows: from which number on, and of how many."""

_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
_MAP: Final = pa.map_(pa.string(), pa.string())
_HEX: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint8).reshape(256, 2)
SECONDS_MAX: Final = 1e15
"""Of a delay: thirty million years, whose ms are a number still."""

_COUNTS: Final = 65_536
"""Numbers that the counter of a unique key holds; then its time goes on by 1 ms."""


def unique_keys(ip: bytes, pid: int, seed: int, since_month_ms: int) -> UniqueKeyMaker:
    """Makes keys as `message_id` draws them; `seed` tells two tasks of a process apart."""
    head = ip + (pid & 0xFFFF).to_bytes(2) + (seed & 0xFFFF_FFFF).to_bytes(4)

    def make(first: int, count: int) -> pa.Array:
        numbers = np.arange(first, first + count)
        raw = np.empty((count, len(head) + 6), np.uint8)
        raw[:, :-6] = np.frombuffer(head, np.uint8)
        times = (since_month_ms + numbers // _COUNTS).astype(">u4")
        raw[:, -6:-2] = times.view(np.uint8).reshape(count, 4)
        raw[:, -2:] = (numbers % _COUNTS).astype(">u2").view(np.uint8).reshape(count, 2)
        return fixed_width_texts(_HEX[raw].reshape(count, -1))

    return make


def row_keys(prefix: str, first: int, count: int) -> pa.Array:
    """The keys of rows from a number on: what readers drop doubles by."""
    numbers = pa.array(np.arange(first, first + count)).cast(pa.string())
    return pc.binary_join_element_wise(prefix, numbers, "")


def property_texts_of(found: ArrowColumns, unique: pa.Array, row: pa.Array) -> pa.Array:
    """The property text of each row."""
    said: dict[str, pa.Array] = {"message_id": unique, "row": row}
    for name in ("key", "tag", "order_key"):
        if name in found:
            said[name] = found[name]
    if "message_id" in found:
        given = found["message_id"]
        said["message_id"] = pc.coalesce(pc.if_else(pc.equal(given, ""), None, given), unique)
    if "keys" in found:
        said["keys"] = _join_keys(found["keys"])
    if "properties" in found:
        given = _user_properties(found["properties"])
        said |= _message_id_of_map(given, found, unique)
        said["properties"] = given
    return property_texts(pa.RecordBatch.from_pydict(said))


def _message_id_of_map(
    given: pa.Array, found: ArrowColumns, unique: pa.Array
) -> dict[str, pa.Array]:
    """The unique key that the map says, where no column does."""
    if "message_id" in found:
        return {}
    theirs = pc.map_lookup(given, names.UNIQUE_KEY, "first")
    return {"message_id": pc.coalesce(pc.if_else(pc.equal(theirs, ""), None, theirs), unique)}


def _join_keys(keys: pa.Array) -> pa.Array:
    """All keys of each row in one text; a list's are joined by blanks, less those that are none."""
    if not pa.types.is_list(keys.type):
        return keys
    lists = keys.cast(pa.list_(pa.string()))
    flat = pc.list_flatten(lists)
    kept = pc.fill_null(pc.not_equal(flat, ""), False)
    if not pc.all(kept, min_count=0).as_py():  # Arrow would join the others to nothing
        rows = pc.list_parent_indices(lists).filter(kept).to_numpy()
        offsets = np.searchsorted(rows, np.arange(len(lists) + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), flat.filter(kept))
    return pc.binary_join(lists, names.KEYS_SEPARATOR)


def _user_properties(column: pa.Array) -> pa.Array:
    """The properties of a user, without what only the system may say."""
    return without(column, DROPPED)


def without(column: pa.Array, dropped: pa.Array) -> pa.Array:
    """A map of properties less those of some names."""
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
    """The properties of a half message."""
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
    """Where a number of seconds is none, or so large that nobody counts its ms."""
    return pc.invert(pc.less(pc.abs(seconds.cast(pa.float64(), safe=False)), SECONDS_MAX))


def _epoch_ms(times: pa.Array) -> pa.Array:
    # Rounded up: it never comes too early.
    micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return pc.divide(pc.add(micros, 999), 1_000)


DELAY_COLUMNS: Final[tuple[tuple[str, str, Callable[[pa.Array], pa.Array]], ...]] = (
    ("delay_level", names.DELAY, _as_int64),
    ("delay", names.TIMER_DELAY_MS, _seconds_to_ms),
    ("deliver_at", names.TIMER_DELIVER_MS, _epoch_ms),
)
"""The columns that delay a message, the properties that say so, and their numbers."""


def delay_texts(numbers: pa.Array, name: str) -> pa.Array:
    """The property that delays each row; null where the number is 0 or null."""
    value = pc.if_else(pc.equal(numbers, 0), None, numbers).cast(pa.string())
    return pc.binary_join_element_wise(f"{name}\x01", value, "\x02", "")
