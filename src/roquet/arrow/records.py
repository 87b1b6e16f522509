"""Record bytes to a RecordBatch: offsets, keys, tags, times, bodies, without a loop per message.

`RecordColumns.of(block)` finds the records, `batch` makes the requested columns. The only loop left
is over compressed bodies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.arrow.column_slices import bytes_of, contains, fixed_width_texts, slice_column
from roquet.arrow.message_types import message_types, real_queue_ids, real_topics
from roquet.arrow.properties import PropertyColumns
from roquet.arrow.record_layout import RecordLayout
from roquet.model import properties as names
from roquet.model.errors import RecordError
from roquet.model.flags import SysFlag
from roquet.model.properties import NAME_VALUE_SEPARATOR
from roquet.wire.records.compression import decompress
from roquet.wire.records.host_bytes import HOST_SIZES

_TIME: Final = pa.timestamp("us", "UTC")

SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "message_id": pa.string(),
        "key": pa.string(),
        "tag": pa.string(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "born_at": _TIME,
        "stored_at": _TIME,
        "keys": pa.string(),
        "offset_message_id": pa.string(),
        "position": pa.int64(),
        "size": pa.int32(),
        "flag": pa.int32(),
        "sys_flag": pa.int32(),
        "reconsume_times": pa.int32(),
        "message_type": pa.string(),
        "real_topic": pa.string(),
        "real_queue_id": pa.int32(),
    }
)
"""All columns. Any may be null, and none is of a large type: Spark takes no others."""

COLUMNS: Final[tuple[str, ...]] = tuple(SCHEMA.names[: SCHEMA.names.index("keys")])
"""The default columns of a message."""

_TIMES_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999: the range of a timestamp column."""

_HEX: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint8).reshape(256, 2)


UNFOLDED_MAX: Final = 128 * 1024 * 1024
"""Bytes to which the compressed bodies of one batch may be restored: a block of four megabytes may
hold gigabytes."""


class BatchTooLarge(Exception):
    """The bodies of a block are too large for one batch: take it in halves."""


