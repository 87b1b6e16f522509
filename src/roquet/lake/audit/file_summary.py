"""File summary: the offsets and hours in files of a table, as a few ranges and counts.

A task reads the columns that identify a row, and no bodies. Its result is small however large the
files are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roquet.lake.intervals import OffsetArray, OffsetCounts, count_offsets, sum_counts
from roquet.lake.objects.object_store import explained_read, open_source
from roquet.lake.table import TableDamaged
from roquet.lake.task_set import TaskResult
from roquet.model.errors import ConfigError
from roquet.model.properties import SINK_ROW

REQUIRED_COLUMNS: Final = ("broker", "queue_id", "queue_offset")
STORED: Final = "stored_at"
BORN: Final = "born_at"
PROPERTIES: Final = "properties"
TOPIC: Final = "topic"

HOUR_US: Final = 3_600_000_000

BATCH_ROWS: Final = 256 * 1024
"""Rows of a file that are in memory at once: about 10 MiB of the columns of an audit."""

ROW_KEY_PATTERN: Final = r"^(?P<writer>.*)/(?P<row>[0-9]{1,18})$"
"""`<query>/<batch>/<partition>/<row>`: rows are numbered within query, batch and partition."""


class SequenceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with consecutive numbers: those of a queue, or those of one writer of the sink."""

    name: str
    """A broker, or a writer as `<query>/<batch>/<partition>`."""
    queue_id: int = 0
    counts: OffsetCounts = OffsetCounts()
    """How often each offset, or row number, occurs."""
    hours: Mapping[int, int] = {}
    """Rows by the hour in which they were stored, in hours since 1970."""
    born: Mapping[int, int] = {}
    """Rows by the hour in which their producer made them."""


class FileSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one or more files."""

    queues: tuple[SequenceSummary, ...] = ()
    writers: tuple[SequenceSummary, ...] = ()
    rows: int = 0


class SummaryTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that summarize a group of files each."""

    groups: Sequence[Sequence[str]]
    topic: str
    keys: bool = False
    """Whether to summarize the keys of the sink's rows (ROQUET_ROW), too."""
    storage: Mapping[str, str] = {}
    """The options of the object store that the files lie in."""

    def __len__(self) -> int:
        return len(self.groups)

    def run(self, number: int) -> TaskResult:
        """Summarize the files of one group."""
        parts = [
            _summarize_file(path, self.topic, self.storage, keys=self.keys)
            for path in self.groups[number]
        ]
        return TaskResult(payload=msgspec.json.encode(merge_summaries(parts)).decode())


def transform(rows: pa.RecordBatch, *, keys: bool = False) -> FileSummary:
    """Summarize rows of one topic."""
    writers = tuple(_writer_summaries(rows)) if keys else ()
    return FileSummary(queues=tuple(_queue_summaries(rows)), writers=writers, rows=rows.num_rows)


def merge_summaries(parts: Sequence[FileSummary]) -> FileSummary:
    """Merge summaries of several files, as if they were one file."""
    return FileSummary(
        queues=_merge_by_name([queue for part in parts for queue in part.queues]),
        writers=_merge_by_name([writer for part in parts for writer in part.writers]),
        rows=sum(part.rows for part in parts),
    )


def _summarize_file(
    path: str, topic: str, storage: Mapping[str, str], *, keys: bool
) -> FileSummary:
    try:
        return merge_summaries(
            [
                transform(_checked(rows, path), keys=keys)
                for rows in read_audit_columns(path, topic, storage, keys=keys)
            ]
        )
    except FileNotFoundError:
        raise TableDamaged(f"{path} is gone: if files were merged just now, start again") from None
    except pa.ArrowException as error:
        raise TableDamaged(f"{path} cannot be read: {error}") from error


def _checked(rows: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """The rows; TableDamaged when some of them do not name a message."""
    for name in REQUIRED_COLUMNS:
        if count := rows.column(name).null_count:
            raise TableDamaged(f"{path} has {count} rows without {name}: no messages of a topic")
    return rows


def read_audit_columns(
    path: str, topic: str, storage: Mapping[str, str] = {}, *, keys: bool
) -> Iterator[pa.RecordBatch]:
    """The columns of an audit, `BATCH_ROWS` rows at a time; other topics' rows are left out.

    Raises ConfigError when a required column is missing.
    """
    with explained_read(path, storage):
        yield from _read_columns(path, topic, storage, keys=keys)


def _read_columns(
    path: str, topic: str, storage: Mapping[str, str], *, keys: bool
) -> Iterator[pa.RecordBatch]:
    source = open_source(path, storage)
    metadata = pq.read_metadata(source)
    names = metadata.schema.to_arrow_schema().names
    missing = [name for name in REQUIRED_COLUMNS if name not in names]
    if missing:
        raise ConfigError(
            f"{path} has no column {missing[0]!r}: an audit needs "
            f"{', '.join(REQUIRED_COLUMNS)} and {STORED}"
        )
    if keys and PROPERTIES not in names:
        raise ConfigError(f"{path} has no column {PROPERTIES!r}, which holds the keys of rows")
    wanted = [*REQUIRED_COLUMNS, STORED, BORN, TOPIC, *([PROPERTIES] if keys else [])]
    columns = [name for name in wanted if name in names]
    # Read as a single file: from a data set, a directory named day=… would become a column.
    # All ranges of the small columns are fetched together; properties are too large for that.
    with pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=[name for name in ("broker", TOPIC) if name in columns],
        pre_buffer=not keys,
    ) as file:
        for rows in file.iter_batches(BATCH_ROWS, columns=columns):
            yield _of_topic(rows, topic) if TOPIC in columns else rows


