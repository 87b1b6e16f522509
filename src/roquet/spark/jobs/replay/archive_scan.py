"""Archive scan: finds the chosen rows of each queue in Parquet files, and reads them in order.

A first pass reads only the narrow columns of each file: which queues it holds, and which offsets
of each. Files of a queue whose offset ranges do not overlap are then read one after the other,
batch by batch. Files whose ranges overlap, as those of different days do after a clock was set
back, are read together and sorted. A row that is there twice, as while files are being merged, is
returned once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from roquet.arrow.records import SCHEMA
from roquet.lake.intervals import OffsetArray, OffsetSet
from roquet.lake.objects.object_store import dataset_source, explained_read
from roquet.lake.queue_offsets import QueueKey
from roquet.model import properties as names
from roquet.model.errors import ConfigError
from roquet.spark.jobs.resend_rows import REQUIRED_COLUMNS, USED_COLUMNS

BATCH_ROWS: Final = 4_096
"""Rows that are held in memory of each queue; a task reads many queues at the same time."""


_TimedRows = NDArray[np.int64]
"""Rows as columns: when each was stored, and its offset."""


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on rows; a row has to meet all of them."""

    topic: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    """Stored within [from_ms, until_ms), in ms since 1970; None for no bound."""
    keys: tuple[str, ...] = ()
    """Has at least one of these keys; empty for any row."""

    def mask(self, rows: pa.RecordBatch) -> pa.Array | None:
        """For each row whether it meets the conditions; None when there are no conditions."""
        masks: list[pa.Array] = []
        if self.topic is not None and "topic" in rows.schema.names:
            masks.append(pc.equal(rows.column("topic"), self.topic))
        for ms, compare in ((self.from_ms, pc.greater_equal), (self.until_ms, pc.less)):
            if ms is not None:
                stored = rows.column("stored_at")
                masks.append(compare(stored, pa.scalar(ms * 1000, pa.int64()).cast(stored.type)))
        if self.keys:
            masks.append(_has_key(rows, self.keys))
        if not masks:
            return None
        whole = masks[0]
        for mask in masks[1:]:
            whole = pc.and_(whole, mask)
        return pc.fill_null(whole, False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the conditions need."""
        times = ("stored_at",) if (self.from_ms, self.until_ms) != (None, None) else ()
        return (*times, *(("keys", "properties", "key") if self.keys else ()))


class FileGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Files with one range of a queue's offsets, which overlaps the range of no other group."""

    files: tuple[str, ...]
    is_sorted: bool
    """Whether they can be read batch by batch, without sorting."""


class QueueRows(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen rows of one source queue."""

    source: QueueKey
    rows: int
    """Rows that are still to be sent."""
    already_sent: int = 0
    """Chosen rows of which the destination has copies."""
    groups: tuple[FileGroup, ...]
    beyond: OffsetSet | None = None
    """Rows that a limit leaves out."""
    storage: Mapping[str, str] = {}
    """The options of the object store that the files lie in."""


class _FileRange(msgspec.Struct):
    """The rows of one queue in one file: their first and last offset, and all of them."""

    file: str
    first: int
    last: int
    rows: OffsetSet
    is_sorted: bool

    @classmethod
    def of(cls, file: str, offsets: OffsetArray) -> "_FileRange":
        is_sorted = bool((np.diff(offsets) > 0).all())
        return cls(file, int(offsets.min()), int(offsets.max()), OffsetSet.of(offsets), is_sorted)


def filter_rows(rows: pa.RecordBatch, row_filter: RowFilter) -> pa.RecordBatch:
    """The rows that meet the conditions."""
    mask = row_filter.mask(rows)
    return rows if mask is None else rows.filter(mask)


def scan_files(
    files: Sequence[str],
    topic: str,
    row_filter: RowFilter,
    already_sent: Mapping[QueueKey, OffsetSet],
    storage: Mapping[str, str] = {},
    limit: int | None = None,
) -> list[QueueRows]:
    """Find the chosen rows of all queues.

    `topic` applies to files without such a column; `already_sent` are rows to leave out; `storage`
    are options of the object store that the files lie in; `limit` chooses so many rows, those
    that were stored first, whether they were sent or not.
    """
    first = None if limit is None else first_rows(files, topic, row_filter, limit, storage)
    by_queue: dict[QueueKey, list[_FileRange]] = {}
    for file in files:
        for queue, file_range in _scan_file(file, topic, row_filter, storage).items():
            by_queue.setdefault(queue, []).append(file_range)
    return [
        _queue_rows(
            queue,
            file_ranges,
            already_sent.get(queue, OffsetSet()),
            storage,
            None if first is None else first.get(queue, OffsetSet()),
        )
        for queue, file_ranges in sorted(by_queue.items())
    ]


def first_rows(
    files: Sequence[str],
    topic: str,
    row_filter: RowFilter,
    limit: int,
    storage: Mapping[str, str] = {},
) -> dict[QueueKey, OffsetSet]:
    """Of all chosen rows those that were stored first, by queue; files of any division agree.

    Rows of one millisecond are taken in the order of their queues and offsets. Files without
    `stored_at` have the order of offsets.
    """
    rows: dict[QueueKey, list[_TimedRows]] = {}
    count = 0
    for queue, batch in _timed_rows(files, topic, row_filter, storage):
        rows.setdefault(queue, []).append(batch)
        count += batch.shape[1]
        if count > 2 * limit + BATCH_ROWS:
            rows = _first_rows(rows, limit)
            count = sum(batches[0].shape[1] for batches in rows.values())
    first = _first_rows(rows, limit)
    return {queue: OffsetSet.of(batches[0][1]) for queue, batches in first.items()}


def _timed_rows(
    files: Sequence[str], topic: str, row_filter: RowFilter, storage: Mapping[str, str]
) -> "Iterator[tuple[QueueKey, _TimedRows]]":
    columns = ("topic", "stored_at", *REQUIRED_COLUMNS[:-1], *row_filter.columns)
    for file in files:
        for batch in _read_batches([file], columns, storage):
            _check_columns(batch, file, row_filter)
            chosen = filter_rows(batch, row_filter)
            both = np.stack([row_times(chosen), chosen.column("queue_offset").to_numpy()])
            for queue, places in _rows_by_queue(chosen, topic):
                yield queue, both[:, places]


def _first_rows(
    rows: "Mapping[QueueKey, list[_TimedRows]]", limit: int
) -> "dict[QueueKey, list[_TimedRows]]":
    queues = sorted(rows)
    if not queues:
        return {}
    by_queue = [np.unique(np.concatenate(rows[queue], axis=1), axis=1) for queue in queues]
    times, offsets = np.concatenate(by_queue, axis=1)
    numbers = np.repeat(np.arange(len(queues)), [each.shape[1] for each in by_queue])
    first = np.lexsort((offsets, numbers, times))[:limit]
    kept = ((queue, first[numbers[first] == number]) for number, queue in enumerate(queues))
    return {queue: [np.stack([times[at], offsets[at]])] for queue, at in kept if len(at)}


def row_times(rows: pa.RecordBatch) -> OffsetArray:
    """When rows were stored, in ms since 1970; their offsets where they have no such column."""
    times = rows.column("queue_offset")
    if "stored_at" in rows.schema.names:
        stored = rows.column("stored_at").cast(pa.timestamp("ms", "UTC"), safe=False)
        times = stored.cast(pa.int64()).fill_null(0)
    found: OffsetArray = times.to_numpy().astype(np.int64)
    return found


def read_rows(
    queue_rows: QueueRows, row_filter: RowFilter, already_sent: OffsetSet
) -> Iterator[pa.RecordBatch]:
    """Read the chosen rows of a queue in the order of their offsets, each once."""
    last = -1
    for group in queue_rows.groups:
        for batch in _batches(group, queue_rows):
            chosen = filter_rows(batch, row_filter)
            offsets = chosen.column("queue_offset").to_numpy()
            is_new = (offsets > last) & ~already_sent.holds(offsets)
            if queue_rows.beyond is not None:
                is_new &= ~queue_rows.beyond.holds(offsets)
            is_new[1:] &= offsets[1:] > offsets[:-1]
            if is_new.any():
                last = int(offsets[is_new][-1])
                yield chosen if is_new.all() else chosen.filter(pa.array(is_new))


def _queue_rows(
    queue: QueueKey,
    file_ranges: list[_FileRange],
    already_sent: OffsetSet,
    storage: Mapping[str, str],
    first: OffsetSet | None,
) -> QueueRows:
    chosen = OffsetSet() if first is None else first
    for file_range in file_ranges if first is None else ():
        chosen |= file_range.rows
    rows = len(chosen | already_sent) - len(already_sent)
    return QueueRows(
        source=queue, rows=rows, already_sent=len(chosen) - rows, groups=_file_groups(file_ranges),
        beyond=None if first is None else first.complement(), storage=storage,
    )  # fmt: skip


def _file_groups(file_ranges: Iterable[_FileRange]) -> tuple[FileGroup, ...]:
    """Group files whose ranges overlap; groups come in the order of their offsets."""
    groups = list[list[_FileRange]]()
    for file_range in sorted(file_ranges, key=lambda each: (each.first, each.last)):
        if not groups or file_range.first > max(each.last for each in groups[-1]):
            groups.append([])
        groups[-1].append(file_range)
    return tuple(
        FileGroup(
            files=tuple(each.file for each in group),
            is_sorted=len(group) == 1 and group[0].is_sorted,
        )
        for group in groups
    )


def _scan_file(
    file: str, topic: str, row_filter: RowFilter, storage: Mapping[str, str]
) -> dict[QueueKey, _FileRange]:
    by_queue: dict[QueueKey, list[OffsetArray]] = {}
    columns = ("topic", *REQUIRED_COLUMNS[:-1], *row_filter.columns)
    for batch in _read_batches([file], columns, storage):
        _check_columns(batch, file, row_filter)
        rows = filter_rows(batch, row_filter)
        for queue, places in _rows_by_queue(rows, topic):
            offsets = rows.column("queue_offset").to_numpy()[places]
            by_queue.setdefault(queue, []).append(offsets)
    return {queue: _FileRange.of(file, np.concatenate(parts)) for queue, parts in by_queue.items()}


def _check_columns(rows: pa.RecordBatch, file: str, row_filter: RowFilter) -> None:
    """ConfigError for rows that cannot be told apart, or not be filtered as asked."""
    for name in REQUIRED_COLUMNS[:-1]:
        if rows.column(name).null_count:
            raise ConfigError(f"{file} has rows without a value for {name!r}: leave them out")
    if "stored_at" in row_filter.columns and "stored_at" not in rows.schema.names:
        raise ConfigError(f"{file} has no column 'stored_at', so rows cannot be chosen by time")


def _rows_by_queue(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[QueueKey, OffsetArray]]:
    if not len(rows):
        return
    has_topic = "topic" in rows.schema.names
    topics = rows.column("topic") if has_topic else pa.array([topic] * len(rows))
    ids = rows.column("queue_id").cast(pa.string())
    queues = pc.binary_join_element_wise(topics, rows.column("broker"), ids, "/")
    encoded = queues.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        name, broker, queue_id = text.split("/")
        yield (name, broker, int(queue_id)), np.flatnonzero(codes == code)


def _batches(group: FileGroup, queue_rows: QueueRows) -> Iterator[pa.RecordBatch]:
    """The rows of a queue in a group of files, in the order of their offsets."""
    topic, broker, queue_id = queue_rows.source
    condition = (ds.field("broker") == broker) & (ds.field("queue_id") == queue_id)
    batches = (
        _rows_of_topic(batch, topic)
        for batch in _read_batches(group.files, USED_COLUMNS, queue_rows.storage, condition)
    )
    if group.is_sorted:
        yield from batches
        return
    filled = [batch for batch in batches if len(batch)]
    if filled:
        rows = pa.Table.from_batches(filled).sort_by("queue_offset").combine_chunks()
        yield from rows.to_batches(BATCH_ROWS)


def _rows_of_topic(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    if "topic" not in rows.schema.names:
        return rows
    return rows.filter(pc.equal(rows.column("topic"), topic))


def _read_batches(
    files: Sequence[str],
    columns: Iterable[str],
    storage: Mapping[str, str],
    condition: ds.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read some columns of files in the order of their rows, in small batches."""
    for file in files:
        with explained_read(file, storage):
            yield from _read_file(file, columns, storage, condition)


def _read_file(
    file: str, columns: Iterable[str], storage: Mapping[str, str], condition: ds.Expression | None
) -> Iterator[pa.RecordBatch]:
    source, file_system = dataset_source(file, storage)
    data = ds.dataset(source, format="parquet", filesystem=file_system)
    missing = [name for name in REQUIRED_COLUMNS if name not in data.schema.names]
    if missing:
        raise ConfigError(f"{file} has no column {missing[0]!r}: its rows cannot be sent again")
    present = [name for name in dict.fromkeys(columns) if name in data.schema.names]
    batches = data.to_batches(
        columns=present,
        filter=condition,
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
    )
    yield from (_cast_columns(batch, file) for batch in batches)


def _cast_columns(rows: pa.RecordBatch, file: str) -> pa.RecordBatch:
    """Cast columns to the types of message columns; other writers use larger types."""
    schema = pa.schema([SCHEMA.field(name) for name in rows.schema.names])
    if rows.schema.equals(schema):
        return rows
    try:
        columns = [rows.column(field.name).cast(field.type) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"{file} has columns of other types: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_key(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    """For each row whether it has one of the keys; a message's keys are separated by blanks."""
    present = rows.schema.names
    if "keys" in present:
        column = rows.column("keys")
    elif "properties" in present:
        column = pc.map_lookup(rows.column("properties"), names.KEYS, "first")
    elif "key" in present:
        column = rows.column("key")
    else:
        raise ConfigError("no column has keys: one of 'keys', 'properties' or 'key' is needed")
    lists = pc.split_pattern(pc.fill_null(column.cast(pa.string()), ""), names.KEYS_SEPARATOR)
    parents = pc.list_parent_indices(lists).to_numpy()
    hits = pc.is_in(lists.flatten(), pa.array(list(keys))).to_numpy(zero_copy_only=False)
    mask = np.zeros(len(rows), np.bool_)
    mask[parents[hits]] = True
    return pa.array(mask)
