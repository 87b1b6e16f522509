"""Parquet writer: a task's batches become Parquet files, one or more for each partition.

File names are random, so tasks that are retried or run twice do not collide.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from roquet.lake.columns.column_statistics import STATISTICS_COLUMNS, statistics_of
from roquet.lake.columns.partition_scheme import DAILY, Partition, RowDivision
from roquet.lake.columns.partitioning import DICTIONARY_COLUMNS
from roquet.lake.files.output_files import explained_writes, make_durable, new_file, remove_file
from roquet.lake.objects.object_location import StagingDirectory
from roquet.lake.objects.object_store import explained_read, open_source
from roquet.lake.table import DataFile

GROUP_BYTES: Final = 32 * 1024 * 1024
"""Arrow bytes of one row group: large ones are read faster, but a worker holds one in memory."""

FILE_BYTES: Final = 256 * 1024 * 1024
"""Size at which a file is closed and another one begun."""

MERGED_FILE_BYTES: Final = 512 * 1024 * 1024
"""Size at which a merged file is closed: a group of small files becomes one file, and no rest."""

RUN_BYTES: Final = 512 * 1024 * 1024
"""Uncompressed bytes that are sorted together: a worker holds them twice, as read and sorted."""

OPEN_MAX: Final = 4
"""Most open files, one a partition: each holds a row group in memory. Buckets need as many more,
and have smaller row groups for it."""

COMPRESSION: Final = "zstd"
LEVELS: Final[Mapping[str, int]] = {"zstd": 1}
"""Level 1 of zstd costs as much time as snappy, and its files are much smaller."""


class PartitionedWriter:
    """Writes the rows of one task to files in `directory`, by partition."""

    def __init__(
        self,
        directory: StagingDirectory,
        schema: pa.Schema,
        compression: str = COMPRESSION,
        scheme: RowDivision = DAILY,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._directory, self._schema, self._compression = directory, schema, compression
        self._scheme, self._file_bytes = scheme, file_bytes
        self._open_max = OPEN_MAX + scheme.open_files
        self._group_bytes = GROUP_BYTES * OPEN_MAX // self._open_max
        self._open: dict[Partition, _OpenFile] = {}
        self._written: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows of any partitions. Raises StorageFailed when an object store fails."""
        with explained_writes(self._directory):
            for partition, rows in self._scheme.split(batch):
                self._write(partition, rows)

    def close(self) -> list[DataFile]:
        """Complete all files durably, and return them. Raises StorageFailed as `write` does."""
        with explained_writes(self._directory):
            for partition in list(self._open):
                self._end(partition)
        make_durable(self._directory)
        return self._written

    def abort(self) -> None:
        """Give up all files; in a directory its owner removes them."""
        for open_file in self._open.values():
            open_file.abort()
        for file in self._written:
            remove_file(self._directory, file.day, file.name, file.within)
        self._open.clear()
        self._written.clear()

    def _write(self, partition: Partition, rows: pa.RecordBatch) -> None:
        file = self._open.pop(partition, None)
        if file is None:
            if len(self._open) >= self._open_max:
                self._end(next(iter(self._open)))
            file = _OpenFile(self._directory, partition, self._schema, self._compression)
        self._open[partition] = file  # most recently used last
        file.write(rows, self._group_bytes)
        if file.size >= self._file_bytes:
            self._end(partition)

    def _end(self, partition: Partition) -> None:
        self._written.append(self._open[partition].close())
        del self._open[
            partition
        ]  # after it: a file whose upload failed is given up with the others


class _OpenFile:
    """An open file; rows are gathered into row groups."""

    def __init__(
        self, directory: StagingDirectory, partition: Partition, schema: pa.Schema, compression: str
    ) -> None:
        self._file = new_file(directory, partition.day, partition.within)
        self._partition, self._schema = partition, schema
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

    def write(self, batch: pa.RecordBatch, group_bytes: int) -> None:
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._bytes >= group_bytes:
            self._flush()

    def close(self) -> DataFile:
        """Complete the file durably."""
        self._flush()
        self._writer.close()
        size = self.size
        self._file.complete()
        columns = [name for name in STATISTICS_COLUMNS if name in self._schema.names]
        day, within = self._partition
        return DataFile(
            name=self._file.name,
            day=day,
            within=within,
            rows=self._rows,
            size=size,
            statistics=statistics_of(self._footers[0], columns),
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


def write_files(batches: Iterable[pa.RecordBatch], writer: PartitionedWriter) -> list[DataFile]:
    """Write batches to new files; none stays when an error is raised."""
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def read_sorted(
    paths: Sequence[str | Path],
    schema: pa.Schema,
    storage: Mapping[str, str] = {},
    sort_by: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """The rows of several files in runs of `RUN_BYTES`, each run sorted.

    A run is sorted by these columns, then by queue and offset. Columns that a file has not are
    null. In most groups of small files one run is all.
    """
    names = dict.fromkeys((*sort_by, "broker", "queue_id", "queue_offset"))
    order = [(name, "ascending") for name in names]
    gathered, size = list[pa.Table](), 0
    for path in paths:
        with explained_read(path, storage), pq.ParquetFile(open_source(path, storage)) as file:
            for number in range(file.num_row_groups):
                group_size = file.metadata.row_group(number).total_byte_size
                if gathered and size + group_size > RUN_BYTES:
                    yield pa.concat_tables(gathered).sort_by(order)
                    gathered, size = [], 0
                gathered.append(_conformed(file.read_row_group(number), schema))
                size += group_size
    if gathered:
        yield pa.concat_tables(gathered).sort_by(order)


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of a schema: null where a file is older than a column."""
    known = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in known
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
