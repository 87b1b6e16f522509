"""Letter table: dead letters as rows that say why they failed, made of archives of their topics.

    DIR/raw/TOPIC/    an archive of a dead-letter or retry topic
    DIR/letters/      the letters; a file has the name of the archive's file that it was made of

A file of letters appears whole, and is made anew with the same rows by whoever finds it missing.

letter_id      TOPIC/BROKER/QUEUE/OFFSET in the dead-letter or retry topic
state          dead, or waiting: in a retry topic, where it was or will be tried again
reason         why it failed, as far as the message says
tries          how often its handler failed
origin_topic   the topic that it was first sent to, and origin_id, its message id there
failed_at      when the broker took it back last
consumer       the member that sent it back; null unless consumers set the property CONSUMER,
               because neither Apache's clients nor ours record it
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from roquet.lake.files.file_tree import FileTree, file_tree
from roquet.lake.files.parquet_writer import LEVELS
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import dataset_source
from roquet.lake.snapshot import read_snapshot
from roquet.model import names, properties
from roquet.spark.jobs.resend_rows import coordinates

RAW_COLUMNS: Final = (
    *("topic", "broker", "queue_id", "queue_offset", "message_id", "key", "keys", "tag"),
    *("body", "properties", "born_at", "stored_at", "flag", "reconsume_times"),
)
"""Columns of the archived topics that the table of letters is made from."""

CONSUMER: Final = "CONSUMER"
"""An optional property in which a consumer names itself."""

GROUP_COLUMNS: Final = ("state", "origin_topic", "tag", "day", "reason")
"""Columns by which letters are counted."""

_TIME: Final = pa.timestamp("us", "UTC")

SCHEMA: Final = pa.schema(
    {
        "letter_id": pa.string(),
        "state": pa.string(),
        "reason": pa.string(),
        "tries": pa.int32(),
        "origin_topic": pa.string(),
        "origin_id": pa.string(),
        "failed_at": _TIME,
        "born_at": _TIME,
        "consumer": pa.string(),
        "day": pa.date32(),
        "topic": pa.string(),
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "message_id": pa.string(),
        "keys": pa.string(),
        "tag": pa.string(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "flag": pa.int32(),
    }
)


def transform(rows: pa.RecordBatch, tries_max: int) -> pa.RecordBatch:
    """Convert messages to letters; `tries_max` is the number of retries that the group allows."""
    props = rows.column("properties")
    is_dead = pc.starts_with(rows.column("topic"), names.DLQ_PREFIX)
    tries = pc.fill_null(rows.column("reconsume_times"), 0)
    stored = rows.column("stored_at")
    computed: dict[str, Any] = {
        "letter_id": coordinates(rows, ""),
        "state": pc.if_else(is_dead, "dead", "waiting"),
        "reason": _reasons(is_dead, tries, tries_max),
        "tries": tries,
        "origin_topic": _origin_topics(props),
        "origin_id": pc.coalesce(
            _property(props, properties.DLQ_ORIGIN_MESSAGE_ID),
            _property(props, properties.UNIQUE_KEY),
            _property(props, properties.ORIGIN_MESSAGE_ID),
        ),
        "failed_at": stored,
        "consumer": _property(props, CONSUMER),
        "day": stored.cast(pa.date32(), safe=False),
    }
    columns = [
        (computed[name] if name in computed else rows.column(name)).cast(SCHEMA.field(name).type)
        for name in SCHEMA.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def count_by_reason(letters: pa.Table, sent: Sequence[str] = ()) -> pa.Table:
    """Count letters by GROUP_COLUMNS, and those of them whose id is in `sent`."""
    is_sent = pc.is_in(letters["letter_id"], pa.array(list(sent), pa.string()))
    rows = letters.select(list(GROUP_COLUMNS)).append_column("sent", is_sent.cast(pa.int64()))
    counts = rows.group_by(list(GROUP_COLUMNS)).aggregate([([], "count_all"), ("sent", "sum")])
    renamed = counts.rename_columns([_COUNT_NAMES.get(name, name) for name in counts.column_names])
    order = [(name, "ascending") for name in GROUP_COLUMNS]
    return renamed.select([*GROUP_COLUMNS, "letters", "sent"]).sort_by(order)


_COUNT_NAMES: Final = {"count_all": "letters", "sent_sum": "sent"}


def select_by_id(letters: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The letters with these ids: of the letter, of its message or of the original message."""
    wanted = pa.array(list(ids), pa.string())
    columns = ("letter_id", "message_id", "origin_id")
    hits = [pc.is_in(letters[name], wanted).combine_chunks().to_numpy(False) for name in columns]
    return letters.filter(pa.array(np.logical_or.reduce(hits)))