def _of_topic(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """The rows of one topic; in an archive these are all."""
    topics = _dictionary(rows.column(TOPIC))
    if topics.null_count == 0 and topics.dictionary.to_pylist() == [topic]:
        return rows
    codes = pc.index_in(pa.array([topic], topics.dictionary.type), topics.dictionary)
    return rows.filter(pc.equal(topics.indices, codes[0]))


def _queue_summaries(rows: pa.RecordBatch) -> Iterator[SequenceSummary]:
    broker = _dictionary(rows["broker"])
    names = broker.dictionary.to_pylist()
    ids = _ints(rows["queue_id"])
    width = int(ids.max(initial=0)) + 1
    codes = _ints(broker.indices) * width + ids
    offsets = _ints(rows["queue_offset"])
    stored, born = (_hours(rows, name) for name in (STORED, BORN))
    for code, places in _rows_by_code(codes, offsets):
        yield SequenceSummary(
            name=names[code // width],
            queue_id=code % width,
            counts=count_offsets(offsets[places]),
            hours=_count_hours(stored, places),
            born=_count_hours(born, places),
        )


def _writer_summaries(rows: pa.RecordBatch) -> Iterator[SequenceSummary]:
    numbered = numbered_rows(rows)
    names = numbered.writers.dictionary.to_pylist()
    codes = _ints(numbered.writers.indices)
    for code, places in _rows_by_code(codes, numbered.numbers):
        yield SequenceSummary(name=names[code], counts=count_offsets(numbered.numbers[places]))


class NumberedRows(NamedTuple):
    """Rows that our sink has numbered, with the writer and the number of each."""

    rows: pa.RecordBatch
    writers: pa.DictionaryArray
    numbers: OffsetArray


def numbered_rows(rows: pa.RecordBatch) -> NumberedRows:
    """The rows with a key of our sink in the property ROQUET_ROW."""
    keys = pc.map_lookup(rows[PROPERTIES], pa.scalar(SINK_ROW), "first")
    parts = pc.extract_regex(keys, ROW_KEY_PATTERN)
    is_numbered = parts.is_valid()
    parts = parts.filter(is_numbered)
    numbers = _ints(pc.struct_field(parts, "row").cast(pa.int64()))
    writers = _dictionary(pc.struct_field(parts, "writer"))
    return NumberedRows(rows.filter(is_numbered), writers, numbers)


def _merge_by_name(parts: Sequence[SequenceSummary]) -> tuple[SequenceSummary, ...]:
    by_name: dict[tuple[str, int], list[SequenceSummary]] = {}
    for part in parts:
        by_name.setdefault((part.name, part.queue_id), []).append(part)
    return tuple(
        SequenceSummary(
            name=name,
            queue_id=queue_id,
            counts=sum_counts([each.counts for each in own]),
            hours=add_hours([each.hours for each in own]),
            born=add_hours([each.born for each in own]),
        )
        for (name, queue_id), own in sorted(by_name.items())
    )


def add_hours(parts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Add counts by hour."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def _rows_by_code(codes: OffsetArray, order_by: OffsetArray) -> Iterator[tuple[int, OffsetArray]]:
    """Each code with the indexes of its rows, sorted by `order_by`."""
    order = np.lexsort((order_by, codes))
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    for places in np.split(order, cuts) if len(order) else ():
        yield int(codes[places[0]]), places


def _hours(rows: pa.RecordBatch, name: str) -> OffsetArray | None:
    """The hour of each row, -1 for null; None when there is no such column."""
    if name not in rows.schema.names:
        return None
    times = rows[name].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    return np.floor_divide(_ints(times.fill_null(-HOUR_US)), HOUR_US)


def _count_hours(hours: OffsetArray | None, places: OffsetArray) -> dict[int, int]:
    if hours is None:
        return {}
    values, counts = np.unique(hours[places], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _ints(column: pa.Array) -> OffsetArray:
    values: OffsetArray = column.to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)
