"""Parquet writer: a task's batches become Parquet files, one or more for each day.

File names are random, so tasks that are retried or run twice do not collide.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from roquet.spark.tables.object_location import StagingDirectory
from roquet.spark.tables.object_store import open_source
from roquet.spark.tables.output_files import OutputFile, make_durable, new_file, remove_file
from roquet.spark.tables.partitioning import DICTIONARY_COLUMNS, split_by_day
from roquet.spark.tables.table import DataFile

GROUP_BYTES: Final = 32 * 1024 * 1024
"""Arrow bytes of one row group: large ones are read faster, but a worker holds one in memory."""

FILE_BYTES: Final = 256 * 1024 * 1024
"""Size at which a file is closed and another one begun."""

OPEN_MAX: Final = 4
"""Most open files, one a day: each holds a row group in memory."""

COMPRESSION: Final = "zstd"
LEVELS: Final[Mapping[str, int]] = {"zstd": 1}
"""Level 1 of zstd costs as much time as snappy, and its files are much smaller."""

BOUNDS_COLUMNS: Final = ("queue_id", "queue_offset", "stored_at")
"""Columns whose smallest and largest values are recorded in the table."""

Split = Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]
"""Splits rows by partition: pairs of the partition's value and its rows."""


class PartitionedWriter:
    """Writes the rows of one task to files in `directory`, by day unless `split` says otherwise.

    `split` gives pairs of a partition's value and its rows; `partition` is that column's name.
    """

    def __init__(
        self,
        directory: StagingDirectory,
        schema: pa.Schema,
        compression: str = COMPRESSION,
        *,
        split: Split = split_by_day,
        partition: str = "day",
    ) -> None:
        self._directory, self._schema, self._compression = directory, schema, compression
        self._split, self._partition = split, partition
        self._open: dict[str, _OpenFile] = {}
        self._written: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows of any days."""
        for day, rows in self._split(batch):
            file = self._open.pop(day, None)
            if file is None:
                if len(self._open) >= OPEN_MAX:
                    self._end(next(iter(self._open)))
                file = self._new_file(day)
            self._open[day] = file  # most recently used last
            file.write(rows)
            if file.size >= FILE_BYTES:
                self._end(day)

    def close(self) -> list[DataFile]:
        """Complete all files durably, and return them."""
        for day in list(self._open):
            self._end(day)
        make_durable(self._directory)
        return self._written

    def abort(self) -> None:
        """Give up all files; in a directory its owner removes them."""
        for open_file in self._open.values():
            open_file.abort()
        for file in self._written:
            remove_file(self._directory, file.day, file.name, file.partition)
        self._open.clear()
        self._written.clear()

    def _new_file(self, day: str) -> "_OpenFile":
        file = new_file(self._directory, day, self._partition)
        return _OpenFile(file, (self._partition, day), self._schema, self._compression)

    def _end(self, day: str) -> None:
        self._written.append(self._open[day].close())
        del self._open[day]  # after it: a file whose upload failed is given up with the others


class _OpenFile:
    """An open file; rows are gathered into row groups."""

    def __init__(
        self, file: OutputFile, place: tuple[str, str], schema: pa.Schema, compression: str
    ) -> None:
        self._file = file
        self._partition, self._day = place
        self._schema = schema
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._file.stream,
            schema,
            compression=compression,
            compression_level=LEVELS.get(compression),
            use_dictionary=list(DICTIONARY_COLUMNS),
            write_statistics=True,  # of all: Iceberg misses none
            metadata_collector=self._footers,
        )

    @property
    def size(self) -> int:
        """Bytes written so far, without gathered rows."""
        return int(self._file.stream.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> DataFile:
        """Complete the file durably."""
        self._flush()
        self._writer.close()
        size = self.size
        self._file.complete()
        least, most = column_bounds(self._footers[0])
        return DataFile(
            name=self._file.name,
            day=self._day,
            rows=self._rows,
            size=size,
            least=least,
            most=most,
            partition=self._partition,
        )

    def abort(self) -> None:
        with suppress(OSError, pa.ArrowException):  # the disk may be full
            self._writer.close()
        self._file.discard()

    def _flush(self) -> None:
        if self._gathered:
            rows = pa.Table.from_batches(self._gathered, self._schema)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._gathered, self._bytes = [], 0


def column_bounds(footer: pq.FileMetaData) -> tuple[dict[str, Any], dict[str, Any]]:
    """Smallest and largest values of `BOUNDS_COLUMNS`, from a file's footer."""
    least, most = dict[str, Any](), dict[str, Any]()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            name, statistics = column.path_in_schema, column.statistics
            if name in BOUNDS_COLUMNS and statistics is not None and statistics.has_min_max:
                low, high = _plain(statistics.min), _plain(statistics.max)
                least[name] = min(low, least.get(name, low))
                most[name] = max(high, most.get(name, high))
    return least, most


def read_sorted(
    paths: Sequence[str | Path], schema: pa.Schema, storage: Mapping[str, str] = {}
) -> pa.Table:
    """The rows of several files, sorted by queue and offset."""
    rows = pa.concat_tables(
        pq.read_table(open_source(path, storage), schema=schema, partitioning=None)
        for path in paths
    )
    return rows.sort_by([(name, "ascending") for name in ("broker", "queue_id", "queue_offset")])


def _plain(value: Any) -> Any:
    """A value for JSON; times in one format, so that they compare as text."""
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value
