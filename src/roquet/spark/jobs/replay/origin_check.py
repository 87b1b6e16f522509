"""Origins: whether a topic holds the very messages that a table would send to it.

A topic's archive is replayed to a topic of the same name in another cluster, or where the messages
have gone; where they still are, each would be there twice. Names do not tell: the messages do.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from roquet.model import properties as names
from roquet.rules.topic_id import is_other_topic
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.jobs.intervals import OffsetSet
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, read_rows
from roquet.spark.jobs.resend_rows import coordinates
from roquet.spark.queue_offsets import OffsetRange, QueueKey
from roquet.spark.tables.snapshot import TableSnapshot

IDENTITY_COLUMNS: Final = ("body", "message_id")
"""Columns that make a message the same one; a table without ids goes by bodies."""


def is_original(row: pa.RecordBatch, found: pa.RecordBatch, topic: str) -> bool:
    """Whether the message in a row's place is the archived one, and no copy of it. Pure."""
    source = pc.map_lookup(found.column("properties"), names.REPLAYED_FROM, "first")
    known = [name for name in IDENTITY_COLUMNS if name in row.schema.names]
    is_same = all(row.column(name)[0].as_py() == found.column(name)[0].as_py() for name in known)
    return is_same and source[0].as_py() != coordinates(row, topic)[0].as_py()


def may_hold_originals(bounds: OffsetBounds, stretch: QueueRows, held: TableSnapshot) -> bool:
    """Whether a queue may hold the rows of its name: not where its topic was made anew since."""
    topic, broker, _ = stretch.source
    known = held.topic_ids.get(broker) if topic == held.topic else None
    return not is_other_topic(known, bounds.topic_ids.get((topic, broker)))


def queue_with_originals(
    cluster: ClusterClient,
    bounds: OffsetBounds,
    wanted: Iterable[QueueRows],
    choice: RowFilter,
    there: Mapping[QueueKey, OffsetSet],
) -> QueueKey | None:
    """A queue of the destination in which rows lie that would be sent; None when there is none."""
    for stretch in wanted:
        source = stretch.source
        if source in bounds.latest and stretch.rows:
            span = bounds.earliest[source], bounds.latest[source]
            row = _row_in_range(stretch, choice, there.get(source, OffsetSet()), span)
            if row is not None and _holds_original(cluster, row, source):
                return source
    return None


def _row_in_range(
    stretch: QueueRows, choice: RowFilter, there: OffsetSet, span: tuple[int, int]
) -> pa.RecordBatch | None:
    """A row whose offset the topic has, of the first ones: who looked further would read it all."""
    batch = next(read_rows(stretch, choice, there), None)
    if batch is None:
        return None
    offsets = batch.column("queue_offset")
    known = batch.filter(pc.and_(pc.greater_equal(offsets, span[0]), pc.less(offsets, span[1])))
    return known.slice(0, 1) if known.num_rows else None


def _holds_original(cluster: ClusterClient, row: pa.RecordBatch, source: QueueKey) -> bool:
    offset = row.column("queue_offset")[0].as_py()
    reader = RangeReader(cluster, (*IDENTITY_COLUMNS, "properties"))
    found = next(iter(reader.batches([OffsetRange(*source, offset, offset + 1)])), None)
    return found is not None and is_original(row, found, source[0])
