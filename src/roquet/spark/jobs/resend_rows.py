"""Resent rows: archived rows encoded as new messages, and the originals of such copies in a topic.

A copy has the body, keys, tag, order key and user properties of its original, but none of the
properties that record what happened to the original. It adds two of its own: ROQUET_ROW, by which
readers drop duplicates, and ROQUET_FROM, the coordinates of the original as
TOPIC/BROKER/QUEUE/OFFSET, by which a repeated job knows which copies are already there.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.arrow.encode import batch_items
from roquet.lake.intervals import OffsetSet
from roquet.lake.queue_offsets import QueueKey
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal
from roquet.spark.sink.property_columns import property_texts_of, without

REQUIRED_COLUMNS: Final = ("broker", "queue_id", "queue_offset", "body")
"""Columns without which a row can neither be sent nor be recognized afterwards."""

PROPERTY_COLUMNS: Final = ("message_id", "key", "keys", "tag")
"""Columns that replace the column `properties` in tables without it."""

USED_COLUMNS: Final = (
    *REQUIRED_COLUMNS,
    "topic",
    "stored_at",
    "properties",
    "flag",
    *PROPERTY_COLUMNS,
)
"""All columns that are read, where a table has them."""

_COORDINATES_PATTERN: Final = (
    r"^(?P<topic>[^/]+)/(?P<broker>[^/]+)/(?P<queue>\d{1,9})/(?P<offset>\d{1,18})$"
)

_PROPERTY_END: Final = pa.scalar(b"\x02")


def coordinates(rows: pa.RecordBatch, topic: str) -> pa.Array:
    """TOPIC/BROKER/QUEUE/OFFSET of each row; `topic` applies where the rows have no such column."""
    topics = rows.column("topic") if "topic" in rows.schema.names else pa.scalar(topic)
    numbers = [rows.column(name).cast(pa.string()) for name in ("queue_id", "queue_offset")]
    broker = rows.column("broker").cast(pa.string())
    return pc.binary_join_element_wise(topics, broker, *numbers, "/")


def resend_items(
    rows: pa.RecordBatch, topic: str, unique: pa.Array, more: Mapping[str, pa.Array] | None = None
) -> pa.Array:
    """Encode each row as an item of a batch send.

    `unique` are message ids for rows that have none. `more` are further properties by name;
    a `message_id` among them replaces the id of every row.

    Raises MessageIllegal, which names the row, for one that cannot be sent.
    """
    names_of_rows = coordinates(rows, topic)
    bodies = rows.column("body").cast(pa.binary())
    sizes = pc.fill_null(pc.binary_length(bodies), 0)
    _raise_for_first(pc.equal(sizes, 0), names_of_rows, "has no body: brokers refuse it")
    ours = {names.REPLAYED_FROM: names_of_rows, **(more or {})}
    texts = _property_texts(rows, names_of_rows, unique, ours)
    limit = names.PROPERTIES_SIZE_MAX
    too_long = pc.greater(pc.binary_length(texts), limit)
    _raise_for_first(too_long, names_of_rows, f"has properties over the limit of {limit} bytes")
    flags = np.zeros(len(rows), np.int32)
    if "flag" in rows.schema.names:
        flags = pc.fill_null(rows.column("flag"), 0).to_numpy().astype(np.int32)
    return batch_items(bodies, texts, flags)


def originals_of(keys: pa.Array) -> dict[QueueKey, OffsetSet]:
    """The originals that values of ROQUET_FROM name, by queue; other texts are skipped."""
    texts = keys.cast(pa.string()).drop_null()
    parts = pc.extract_regex(texts, pattern=_COORDINATES_PATTERN).drop_null()
    queues = pc.binary_join_element_wise(*(pc.struct_field(parts, at) for at in range(3)), "/")
    encoded = queues.dictionary_encode()
    offsets = pc.struct_field(parts, 3).cast(pa.int64()).to_numpy()
    codes = encoded.indices.to_numpy()
    originals: dict[QueueKey, OffsetSet] = {}
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        topic, broker, queue_id = text.split("/")
        queue = topic, broker, int(queue_id)
        own = OffsetSet.of(offsets[codes == code])
        originals[queue] = originals.get(queue, OffsetSet()) | own
    return originals


def originals_in(batches: Iterable[pa.RecordBatch]) -> dict[QueueKey, OffsetSet]:
    """The originals of all copies among messages; batches need the column `properties`."""
    originals: dict[QueueKey, OffsetSet] = {}
    for batch in batches:
        keys = pc.map_lookup(batch.column("properties"), names.REPLAYED_FROM, "first")
        for queue, offsets in originals_of(keys).items():
            originals[queue] = originals.get(queue, OffsetSet()) | offsets
    return originals


def _property_texts(
    rows: pa.RecordBatch, names_of_rows: pa.Array, unique: pa.Array, ours: Mapping[str, pa.Array]
) -> pa.Array:
    """The encoded properties of each row: those of the original, followed by ours."""
    present = set(rows.schema.names)
    used = ("properties",) if "properties" in present else present & set(PROPERTY_COLUMNS)
    columns = {name: rows.column(name) for name in used}
    if "keys" in columns:
        columns.pop("key", None)
    if "properties" in columns:  # a copy may be copied again: ours replace those of the first copy
        columns["properties"] = without(columns["properties"], pa.array(sorted(ours), pa.string()))
    if "message_id" in ours:
        columns["message_id"] = ours["message_id"]
    parts = [property_texts_of(columns, unique, names_of_rows).cast(pa.binary())]
    for name, values in ours.items():
        if name != "message_id":
            texts = pc.fill_null(values.cast(pa.binary()), b"")
            parts += [pa.scalar(f"{name}\x01".encode()), texts, _PROPERTY_END]
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))


def _raise_for_first(is_wrong: pa.Array, names_of_rows: pa.Array, text: str) -> None:
    if (at := int(pc.index(is_wrong, True).as_py())) >= 0:
        raise MessageIllegal(f"message {names_of_rows[at]} {text}")
