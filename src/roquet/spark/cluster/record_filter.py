"""Record filter: the tags or SQL expression of a pull, the same filter on its reply, deduplication.

A broker compares hashes of tags, which may collide, so tags are compared again as text. A SQL
expression is evaluated by the broker alone.

Deduplication keeps the first of several messages with one row key (ROQUET_ROW):

    QUERY/BATCH/PARTITION/ROW        written by the sink
    TOPIC/BROKER/QUEUE/OFFSET        written by a replay

A row is sent twice when the reply to a send was lost, or when Spark ran a task again. Keys are
remembered in bitmaps, one bit per row, one bitmap per partition of a batch. Numbers beyond
1,048,576 (a large batch, or offsets) go to further bitmaps. Guarantees:

- The first message of a key is never dropped.
- A duplicate is dropped as long as its bitmap is remembered: the most recently used ones are, up
  to `bytes_max` bytes and `batches_max` bitmaps.
- This holds within one `Deduplicator`, which sees the messages of one task. Duplicates read by two
  tasks or in two micro-batches stay; use Spark's `dropDuplicatesWithinWatermark` for those.
- Messages without a key, or with one of another form, are kept.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.arrow.records import RecordColumns
from roquet.model import properties as names
from roquet.model.subscription import ALL, SQL92, TAG
from roquet.rules.bounded_cache import BoundedCache
from roquet.rules.tag_filter import SEPARATOR
from roquet.spark.options import SourceOptions

BYTES_MAX: Final = 32 * 1024 * 1024
"""Default memory bound: 32 MiB of bitmap, one bit per row, about 268 million rows."""

BATCHES_MAX: Final = 1_024
"""Default bound on the number of bitmaps: a small one costs more than its bits."""

BLOCK_ROWS: Final = 2**20
"""Rows of one bitmap: 128 KiB."""

_KEY: Final = r"^(?P<head>[^/].*/[^/]+/\d{1,9})/(?P<row>\d{1,18})$"

RowBlock = tuple[str, int]
"""A key without its row number, and the number of a block of `BLOCK_ROWS` rows."""


class Deduplicator:
    """Remembers the keys that one task has read."""

    def __init__(self, bytes_max: int = BYTES_MAX, batches_max: int = BATCHES_MAX) -> None:
        self._bitmaps: BoundedCache[RowBlock, NDArray[np.uint8]] = BoundedCache(
            batches_max, bytes_max
        )
        """By block; weights are bytes."""
        self.dropped = 0
        """The number of duplicates so far."""

    @property
    def bytes_used(self) -> int:
        """Bytes of all bitmaps."""
        return self._bitmaps.weight

    def first_occurrences(self, keys: pa.Array) -> NDArray[np.bool_]:
        """A mask of the messages to keep, by their keys; the key is null for a message without."""
        parts = pc.extract_regex(keys.cast(pa.string()), pattern=_KEY)
        heads = pc.struct_field(parts, 0).dictionary_encode()
        rows = pc.fill_null(pc.struct_field(parts, 1), "0").cast(pa.int64()).to_numpy()
        codes = pc.fill_null(heads.indices, -1).to_numpy()
        kept = np.ones(len(keys), np.bool_)
        for code, head in enumerate(heads.dictionary.to_pylist()):
            own = codes == code
            for number in np.unique(rows[own] // BLOCK_ROWS).tolist():
                at = np.flatnonzero(own & (rows // BLOCK_ROWS == number))
                kept[at] = self._mark((head, number), rows[at] % BLOCK_ROWS)
        self.dropped += int(len(kept) - kept.sum())
        return kept

    def _mark(self, block: RowBlock, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Set the rows' bits; a mask of the rows whose bit was not set before."""
        bits = self._bitmap(block, int(rows.max()))
        places, masks = rows >> 3, np.uint8(1) << (rows & 7).astype(np.uint8)
        new = (bits[places] & masks) == 0
        _, firsts = np.unique(rows, return_index=True)
        only = np.zeros(len(rows), np.bool_)
        only[firsts] = True
        np.bitwise_or.at(bits, places, masks)
        unseen: NDArray[np.bool_] = new & only
        return unseen

    def _bitmap(self, block: RowBlock, row: int) -> NDArray[np.uint8]:
        """The bitmap of a block, long enough for this row; it becomes the most recently used."""
        bits = self._bitmaps.get(block)
        size = (row >> 3) + 1
        if bits is None or len(bits) < size:
            # Grows by half: rows come in order, and each growth is a copy.
            larger = np.zeros(size + size // 2 + 64, np.uint8)
            if bits is not None:
                larger[: len(bits)] = bits
            self._bitmaps.put(block, larger, len(larger))
            return larger
        return bits


class RecordFilter:
    """Filters the messages of one task; it remembers row keys for option dropDoubles."""

    def __init__(self, settings: SourceOptions) -> None:
        self._tags = settings.tags
        self._sql = settings.sql92
        self._deduplicator = Deduplicator() if settings.drop_doubles else None

    @property
    def takes_all(self) -> bool:
        """Whether brokers filter nothing, so that every missing offset is a lost message."""
        return self._tags is None and self._sql is None

    @property
    def expression(self) -> tuple[str, str]:
        """The expression of a pull and its type, TAG or SQL92."""
        if self._sql is not None:
            return self._sql, SQL92
        return (ALL if self._tags is None else f" {SEPARATOR} ".join(self._tags)), TAG

    def apply(self, records: RecordColumns) -> RecordColumns:
        """The records without hash collisions of tags and, with dropDoubles, without duplicates."""
        if self._tags is not None and len(records):
            mask = pc.is_in(records.property(names.TAGS), pa.array(self._tags, pa.string()))
            records = _where(records, np.asarray(mask.to_numpy(zero_copy_only=False), np.bool_))
        if self._deduplicator is not None and len(records):
            keys = records.property(names.SINK_ROW)
            records = _where(records, self._deduplicator.first_occurrences(keys))
        return records


def _where(records: RecordColumns, wanted: NDArray[np.bool_]) -> RecordColumns:
    return records if wanted.all() else records.where(wanted)
