"""Half message references: everything needed to end the half messages of rows, as Arrow bytes."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.model.errors import RecordError
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.wire.records.message_id import parse_offset_message_id

SCHEMA: Final = pa.schema(
    {
        "partition": pa.int32(),
        "row": pa.int64(),
        "topic": pa.string(),
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "half_offset": pa.int64(),
        "position": pa.int64(),
        "unique_key": pa.string(),
        "ordered": pa.bool_(),
    }
)
"""`half_offset` is the offset in the queue of half messages, `position` the one in the broker's log
in bytes; `queue_id` is the queue of the message after its commit."""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


def refs_of(sent: Sequence[DeliveredRequest], partition: int) -> pa.Table:
    """References to the half messages of one partition, in row order."""
    rows = sorted(sent, key=lambda delivered: delivered.request.row)
    columns = {
        "partition": [partition] * len(rows),
        "row": [delivered.request.row for delivered in rows],
        "topic": [delivered.request.topic for delivered in rows],
        "broker": [delivered.broker for delivered in rows],
        "queue_id": [delivered.reply.queue_id for delivered in rows],
        "half_offset": [delivered.reply.queue_offset for delivered in rows],
        "position": [parse_offset_message_id(delivered.reply.msg_id)[1] for delivered in rows],
        "unique_key": [delivered.reply.transaction_id or "" for delivered in rows],
        "ordered": [delivered.request.queue is not None for delivered in rows],
    }
    return pa.Table.from_pydict(columns, SCHEMA)


def to_bytes(table: pa.Table) -> bytes:
    """A table as compressed bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """The table in the bytes of `to_bytes`; RecordError when they do not decode."""
    try:
        return pa.ipc.open_stream(data).read_all()
    except pa.ArrowException as error:
        raise RecordError(f"no table of half messages: {error}") from error


def concat(tables: Iterable[pa.Table]) -> pa.Table:
    """The references of all partitions as one table."""
    return pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()


def row_codes(partitions: pa.Array, rows: pa.Array) -> NDArray[np.int64]:
    """A distinct number for each row of a batch, from its partition and row number."""
    high: NDArray[np.int64] = partitions.cast(pa.int64()).to_numpy() << PARTITION_SHIFT
    low: NDArray[np.int64] = rows.cast(pa.int64()).to_numpy()
    return high | low


PARTITION_SHIFT: Final = 40
"""Bits of a row number: a partition has at most 2**40 rows."""
