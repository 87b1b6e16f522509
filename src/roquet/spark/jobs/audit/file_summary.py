"""Footprint: what files of a table hold, in a few numbers: offsets as runs, rows by hour.

A task reads the columns that say which message a row is, and no body. What it answers is small
however large the files are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roquet.model.errors import ConfigError
from roquet.model.properties import SINK_ROW
from roquet.spark.jobs.offset_counts import Ints, OffsetCounts, count_offsets, sum_counts
from roquet.spark.jobs.task_set import TaskResult
from roquet.spark.tables.table import TableDamaged

REQUIRED_COLUMNS: Final = ("broker", "queue_id", "queue_offset")
STORED: Final = "stored_at"
BORN: Final = "born_at"
PROPERTIES: Final = "properties"
TOPIC: Final = "topic"

HOUR_US: Final = 3_600_000_000

ROW_KEY_PATTERN: Final = r"^(?P<writer>.*)/(?P<row>[0-9]{1,18})$"
"""`<query>/<batch>/<partition>/<row>`: rows are numbered within all that stands before."""


class SequenceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is in some rows of one queue, or of one writer of rows."""

    name: str
    """A broker, or a writer."""
    queue_id: int = 0
    runs: OffsetCounts = OffsetCounts()
    hours: Mapping[int, int] = {}
    """Rows by hour since 1970 in which they were stored."""
    born: Mapping[int, int] = {}
    """Likewise, in which their producer made them."""


class FileSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is in some files."""

    queues: tuple[SequenceSummary, ...] = ()
    writers: tuple[SequenceSummary, ...] = ()
    rows: int = 0


class SummaryTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of files to be looked at; for Spark's workers."""

    groups: Sequence[Sequence[str]]
    topic: str
    keys: bool = False
    """Whether to look at the keys of the sink's rows (ROQUET_ROW), too."""

    def __len__(self) -> int:
        return len(self.groups)

    def do(self, number: int) -> TaskResult:
        """One group of files."""
        parts = [_summarize_file(path, self.topic, keys=self.keys) for path in self.groups[number]]
        return TaskResult(found=msgspec.json.encode(merge_summaries(parts)).decode())


def transform(rows: pa.Table, *, keys: bool = False) -> FileSummary:
    """What is in rows of one topic."""
    writers = tuple(_writer_summaries(rows)) if keys else ()
    return FileSummary(queues=tuple(_queue_summaries(rows)), writers=writers, rows=rows.num_rows)


def merge_summaries(parts: Sequence[FileSummary]) -> FileSummary:
    """What is in several places, as if it were one."""
    return FileSummary(
        queues=_merge_by_name([one for part in parts for one in part.queues]),
        writers=_merge_by_name([one for part in parts for one in part.writers]),
        rows=sum(part.rows for part in parts),
    )


def _summarize_file(path: str, topic: str, *, keys: bool) -> FileSummary:
    try:
        rows = read_audit_columns(path, topic, keys=keys)
    except FileNotFoundError:
        raise TableDamaged(f"{path} is gone: if files were merged just now, start again") from None
    except pa.ArrowException as error:
        raise TableDamaged(f"{path} cannot be read: {error}") from error
    for name in REQUIRED_COLUMNS:
        if rows[name].null_count:
            count = rows[name].null_count
            raise TableDamaged(f"{path} has {count} rows without {name}: no messages of a topic")
    return transform(rows, keys=keys)


def read_audit_columns(path: str, topic: str, *, keys: bool) -> pa.Table:
    """The columns that are looked at; ConfigError when some of them are not there."""
    schema = pq.read_schema(path)
    missing = [name for name in REQUIRED_COLUMNS if name not in schema.names]
    if missing:
        raise ConfigError(
            f"{path} has no column {missing[0]!r}: an audit needs "
            f"{', '.join(REQUIRED_COLUMNS)} and {STORED}"
        )
    if keys and PROPERTIES not in schema.names:
        raise ConfigError(f"{path} has no column {PROPERTIES!r}: the rows' keys are in it")
    wanted = [*REQUIRED_COLUMNS, STORED, BORN, TOPIC, *([PROPERTIES] if keys else [])]
    columns = [name for name in wanted if name in schema.names]
    # As one file: a directory called day=… would be one more column.
    rows = pq.ParquetFile(Path(path)).read(columns)
    return rows.filter(pc.equal(rows[TOPIC], topic)) if TOPIC in columns else rows


