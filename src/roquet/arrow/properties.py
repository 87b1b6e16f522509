r"""Property text to columns: one property, or all of them as a map.

    name \x01 value \x02 name \x01 value \x02 …

The texts of all rows are one run of bytes, so the control bytes alone say where each name and each
value begins. Odd texts (no last \x02, an empty or a doubled name, bytes that are not UTF-8) send
their whole batch through the loop of `wire`.
"""

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.arrow.column_slices import (
    BufferLike,
    ColumnBuffers,
    binary_column,
    bytes_of,
    cut_slices,
    offsets_of,
)
from roquet.model.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.speedups import compiled

_MIDDLE: Final = ord(NAME_VALUE_SEPARATOR)
_END: Final = ord(PROPERTY_SEPARATOR)
_NO_VALUES: Final = (np.zeros(1, np.int32), b"")


class PropertyColumns:
    """The properties of many messages: all names, all values, and where each row's begin."""

    def __init__(self, offsets: NDArray[np.int32], names: pa.Array, values: pa.Array) -> None:
        self._offsets = offsets
        self._names = names
        self._values = values

    @classmethod
    def parse(cls, texts: pa.Array) -> "PropertyColumns":
        """Parse a binary column of property texts without nulls."""
        parsed = _parse_even(texts)
        return _parse_odd(texts) if parsed is None else parsed

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def as_map(self) -> pa.Array:
        """All properties: a map column."""
        return pa.MapArray.from_arrays(pa.array(self._offsets), self._names, self._values)

    def column(self, name: str) -> pa.Array:
        """One property: a string column, null where a message does not have it."""
        codes, known = self._coded
        if name not in known:
            return pa.nulls(len(self), pa.string())
        at = np.flatnonzero(codes == known.index(name))
        if at.size == len(self):
            return self._values.take(pa.array(at))
        rows = np.searchsorted(self._offsets, at, side="right") - 1
        index, missing = np.zeros(len(self), np.int64), np.ones(len(self), np.bool_)
        index[rows], missing[rows] = at, False
        return self._values.take(pa.array(index, mask=missing))

    def has_doubles(self) -> bool:
        """Whether a message has a name twice."""
        codes, known = self._coded
        width = len(known)
        # Mostly each message has the same names in the same order, each once.
        if (
            len(codes) == width * len(self)
            and (codes.reshape(len(self), width) == np.arange(width)).all()
            and (np.diff(self._offsets) == width).all()
        ):
            return False
        rows = np.repeat(np.arange(len(self)), np.diff(self._offsets))
        said = np.sort(rows * len(known) + codes)
        return bool((said[1:] == said[:-1]).any())

    @cached_property
    def _coded(self) -> tuple[NDArray[np.int32], list[str]]:
        coded = self._names.dictionary_encode()
        return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def _parse_even(texts: pa.Array) -> PropertyColumns | None:
    """Parse without a loop; None if a text is irregular."""
    parts = split_texts(texts)
    if parts is None:
        return None
    offsets, names, values = parts
    rows = np.frombuffer(offsets, np.int32)
    count = int(rows[-1])
    try:
        parsed = PropertyColumns(
            rows,
            # No copy, only a check for bytes that are not UTF-8.
            binary_column(names, count, pa.binary()).cast(pa.string()),
            binary_column(values, count, pa.binary()).cast(pa.string()),
        )
    except pa.ArrowInvalid:
        return None
    return None if parsed.has_doubles() else parsed


@compiled
def split_texts(texts: pa.Array) -> tuple[BufferLike, ColumnBuffers, ColumnBuffers] | None:
    """The index of each row's first property, all names and all values; None if irregular."""
    offsets, data = offsets_of(texts), bytes_of(texts)
    first, last = int(offsets[0]), int(offsets[-1])
    data, offsets = data[first:last], offsets - first
    separators = np.flatnonzero((data == _MIDDLE) | (data == _END))
    middles, ends = separators[0::2], separators[1::2]
    starts = np.empty(len(ends), np.int64)
    starts[:1], starts[1:] = 0, ends[:-1] + 1
    if not _is_even(data, offsets, starts, middles, ends):
        return None
    rows = np.searchsorted(ends, offsets).astype(np.int32)
    if not len(ends):
        return rows, _NO_VALUES, _NO_VALUES
    return rows, cut_slices(data, starts, middles), cut_slices(data, middles + 1, ends)


def _is_even(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    starts: NDArray[np.int64],
    middles: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> bool:
    """Whether names, values and separators alternate, none is empty and all rows are closed."""
    closes = offsets[1:][np.diff(offsets) > 0] - 1
    return bool(
        len(middles) == len(ends)
        and (data[middles] == _MIDDLE).all()
        and (data[ends] == _END).all()
        and (starts < middles).all()
        and (middles + 1 < ends).all()
        and (data[closes] == _END).all()
    )


def _parse_odd(texts: pa.Array) -> PropertyColumns:
    decoded = [decode_properties(str(text, "utf-8", "replace")) for text in texts.to_pylist()]
    offsets = np.zeros(len(decoded) + 1, np.int32)
    np.cumsum([len(properties) for properties in decoded], out=offsets[1:])
    names = [name for properties in decoded for name in properties]
    values = [value for properties in decoded for value in properties.values()]
    return PropertyColumns(offsets, pa.array(names, pa.string()), pa.array(values, pa.string()))
