"""Origin check: whether a destination topic still holds the original messages of a table.

A topic's archive may be replayed to a topic of the same name in another cluster, or after the
messages were deleted. Where they still exist, a replay would store each of them twice. The topic's
name does not tell these cases apart, so the messages themselves are compared.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from roquet.lake.intervals import OffsetSet
from roquet.lake.queue_offsets import OffsetRange, QueueKey
from roquet.lake.snapshot import TableSnapshot
from roquet.model import properties as names
from roquet.rules.topic_id import is_other_topic
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, read_rows
from roquet.spark.jobs.resend_rows import coordinates

IDENTITY_COLUMNS: Final = ("body", "message_id")
"""Columns that identify a message; a table without ids is compared by bodies alone."""


def is_original(row: pa.RecordBatch, message: pa.RecordBatch, topic: str) -> bool:
    """Whether the message at a row's offset is the archived one, and not a copy of it. Pure."""
    copied_from = pc.map_lookup(message.column("properties"), names.REPLAYED_FROM, "first")
    known = [name for name in IDENTITY_COLUMNS if name in row.schema.names]
    is_same = all(row.column(name)[0].as_py() == message.column(name)[0].as_py() for name in known)
    return is_same and copied_from[0].as_py() != coordinates(row, topic)[0].as_py()


def may_hold_originals(
    bounds: OffsetBounds, queue_rows: QueueRows, snapshot: TableSnapshot
) -> bool:
    """Whether a queue may hold the original rows: False where its topic was recreated since."""
    topic, broker, _ = queue_rows.source
    archived_id = snapshot.topic_ids.get(broker) if topic == snapshot.topic else None
    return not is_other_topic(archived_id, bounds.topic_ids.get((topic, broker)))


def queue_with_originals(
    cluster: ClusterClient,
    bounds: OffsetBounds,
    sources: Iterable[QueueRows],
    row_filter: RowFilter,
    already_sent: Mapping[QueueKey, OffsetSet],
) -> QueueKey | None:
    """A destination queue that holds the originals of rows to be sent; None when there is none."""
    for queue_rows in sources:
        source = queue_rows.source
        if source in bounds.latest and queue_rows.rows:
            rows = read_rows(queue_rows, row_filter, already_sent.get(source, OffsetSet()))
            row = _first_row_within(rows, bounds.earliest[source], bounds.latest[source])
            if row is not None and _holds_original(cluster, row, source):
                return source
    return None


def _first_row_within(
    rows: Iterator[pa.RecordBatch], start: int, end: int
) -> pa.RecordBatch | None:
    """A row of the first batch with an offset in [start, end); None when that batch has none.

    Only one batch is read: to look further could mean to read all rows.
    """
    batch = next(rows, None)
    if batch is None:
        return None
    offsets = batch.column("queue_offset")
    known = batch.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
    return known.slice(0, 1) if known.num_rows else None


def _holds_original(cluster: ClusterClient, row: pa.RecordBatch, source: QueueKey) -> bool:
    offset = row.column("queue_offset")[0].as_py()
    reader = RangeReader(cluster, (*IDENTITY_COLUMNS, "properties"))
    message = next(iter(reader.batches([OffsetRange(*source, offset, offset + 1)])), None)
    return message is not None and is_original(row, message, source[0])