def unknown_ids(letters: pa.Table, ids: Sequence[str]) -> list[str]:
    """The ids that select no letter."""
    columns = ("letter_id", "message_id", "origin_id")
    known = {known_id for name in columns for known_id in letters[name].to_pylist()}
    return [each for each in ids if each not in known]


def select_sendable(letters: pa.Table, sent: Sequence[str]) -> pa.Table:
    """The dead letters with an original topic that are not in `sent`, by queue and offset."""
    is_new = pc.invert(pc.is_in(letters["letter_id"], pa.array(list(sent), pa.string())))
    is_dead = pc.equal(letters["state"], "dead")
    has_origin = pc.is_valid(letters["origin_topic"])
    rows = letters.filter(pc.and_(pc.and_(is_new, is_dead), has_origin))
    return rows.sort_by([(name, "ascending") for name in ("broker", "queue_id", "queue_offset")])


def _reasons(is_dead: pa.Array, tries: pa.Array, tries_max: int) -> pa.Array:
    text = tries.cast(pa.string())
    is_single = pc.equal(tries, 1)
    times = pc.if_else(is_single, " time", " times")
    # The first attempt is no retry: a message that was retried 16 times has failed 17 times.
    exhausted = pc.binary_join_element_wise("failed ", text, times, ", no try was left", "")
    failures = pc.if_else(is_single, " failure", " failures")
    given_up = pc.binary_join_element_wise("given up after ", text, failures, "")
    waits = pc.binary_join_element_wise("failed ", text, times, ", is tried again", "")
    dead = pc.if_else(pc.greater(tries, tries_max), exhausted, given_up)
    return pc.if_else(is_dead, dead, waits)


def _origin_topics(props: pa.Array) -> pa.Array:
    """The topic that a user sent the message to; null when the message does not say."""
    topic = pc.coalesce(
        _property(props, properties.DLQ_ORIGIN_TOPIC), _property(props, properties.RETRY_TOPIC)
    )
    is_internal = pc.or_(
        pc.starts_with(topic, names.RETRY_PREFIX), pc.starts_with(topic, names.DLQ_PREFIX)
    )
    return pc.if_else(pc.fill_null(is_internal, False), None, topic)


def _property(props: pa.Array, name: str) -> pa.Array:
    """The value of a property; null where it is missing or empty."""
    values = pc.map_lookup(props, name, "first").cast(pa.string())
    return pc.if_else(pc.equal(values, ""), None, values)


LETTERS: Final = "letters"

BATCH_ROWS: Final = 4_096
"""Letters that are converted at a time."""


def archive_location(root: TableLocation, topic: str) -> TableLocation:
    """Where the archive of a topic of letters lies.

    Topics of letters begin with a percent sign, which libraries spell differently in paths; so it
    is written as an at sign, which topics do not have.
    """
    path = f"raw/{quote(topic, safe='').replace('%', '@')}"
    if isinstance(root, Path):
        return root / path
    return msgspec.structs.replace(root, url=root.file(path))


def read_letters(root: TableLocation, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the table of letters; all columns by default."""
    store = file_tree(root)
    letters = store.rows(_letter_files(store), SCHEMA, columns)
    if "letter_id" not in letters.column_names:
        return letters
    # An archive whose files were merged brings its letters once more.
    _, first = np.unique(letters["letter_id"].to_numpy(), return_index=True)
    return letters if len(first) == len(letters) else letters.take(pa.array(np.sort(first)))


def convert_new_files(root: TableLocation, topic: str, tries_max: int) -> int:
    """Convert each file of an archive that was not converted before; returns the new letters."""
    store = file_tree(root)
    known = {*_letter_files(store)}
    archive = archive_location(root, topic)
    storage = {} if isinstance(root, Path) else root.options
    snapshot = read_snapshot(str(archive), topic, kind="delta", storage=storage)
    rows = 0
    for path in snapshot.paths:
        target = f"{LETTERS}/{PurePosixPath(path).name}"
        if target not in known:
            source, files = dataset_source(path, snapshot.storage)
            data = ds.dataset(source, format="parquet", filesystem=files)
            rows += _convert(data, store, target, tries_max)
    return rows


def _convert(data: ds.Dataset, store: FileTree, target: str, tries_max: int) -> int:
    """Convert messages to letters; `target` appears only once it is whole."""
    rows = 0
    level = LEVELS["zstd"]
    with (
        store.writer(target) as stream,
        pq.ParquetWriter(stream, SCHEMA, compression="zstd", compression_level=level) as writer,
    ):
        for batch in data.to_batches(columns=list(RAW_COLUMNS), batch_size=BATCH_ROWS):
            writer.write_batch(transform(batch, tries_max))
            rows += len(batch)
    return rows


def _letter_files(store: FileTree) -> list[str]:
    return [path for path in store.list_directory(LETTERS) if path.endswith(".parquet")]