def _queue_summaries(rows: pa.Table) -> Iterator[SequenceSummary]:
    broker = _dictionary(rows["broker"])
    names = broker.dictionary.to_pylist()
    ids = _ints(rows["queue_id"])
    width = int(ids.max(initial=0)) + 1
    code = _ints(broker.indices) * width + ids
    stored, born = (_hours(rows, name) for name in (STORED, BORN))
    for one, places in _rows_by_code(code, _ints(rows["queue_offset"])):
        yield SequenceSummary(
            name=names[one // width],
            queue_id=one % width,
            runs=count_offsets(_ints(rows["queue_offset"])[places]),
            hours=_count_hours(stored, places),
            born=_count_hours(born, places),
        )


def _writer_summaries(rows: pa.Table) -> Iterator[SequenceSummary]:
    _, writers, numbers = numbered_rows(rows)
    names = writers.dictionary.to_pylist()
    for one, places in _rows_by_code(_ints(writers.indices), numbers):
        yield SequenceSummary(name=names[one], runs=count_offsets(numbers[places]))


def numbered_rows(rows: pa.Table) -> tuple[pa.Table, pa.DictionaryArray, Ints]:
    """The rows that our sink has numbered, their writers, and their numbers."""
    column = rows[PROPERTIES].combine_chunks()
    parts = pc.extract_regex(pc.map_lookup(column, pa.scalar(SINK_ROW), "first"), ROW_KEY_PATTERN)
    is_numbered = parts.is_valid()
    parts = parts.filter(is_numbered)
    numbers = _ints(pc.struct_field(parts, "row").cast(pa.int64()))
    return rows.filter(is_numbered), _dictionary(pc.struct_field(parts, "writer")), numbers


def _merge_by_name(parts: Sequence[SequenceSummary]) -> tuple[SequenceSummary, ...]:
    by_place: dict[tuple[str, int], list[SequenceSummary]] = {}
    for part in parts:
        by_place.setdefault((part.name, part.queue_id), []).append(part)
    return tuple(
        SequenceSummary(
            name=name,
            queue_id=queue_id,
            runs=sum_counts([one.runs for one in found]),
            hours=add_hours([one.hours for one in found]),
            born=add_hours([one.born for one in found]),
        )
        for (name, queue_id), found in sorted(by_place.items())
    )


def add_hours(parts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Counts by hour of several places."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def _rows_by_code(code: Ints, within: Ints) -> Iterator[tuple[int, Ints]]:
    """Of each code the places of its rows."""
    order = np.lexsort((within, code))
    there = code[order]
    cuts = np.flatnonzero(np.diff(there)) + 1
    for places in np.split(order, cuts) if len(order) else ():
        yield int(code[places[0]]), places


def _hours(rows: pa.Table, name: str) -> Ints | None:
    """The hour of each row; -1 where there is none."""
    if name not in rows.column_names:
        return None
    times = rows[name].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    known = _ints(times.fill_null(-HOUR_US))
    return np.floor_divide(known, HOUR_US)


def _count_hours(hours: Ints | None, places: Ints) -> dict[int, int]:
    if hours is None:
        return {}
    found, counts = np.unique(hours[places], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _dictionary(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):  # an empty one stays in chunks
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    whole = whole if not pa.types.is_dictionary(whole.type) else whole.cast(whole.type.value_type)
    return whole.dictionary_encode()


def _ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    found: Ints = (
        column.to_numpy(zero_copy_only=False)
        if isinstance(column, pa.Array)
        else (column.to_numpy())
    )
    return found.astype(np.int64)
