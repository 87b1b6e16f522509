"""Copies: archived rows as messages that are sent again, and which rows a topic has copies of.

A copy has the body, keys, tag, order key and users' properties of its original, and no property
that says what became of that one. Its own are ROQUET_ROW and ROQUET_FROM, the original's
coordinates: TOPIC/BROKER/QUEUE/OFFSET. Readers drop doubles by the first; a job that is repeated
knows by the second what is there.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.arrow.encode import batch_items
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal
from roquet.spark.jobs.intervals import OffsetSet
from roquet.spark.queue_offsets import QueueKey
from roquet.spark.sink.property_columns import property_texts_of, without

REQUIRED_COLUMNS: Final = ("broker", "queue_id", "queue_offset", "body")
"""Columns without which a row cannot be sent again and be known again."""

PROPERTY_COLUMNS: Final = ("message_id", "key", "keys", "tag")
"""Columns that say what properties say, for tables without those."""

USED_COLUMNS: Final = (
    *REQUIRED_COLUMNS,
    "topic",
    "stored_at",
    "properties",
    "flag",
    *PROPERTY_COLUMNS,
)
"""Columns of which something is made, where they are there."""

_COORDINATES_PATTERN: Final = (
    r"^(?P<topic>[^/]+)/(?P<broker>[^/]+)/(?P<queue>\d{1,9})/(?P<offset>\d{1,18})$"
)


def coordinates(rows: pa.RecordBatch, topic: str) -> pa.Array:
    """Which message each row is; `topic` where no column says it."""
    whose = rows.column("topic") if "topic" in rows.schema.names else pa.scalar(topic)
    numbers = [rows.column(name).cast(pa.string()) for name in ("queue_id", "queue_offset")]
    broker = rows.column("broker").cast(pa.string())
    return pc.binary_join_element_wise(whose, broker, *numbers, "/")


def resend_items(
    rows: pa.RecordBatch,
    topic: str,
    unique: pa.Array,
    more: Mapping[str, pa.Array] | None = None,
) -> pa.Array:
    """Each row as an item of a batch; `unique` are ids for those that have none.

    `more` are properties of ours besides, and perhaps other ids (`message_id`) for all.

    MessageIllegal names the row that cannot be sent.
    """
    where = coordinates(rows, topic)
    bodies = rows.column("body").cast(pa.binary())
    sizes = pc.fill_null(pc.binary_length(bodies), 0)
    _raise_for_first(pc.equal(sizes, 0), where, "has no body: brokers take no such message")
    texts = _property_texts(rows, where, unique, {names.REPLAYED_FROM: where, **(more or {})})
    too_long = pc.greater(pc.binary_length(texts), names.PROPERTIES_SIZE_MAX)
    _raise_for_first(
        too_long, where, f"has more properties than fit: {names.PROPERTIES_SIZE_MAX} bytes"
    )
    flags = np.zeros(len(rows), np.int32)
    if "flag" in rows.schema.names:
        flags = pc.fill_null(rows.column("flag"), 0).to_numpy().astype(np.int32)
    return batch_items(bodies, texts, flags)


def originals_of(keys: pa.Array) -> dict[QueueKey, OffsetSet]:
    """The originals that are named by ROQUET_FROM, by queue; null and foreign keys are passed."""
    parts = pc.extract_regex(
        keys.cast(pa.string()).drop_null(), pattern=_COORDINATES_PATTERN
    ).drop_null()
    heads = pc.binary_join_element_wise(*(pc.struct_field(parts, at) for at in range(3)), "/")
    coded = heads.dictionary_encode()
    offsets = pc.struct_field(parts, 3).cast(pa.int64()).to_numpy()
    codes = coded.indices.to_numpy()
    found: dict[QueueKey, OffsetSet] = {}
    for code, head in enumerate(coded.dictionary.to_pylist()):
        topic, broker, queue_id = head.split("/")
        queue = topic, broker, int(queue_id)
        found[queue] = found.get(queue, OffsetSet()) | OffsetSet.of(offsets[codes == code])
    return found


def originals_in(batches: Iterable[pa.RecordBatch]) -> dict[QueueKey, OffsetSet]:
    """The originals of all copies among messages; the batches have their properties."""
    found: dict[QueueKey, OffsetSet] = {}
    for batch in batches:
        keys = pc.map_lookup(batch.column("properties"), names.REPLAYED_FROM, "first")
        for queue, runs in originals_of(keys).items():
            found[queue] = found.get(queue, OffsetSet()) | runs
    return found


def _property_texts(
    rows: pa.RecordBatch, where: pa.Array, unique: pa.Array, ours: Mapping[str, pa.Array]
) -> pa.Array:
    """The property texts: the originals', and behind them what is ours."""
    columns = set(rows.schema.names)
    taken = ("properties",) if "properties" in columns else columns & set(PROPERTY_COLUMNS)
    said = {name: rows.column(name) for name in taken}
    if "keys" in said:
        said.pop("key", None)
    if "properties" in said:  # a copy may be copied, and what is ours is said once
        said["properties"] = without(said["properties"], pa.array(sorted(ours), pa.string()))
    if "message_id" in ours:
        said["message_id"] = ours["message_id"]
    pieces = [property_texts_of(said, unique, where).cast(pa.binary())]
    for name, values in ours.items():
        if name != "message_id":
            texts = pc.fill_null(values.cast(pa.binary()), b"")
            pieces += [pa.scalar(f"{name}\x01".encode()), texts, _END]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b""))


_END: Final = pa.scalar(b"\x02")


def _raise_for_first(wrong: pa.Array, where: pa.Array, text: str) -> None:
    if (at := int(pc.index(wrong, True).as_py())) >= 0:
        raise MessageIllegal(f"message {where[at]} {text}")
