"""Stretches: the rows of an archive's files by queue and in order, a part at a time.

Files are looked through once, at their narrow columns alone: which queues are in them, from which
offset to which. Files of a queue whose ranges do not meet follow one another, and are read batch by
batch. Those whose ranges meet, as days do when a clock was set back, are read together and sorted.
What is there twice, as for a moment when files are merged, is given once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from roquet.arrow.records import SCHEMA
from roquet.model import properties as names
from roquet.model.errors import ConfigError
from roquet.spark.jobs.intervals import OffsetArray, OffsetSet
from roquet.spark.jobs.resend_rows import REQUIRED_COLUMNS, USED_COLUMNS
from roquet.spark.queue_offsets import QueueKey

BATCH_ROWS: Final = 4_096
"""Rows that are held of each queue: a worker reads many queues at a time."""


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages are meant; those that fit all that is said."""

    topic: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    """Stored from a time on, and before another one."""
    keys: tuple[str, ...] = ()
    """With one of these keys."""

    def takes(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Which of the rows they are; None for all."""
        found: list[pa.Array] = []
        if self.topic is not None and "topic" in rows.schema.names:
            found.append(pc.equal(rows.column("topic"), self.topic))
        for ms, holds in ((self.from_ms, pc.greater_equal), (self.until_ms, pc.less)):
            if ms is not None:
                stored = rows.column("stored_at")
                found.append(holds(stored, pa.scalar(ms * 1000, pa.int64()).cast(stored.type)))
        if self.keys:
            found.append(_has_key(rows, self.keys))
        if not found:
            return None
        taken = found[0]
        for one in found[1:]:
            taken = pc.and_(taken, one)
        return pc.fill_null(taken, False)

    @property
    def columns(self) -> tuple[str, ...]:
        """What has to be looked at."""
        times = ("stored_at",) if (self.from_ms, self.until_ms) != (None, None) else ()
        return (*times, *(("keys", "properties", "key") if self.keys else ()))


class FileGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Files that hold one range of a queue's offsets, and no other part holds any of it."""

    files: tuple[str, ...]
    is_sorted: bool
    """Whether they can be read batch by batch."""


class QueueRows(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen rows of one queue."""

    source: QueueKey
    rows: int
    there: int = 0
    """Chosen ones that are there already."""
    parts: tuple[FileGroup, ...]


class _FileRange(msgspec.Struct):
    """What one file has of one queue."""

    file: str
    first: int
    last: int
    rows: OffsetSet
    is_sorted: bool


def filter_rows(rows: pa.RecordBatch, choice: RowFilter) -> pa.RecordBatch:
    """The chosen rows."""
    taken = choice.takes(rows)
    return rows if taken is None else rows.filter(taken)


def scan_files(
    files: Sequence[str], topic: str, choice: RowFilter, there: Mapping[QueueKey, OffsetSet]
) -> list[QueueRows]:
    """The chosen rows of all queues; `there` says which are there already."""
    spans: dict[QueueKey, list[_FileRange]] = {}
    for file in files:
        for queue, span in _scan_file(file, topic, choice).items():
            spans.setdefault(queue, []).append(span)
    return [
        _queue_rows(queue, found, there.get(queue, OffsetSet()))
        for queue, found in sorted(spans.items())
    ]


def read_rows(stretch: QueueRows, choice: RowFilter, there: OffsetSet) -> Iterator[pa.RecordBatch]:
    """The rows of a stretch in the order of their offsets, each once."""
    last = -1
    for part in stretch.parts:
        for batch in _batches(part, stretch.source):
            taken = filter_rows(batch, choice)
            offsets = taken.column("queue_offset").to_numpy()
            kept = (offsets > last) & ~there.holds(offsets)
            kept[1:] &= offsets[1:] > offsets[:-1]
            if kept.any():
                last = int(offsets[kept][-1])
                yield taken if kept.all() else taken.filter(pa.array(kept))


def _queue_rows(queue: QueueKey, spans: list[_FileRange], there: OffsetSet) -> QueueRows:
    whole = OffsetSet()
    for span in spans:
        whole |= span.rows
    rows = len(whole | there) - len(there)
    parts = tuple(_file_groups(spans))
    return QueueRows(source=queue, rows=rows, there=len(whole) - rows, parts=parts)


def _file_groups(spans: Iterable[_FileRange]) -> Iterator[FileGroup]:
    """Spans in the order of their offsets; those that meet are one part."""
    together: list[_FileRange] = []
    for span in sorted(spans, key=lambda span: (span.first, span.last)):
        if together and span.first > max(one.last for one in together):
            yield _file_group(together)
            together = []
        together.append(span)
    if together:
        yield _file_group(together)


def _file_group(spans: Sequence[_FileRange]) -> FileGroup:
    is_sorted = len(spans) == 1 and spans[0].is_sorted
    return FileGroup(files=tuple(span.file for span in spans), is_sorted=is_sorted)


def _scan_file(file: str, topic: str, choice: RowFilter) -> dict[QueueKey, _FileRange]:
    found: dict[QueueKey, list[OffsetArray]] = {}
    columns = ("topic", *REQUIRED_COLUMNS[:-1], *choice.columns)
    for batch in _dataset([file], columns):
        _check_columns(batch, file, choice)
        rows = filter_rows(batch, choice)
        for queue, at in _rows_by_queue(rows, topic):
            found.setdefault(queue, []).append(rows.column("queue_offset").to_numpy()[at])
    return {queue: _file_range(file, np.concatenate(offsets)) for queue, offsets in found.items()}


def _check_columns(rows: pa.RecordBatch, file: str, choice: RowFilter) -> None:
    """ConfigError for a table in which rows cannot be told apart, or chosen as it was said."""
    for name in REQUIRED_COLUMNS[:-1]:
        if rows.column(name).null_count:
            raise ConfigError(f"{file} has rows without a value for {name!r}: leave them out")
    if "stored_at" in choice.columns and "stored_at" not in rows.schema.names:
        raise ConfigError(f"{file} has no column 'stored_at', by which a time chooses")


def _file_range(file: str, offsets: OffsetArray) -> _FileRange:
    is_sorted = bool((np.diff(offsets) > 0).all())
    return _FileRange(
        file, int(offsets.min()), int(offsets.max()), OffsetSet.of(offsets), is_sorted
    )


def _rows_by_queue(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[QueueKey, OffsetArray]]:
    """Which rows are of which queue."""
    if not len(rows):
        return
    whose = rows.column("topic") if "topic" in rows.schema.names else pa.array([topic] * len(rows))
    ids = rows.column("queue_id").cast(pa.string())
    coded = pc.binary_join_element_wise(whose, rows.column("broker"), ids, "/").dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    for code, head in enumerate(coded.dictionary.to_pylist()):
        name, broker, queue_id = head.split("/")
        yield (name, broker, int(queue_id)), np.flatnonzero(codes == code)


def _batches(part: FileGroup, source: QueueKey) -> Iterator[pa.RecordBatch]:
    _, broker, queue_id = source
    condition = (ds.field("broker") == broker) & (ds.field("queue_id") == queue_id)
    batches = (
        _rows_of_topic(batch, source[0]) for batch in _dataset(part.files, USED_COLUMNS, condition)
    )
    if part.is_sorted:
        yield from batches
        return
    found = [batch for batch in batches if len(batch)]
    if found:
        rows = pa.Table.from_batches(found).sort_by("queue_offset").combine_chunks()
        yield from rows.to_batches(BATCH_ROWS)


def _rows_of_topic(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    if "topic" not in rows.schema.names:
        return rows
    return rows.filter(pc.equal(rows.column("topic"), topic))


def _dataset(
    files: Sequence[str], columns: Iterable[str], condition: ds.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of files, in the order of the rows, a little at a time."""
    for file in files:
        data = ds.dataset(file, format="parquet")
        missing = [name for name in REQUIRED_COLUMNS if name not in data.schema.names]
        if missing:
            raise ConfigError(f"{file} has no column {missing[0]!r}: its rows cannot be sent again")
        wanted = [name for name in dict.fromkeys(columns) if name in data.schema.names]
        batches = data.to_batches(
            columns=wanted,
            filter=condition,
            batch_size=BATCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
        )
        yield from (_cast_columns(batch, file) for batch in batches)


def _cast_columns(rows: pa.RecordBatch, file: str) -> pa.RecordBatch:
    """The columns as a message's are typed: others write long strings, or long numbers."""
    wanted = pa.schema([SCHEMA.field(name) for name in rows.schema.names])
    if rows.schema.equals(wanted):
        return rows
    try:
        columns = [rows.column(field.name).cast(field.type) for field in wanted]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"{file} has columns of other types: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _has_key(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    """Which rows have one of the keys: blanks part the keys of a message."""
    present = rows.schema.names
    if "keys" in present:
        column = rows.column("keys")
    elif "properties" in present:
        column = pc.map_lookup(rows.column("properties"), names.KEYS, "first")
    elif "key" in present:
        column = rows.column("key")
    else:
        raise ConfigError("no column tells of keys: 'keys', 'properties' or 'key' is needed")
    lists = pc.utf8_split_whitespace(pc.fill_null(column.cast(pa.string()), ""))
    parents = pc.list_parent_indices(lists).to_numpy()
    hits = pc.is_in(lists.flatten(), pa.array(list(keys))).to_numpy(zero_copy_only=False)
    found = np.zeros(len(rows), np.bool_)
    found[parents[hits]] = True
    return pa.array(found)