class RecordColumns:
    """The records of one block, read from `broker`.

    Bodies stay compressed with `restore=False`; with `lenient=True` also bodies that cannot be
    restored.
    """

    def __init__(
        self, layout: RecordLayout, *, broker: str = "", restore: bool = True, lenient: bool = False
    ) -> None:
        self._layout, self._broker = layout, broker
        self._restore, self._lenient = restore, lenient

    @classmethod
    def of(
        cls, block: bytes | memoryview, *, broker: str = "", restore: bool = True
    ) -> "RecordColumns":
        """All records of a block; `RecordError` when it is not made of whole ones."""
        return cls(RecordLayout.of(block), broker=broker, restore=restore)

    def __len__(self) -> int:
        return len(self._layout)

    @property
    def queue_offsets(self) -> NDArray[np.int64]:
        """The queue offset of each record."""
        return np.ascontiguousarray(self._layout.fields["queue_offset"])

    @property
    def queue_ids(self) -> NDArray[np.int32]:
        """The queue id of each record."""
        return np.ascontiguousarray(self._layout.fields["queue_id"])

    @property
    def positions(self) -> NDArray[np.int64]:
        """The position of each record in the commit log."""
        return np.ascontiguousarray(self._layout.fields["position"])

    @property
    def stored_ms(self) -> NDArray[np.int64]:
        """The store time of each message, in ms since 1970."""
        return np.ascontiguousarray(self._layout.fields["stored_ms"])

    @property
    def sys_flags(self) -> NDArray[np.int32]:
        """The system flags of each record: model.flags.SysFlag."""
        return np.ascontiguousarray(self._layout.fields["sys_flag"])

    @property
    def is_contiguous(self) -> bool:
        """Whether the records are adjacent in the log as in the block, by their own positions."""
        shifts = self._layout.fields["position"] - self._layout.starts
        return bool((shifts == shifts[:1]).all())

    def where(self, wanted: NDArray[np.bool_]) -> "RecordColumns":
        """The records of the rows where `wanted` is true."""
        return self._like(self._layout.where(wanted))

    def between(self, first: int, last: int) -> "RecordColumns":
        """The records of the rows [first, last)."""
        return self._like(self._layout.between(first, last))

    def halves(self) -> "tuple[RecordColumns, RecordColumns]":
        """The first and the second half of the rows."""
        return self.between(0, len(self) // 2), self.between(len(self) // 2, len(self))

    def keeping_unreadable(self) -> "RecordColumns":
        """All rows, where a body that cannot be restored stays as it is stored."""
        return RecordColumns(self._layout, broker=self._broker, restore=self._restore, lenient=True)

    def batch(self, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
        """The records as a RecordBatch of these columns."""
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return pa.RecordBatch.from_arrays(
            [_BUILDERS[name](self) for name in columns], schema=schema
        )

    def numbers(self, name: str) -> pa.Array:
        """A number of each record, by its name among the fields of the layout."""
        return pa.array(np.ascontiguousarray(self._layout.fields[name]))

    def brokers(self) -> pa.Array:
        """The broker that the block was read from, in every row."""
        return pa.repeat(pa.scalar(self._broker or None, pa.string()), len(self))

    def topics(self) -> pa.Array:
        """The topic of each record."""
        layout = self._layout
        return slice_column(layout.block, layout.topic_at, layout.topic_end, pa.string())

    def bodies(self) -> pa.Array:
        """The bodies, restored if compressed.

        Raises RecordError for one that cannot be restored, BatchTooLarge for those of several
        records that are larger than `UNFOLDED_MAX`.
        """
        layout = self._layout
        stored = slice_column(layout.block, layout.body_at, layout.body_end, pa.binary())
        squeezed = self._is_compressed
        if not squeezed.any():
            return stored
        restored, left = list[bytes](), UNFOLDED_MAX
        for row in np.flatnonzero(squeezed).tolist():
            restored.append(self._restore_body(row))
            left -= len(restored[-1])
            if left < 0 and len(self) > 1:
                raise BatchTooLarge
        return pc.replace_with_mask(stored, pa.array(squeezed), pa.array(restored, pa.binary()))

    def unreadable(self) -> Iterator[tuple[int, str]]:
        """The rows whose body cannot be restored, and the reasons; `bodies` raises for them."""
        for row in np.flatnonzero(self._is_compressed).tolist():
            try:
                self._restore_body(row)
            except RecordError as error:
                yield row, str(error)

    def raw(self, row: int) -> memoryview:
        """The whole record of a row, as it is stored."""
        start = int(self._layout.starts[row])
        return memoryview(self._layout.block)[
            start : start + int(self._layout.fields["total"][row])
        ]

    def message_ids(self) -> pa.Array:
        """The ids from the producers, else those from the brokers."""
        unique_keys = self.properties.column(names.UNIQUE_KEY)
        return (
            pc.coalesce(unique_keys, self.offset_message_ids())
            if unique_keys.null_count
            else unique_keys
        )

    def offset_message_ids(self) -> pa.Array:
        """The ids from the broker: its address and the position."""
        layout, ids = self._layout, pa.nulls(len(self), pa.string())
        is_v6 = (layout.fields["sys_flag"] & SysFlag.STORE_HOST_V6) != 0
        for rows, host_size in ((~is_v6, HOST_SIZES[0]), (is_v6, HOST_SIZES[1])):
            if rows.any():
                host = layout.gather(layout.fields["store_host_at"][rows], f"V{host_size}")
                position = layout.fields["position"][rows].astype(">i8")
                raw = np.hstack([_raw(host), _raw(position)])
                texts = fixed_width_texts(_HEX[raw].reshape(len(raw), -1))
                ids = pc.replace_with_mask(ids, pa.array(rows), texts)
        return ids

    def property(self, name: str) -> pa.Array:
        """One property of each message; null without it."""
        if "properties" not in vars(self) and not self._mentions(name):
            return pa.nulls(len(self), pa.string())
        return self.properties.column(name)

    def first_keys(self) -> pa.Array:
        """The first key of each message; null without one."""
        keys = self.property(names.KEYS)
        if keys.null_count == len(keys):
            return keys
        keys = pc.utf8_ltrim(keys, names.KEYS_SEPARATOR)
        first = pc.list_element(pc.split_pattern(keys, names.KEYS_SEPARATOR, max_splits=1), 0)
        return pc.if_else(pc.equal(first, ""), None, first)

    def born_times(self) -> pa.Array:
        """When the producers created the messages."""
        return self._times("born_ms")

    def stored_times(self) -> pa.Array:
        """When the broker stored the messages."""
        return self._times("stored_ms")

    def reconsume_times(self) -> pa.Array:
        """How often the messages were sent back."""
        return pa.array(self._layout.gather(self._layout.times_at, ">i4").astype(np.int32))

    @cached_property
    def properties(self) -> PropertyColumns:
        """The properties of all records."""
        return PropertyColumns.parse(self._property_texts)

    @cached_property
    def _property_texts(self) -> pa.Array:
        layout = self._layout
        return slice_column(layout.block, layout.properties_at, layout.properties_end, pa.binary())

    def _mentions(self, name: str) -> bool:
        """Whether any record may have a property: a search costs a tenth of parsing them all."""
        texts = bytes_of(self._property_texts)
        return contains(texts.data, f"{name}{NAME_VALUE_SEPARATOR}".encode())

    def _times(self, name: str) -> pa.Array:
        ms = self._layout.fields[name]
        shown = (ms >= _TIMES_MS[0]) & (ms <= _TIMES_MS[1])
        if shown.all():
            return pa.array(ms * 1000).view(_TIME)
        return pa.array(np.where(shown, ms, 0) * 1000, mask=~shown).view(_TIME)

    def _like(self, layout: RecordLayout) -> "RecordColumns":
        return RecordColumns(
            layout, broker=self._broker, restore=self._restore, lenient=self._lenient
        )

    @cached_property
    def _is_compressed(self) -> NDArray[np.bool_]:
        """Which bodies are to be restored."""
        squeezed: NDArray[np.bool_] = (self._layout.fields["sys_flag"] & SysFlag.COMPRESSED) != 0
        return squeezed & self._restore

    def _restore_body(self, row: int) -> bytes:
        layout, fields = self._layout, self._layout.fields[row]
        stored = bytes(layout.block[layout.body_at[row] : layout.body_end[row]])
        try:
            return decompress(stored, int(fields["sys_flag"]))
        except RecordError as error:
            if self._lenient:
                return stored
            owner = f" of broker {self._broker!r}" if self._broker else ""
            location = f"queue {fields['queue_id']} offset {fields['queue_offset']}{owner}"
            raise RecordError(f"{location}: {error}") from error


def _raw(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of each value, as the rows of a matrix."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)


_BUILDERS: Final[Mapping[str, Callable[[RecordColumns], pa.Array]]] = MappingProxyType(
    {
        "topic": RecordColumns.topics,
        "broker": RecordColumns.brokers,
        "queue_id": partial(RecordColumns.numbers, name="queue_id"),
        "queue_offset": partial(RecordColumns.numbers, name="queue_offset"),
        "message_id": RecordColumns.message_ids,
        "key": RecordColumns.first_keys,
        "tag": partial(RecordColumns.property, name=names.TAGS),
        "body": RecordColumns.bodies,
        "properties": lambda records: records.properties.as_map(),
        "born_at": RecordColumns.born_times,
        "stored_at": RecordColumns.stored_times,
        "keys": partial(RecordColumns.property, name=names.KEYS),
        "offset_message_id": RecordColumns.offset_message_ids,
        "position": partial(RecordColumns.numbers, name="position"),
        "size": partial(RecordColumns.numbers, name="total"),
        "flag": partial(RecordColumns.numbers, name="flag"),
        "sys_flag": partial(RecordColumns.numbers, name="sys_flag"),
        "reconsume_times": RecordColumns.reconsume_times,
        "message_type": lambda of: message_types(of.topics(), of.sys_flags, of.property),
        "real_topic": lambda of: real_topics(of.topics(), of.property),
        "real_queue_id": lambda of: real_queue_ids(
            of.topics(), of.numbers("queue_id"), of.property
        ),
    }
)
