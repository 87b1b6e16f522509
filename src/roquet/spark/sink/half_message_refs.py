"""Halves: where the half messages of rows lie, as Arrow bytes: what ends them needs all of it."""

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
"""`half_offset` is the place in the queue of half messages, `position` that in the broker's log;
`queue_id` is where the message will be."""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


def refs_of(sent: Sequence[DeliveredRequest], partition: int) -> pa.Table:
    """Where the half messages of one partition lie, in the order of its rows."""
    rows = sorted(sent, key=lambda one: one.parcel.row)
    columns = {
        "partition": [partition] * len(rows),
        "row": [one.parcel.row for one in rows],
        "topic": [one.parcel.topic for one in rows],
        "broker": [one.broker for one in rows],
        "queue_id": [one.reply.queue_id for one in rows],
        "half_offset": [one.reply.queue_offset for one in rows],
        "position": [parse_offset_message_id(one.reply.msg_id)[1] for one in rows],
        "unique_key": [one.reply.transaction_id or "" for one in rows],
        "ordered": [one.parcel.queue is not None for one in rows],
    }
    return pa.Table.from_pydict(columns, SCHEMA)


def to_bytes(table: pa.Table) -> bytes:
    """A table as bytes, small ones."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """The table of such bytes; RecordError when they are none."""
    try:
        return pa.ipc.open_stream(data).read_all()
    except pa.ArrowException as error:
        raise RecordError(f"no table of half messages: {error}") from error


def concat(tables: Iterable[pa.Table]) -> pa.Table:
    """The half messages of all partitions."""
    return pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()


def row_codes(partitions: pa.Array, rows: pa.Array) -> NDArray[np.int64]:
    """One number for each row of a batch: no two are alike."""
    high: NDArray[np.int64] = partitions.cast(pa.int64()).to_numpy() << PARTITION_SHIFT
    low: NDArray[np.int64] = rows.cast(pa.int64()).to_numpy()
    return high | low


PARTITION_SHIFT: Final = 40
"""Bits of a row's number: a partition has no more rows than 2 to the 40th."""
