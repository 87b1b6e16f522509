"""Writing: a task's batches become Parquet files, one or more for each day.

Files have names that nobody else takes, so tasks that are tried again or run twice do not meet.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from roquet.spark.tables.disk import sync
from roquet.spark.tables.partitioning import DICTIONARY_COLUMNS, split_by_day
from roquet.spark.tables.table import DataFile

PREFIX: Final = "roquet-"
"""What the files of archives begin with."""

GROUP_BYTES: Final = 32 * 1024 * 1024
"""Of Arrow columns in one row group: large ones are read faster, and a worker holds it whole."""

FILE_BYTES: Final = 256 * 1024 * 1024
"""After which a file ends and another one begins."""

OPEN_MAX: Final = 4
"""Days that are written to at once: each holds a row group."""

COMPRESSION: Final = "zstd"
LEVELS: Final[Mapping[str, int]] = {"zstd": 1}
"""The first level of zstd costs what snappy costs, and its files are smaller by far."""

BOUNDS_COLUMNS: Final = ("queue_id", "queue_offset", "stored_at")
"""Columns whose least and most are told to the table."""


class PartitionedWriter:
    """Files of one task, below `directory`."""

    def __init__(self, directory: Path, schema: pa.Schema, compression: str = COMPRESSION) -> None:
        self._directory, self._schema, self._compression = directory, schema, compression
        self._open: dict[str, _OpenFile] = {}
        self._written: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """More rows, of any days."""
        for day, rows in split_by_day(batch):
            file = self._open.pop(day, None)
            if file is None:
                if len(self._open) >= OPEN_MAX:
                    self._end(next(iter(self._open)))
                file = _OpenFile(self._directory, day, self._schema, self._compression)
            self._open[day] = file  # the last one is the one that was used last
            file.write(rows)
            if file.size >= FILE_BYTES:
                self._end(day)

    def close(self) -> list[DataFile]:
        """All files, whole and on the disk."""
        for day in list(self._open):
            self._end(day)
        sync(self._directory)
        return self._written

    def abort(self) -> None:
        """End without the files' being whole; whoever made the directory removes them."""
        for file in self._open.values():
            file.abort()
        self._open.clear()

    def _end(self, day: str) -> None:
        self._written.append(self._open.pop(day).close())


class _OpenFile:
    """A file that is being written; rows are gathered to row groups."""

    def __init__(self, directory: Path, day: str, schema: pa.Schema, compression: str) -> None:
        self._path = directory / f"{PREFIX}{uuid4().hex}.parquet"
        self._day, self._schema = day, schema
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._footers: list[pq.FileMetaData] = []
        self._sink = self._path.open("xb")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            compression_level=LEVELS.get(compression),
            use_dictionary=list(DICTIONARY_COLUMNS),
            write_statistics=True,  # of all: Iceberg misses none
            metadata_collector=self._footers,
        )

    @property
    def size(self) -> int:
        """Bytes so far, without what is gathered."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> DataFile:
        """The whole file, on the disk."""
        self._flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        sync(self._path)
        least, most = column_bounds(self._footers[0])
        return DataFile(
            name=self._path.name, day=self._day, rows=self._rows, size=size, least=least, most=most
        )

    def abort(self) -> None:
        with suppress(OSError, pa.ArrowException):  # the disk may be full
            self._writer.close()
        self._sink.close()

    def _flush(self) -> None:
        if self._gathered:
            rows = pa.Table.from_batches(self._gathered, self._schema)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._gathered, self._bytes = [], 0


def column_bounds(footer: pq.FileMetaData) -> tuple[dict[str, Any], dict[str, Any]]:
    """The least and the most of some columns, as a file's footer has them."""
    least, most = dict[str, Any](), dict[str, Any]()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            name, found = column.path_in_schema, column.statistics
            if name in BOUNDS_COLUMNS and found is not None and found.has_min_max:
                low, high = _plain(found.min), _plain(found.max)
                least[name] = min(low, least.get(name, low))
                most[name] = max(high, most.get(name, high))
    return least, most


def read_sorted(paths: Sequence[Path], schema: pa.Schema) -> pa.Table:
    """The rows of several files, by queue and offset."""
    rows = pa.concat_tables(pq.read_table(path, schema=schema, partitioning=None) for path in paths)
    return rows.sort_by([(name, "ascending") for name in ("broker", "queue_id", "queue_offset")])


def _plain(value: Any) -> Any:
    """A value as JSON has it; times of one length, so that they compare as texts."""
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value
