r"""Doubles: of messages with one key (ROQUET_ROW) the first is kept.

    QUERY/BATCH/PARTITION/ROW        what the sink writes: a bit for each row of a partition
    TOPIC/BROKER/QUEUE/OFFSET        what a replay writes, in the same form

A row can be there twice when a send was repeated whose answer got lost, or when Spark ran a task
again. Both copies come from one batch, so keys are remembered batch by batch, the newest of them:
a bit for each row. A queue, or a batch of very many rows, counts as several batches, each of
1,048,576 rows: an offset may be any number. What is guaranteed:

- The first message of a key is never dropped, whatever was forgotten.
- A double is dropped as long as the key's batch is remembered: those that were met last are, as
  many as their bits fit into `bytes_max`, and `batches_max` at most.
- That holds within one `Deduplicator`: it sees what one task reads. Doubles that two tasks
  read, or two micro-batches, stay; for those Spark's `dropDuplicatesWithinWatermark` is there.
- Messages without a key, or with one of another form, are kept.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.model import properties as names

BYTES_MAX: Final = 32 * 1024 * 1024
"""Of bits: a quarter of a milliard of rows."""

BATCHES_MAX: Final = 1_024
"""Remembered batches, each partition by itself: one of few rows costs more than its bits."""

BLOCK_ROWS: Final = 2**20
"""Rows that are remembered together: 128 KiB of bits."""

_KEY: Final = r"^(?P<head>[^/].*/[^/]+/\d{1,9})/(?P<row>\d{1,18})$"

RowBlock = tuple[str, int]
"""What a key begins with, and which of its blocks of rows."""


class Deduplicator:
    """Which keys were met; one for each task that reads."""

    def __init__(self, bytes_max: int = BYTES_MAX, batches_max: int = BATCHES_MAX) -> None:
        self._bytes_max = bytes_max
        self._batches_max = batches_max
        self._met: OrderedDict[RowBlock, NDArray[np.uint8]] = OrderedDict()
        self._bytes = 0
        self.dropped = 0
        """How many messages were doubles."""

    def firsts(self, keys: pa.Array) -> NDArray[np.bool_]:
        """Which messages are kept, by their keys: null for a message without one."""
        parts = pc.extract_regex(keys.cast(pa.string()), pattern=_KEY)
        heads = pc.struct_field(parts, 0).dictionary_encode()
        rows = pc.fill_null(pc.struct_field(parts, 1), "0").cast(pa.int64()).to_numpy()
        codes = pc.fill_null(heads.indices, -1).to_numpy()
        kept = np.ones(len(keys), np.bool_)
        for code, head in enumerate(heads.dictionary.to_pylist()):
            own = codes == code
            for number in np.unique(rows[own] // BLOCK_ROWS).tolist():
                at = np.flatnonzero(own & (rows // BLOCK_ROWS == number))
                kept[at] = self._new((head, number), rows[at] % BLOCK_ROWS)
        self.dropped += int(len(kept) - kept.sum())
        return kept

    def _new(self, block: RowBlock, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of a batch's rows were not met before; now they are."""
        bits = self._bits(block, int(rows.max()))
        places, masks = rows >> 3, np.uint8(1) << (rows & 7).astype(np.uint8)
        new = (bits[places] & masks) == 0
        _, firsts = np.unique(rows, return_index=True)
        only = np.zeros(len(rows), np.bool_)
        only[firsts] = True
        np.bitwise_or.at(bits, places, masks)
        self._forget(block)
        found: NDArray[np.bool_] = new & only
        return found

    def _bits(self, block: RowBlock, row: int) -> NDArray[np.uint8]:
        """The bits of a batch, at least as far as this row."""
        bits = self._met.get(block)
        size = (row >> 3) + 1
        if bits is None or len(bits) < size:
            # Half as much again: rows come in order, and each step is a copy.
            larger = np.zeros(size + size // 2 + 64, np.uint8)
            if bits is not None:
                larger[: len(bits)] = bits
            self._bytes += len(larger) - (0 if bits is None else len(bits))
            self._met[block] = bits = larger
        self._met.move_to_end(block)
        return bits

    def _forget(self, but: RowBlock) -> None:
        """Forget the batches that were not met for longest."""
        while len(self._met) > 1 and (
            self._bytes > self._bytes_max or len(self._met) > self._batches_max
        ):
            block, bits = self._met.popitem(last=False)
            assert block != but, "it was met this moment"
            self._bytes -= len(bits)


def drop_duplicates(
    batches: Iterable[pa.RecordBatch], doubles: Deduplicator, column: str = "properties"
) -> Iterator[pa.RecordBatch]:
    """The batches less their doubles; `column` holds the properties of each message, as a map."""
    for batch in batches:
        keys = pc.map_lookup(batch.column(column), names.SINK_ROW, "first")
        kept = doubles.firsts(keys)
        yield batch if kept.all() else batch.filter(pa.array(kept))
