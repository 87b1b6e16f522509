"""Refill: body columns get the values of rows that were written before there was the column.

A file is written anew if one of its bodies has a value that the column lacks; the table's offsets
do not change. Each commit replaces a few files, so a run after a kill continues with the others.
Other columns stay, and so does a row whose body had an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from roquet.lake.columns.body_columns import BODY_ERROR, BodyField, file_schema
from roquet.lake.columns.body_parser import BodyParser
from roquet.lake.columns.partition_scheme import DAILY, PartitionScheme
from roquet.lake.files.output_files import PREFIX
from roquet.lake.files.parquet_writer import (
    COMPRESSION,
    MERGED_FILE_BYTES,
    PartitionedWriter,
    read_sorted,
    write_files,
)
from roquet.lake.maintain.compaction import RunTaskSet
from roquet.lake.objects.object_location import StagingDirectory
from roquet.lake.table import ArchiveTable, DataFile
from roquet.lake.task_set import TaskResult
from roquet.model.errors import ConfigError
from roquet.model.settings import suggest

COMMIT_FILES_MAX: Final = 32
"""Files that one commit replaces."""


class RefillCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Values that were, or would be, written, and the files that are written anew for them."""

    files: int = 0
    filled: int = 0
    """Values that columns got."""
    unfit: int = 0
    """Bodies with a value that is not of the column's type, which stay without one."""


class _TaskCounts(msgspec.Struct, frozen=True):
    """The counts of one task."""

    number: int
    """The number of the task, and of its file."""
    filled: int
    unfit: int


class RefillTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that write a file each anew, unless nothing is missing in it."""

    paths: Sequence[str]
    refilled: tuple[BodyField, ...]
    columns: tuple[str, ...]
    body_fields: tuple[BodyField, ...]
    directory: StagingDirectory | None
    """Where the files go; None for a preview."""
    compression: str = COMPRESSION
    storage: Mapping[str, str] = {}
    scheme: PartitionScheme = DAILY
    sort_by: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def run(self, number: int) -> TaskResult:
        """Write one file with the values that its columns lack."""
        filled = unfit = 0
        for _, more, bad in self._batches(number):
            filled, unfit = filled + more, unfit + bad
            if filled and self.directory is not None:
                break  # counted while it is written
        if self.directory is None or not filled:
            return _result(number, filled, unfit)
        schema = file_schema(self.columns, self.body_fields)
        writer = PartitionedWriter(
            self.directory, schema, self.compression, self.scheme, MERGED_FILE_BYTES
        )
        counts = [0, 0]

        def counted() -> Iterator[pa.RecordBatch]:
            for rows, more, bad in self._batches(number):
                counts[0] += more
                counts[1] += bad
                yield rows

        files = write_files(counted(), writer)
        return msgspec.structs.replace(_result(number, *counts), files=tuple(files))

    def _batches(self, number: int) -> Iterator[tuple[pa.RecordBatch, int, int]]:
        """The rows of a file, with the values and the unfit bodies that they got."""
        schema = file_schema(self.columns, self.body_fields)
        for rows in read_sorted([self.paths[number]], schema, self.storage, self.sort_by):
            for batch in rows.to_batches():
                yield fill(batch, self.refilled)


def fill(rows: pa.RecordBatch, fields: Sequence[BodyField]) -> tuple[pa.RecordBatch, int, int]:
    """Rows with the values of these fields where a column has none, their number, unfit bodies."""
    filled = unfit = 0
    is_readable = rows.column(BODY_ERROR).is_null()
    for field in fields:
        column = rows.column(field.name)
        is_missing = pc.and_(column.is_null(), is_readable)
        bodies = pc.if_else(is_missing, rows.column("body"), pa.scalar(b"{}", pa.binary()))
        errors, values = BodyParser([field]).parse(bodies)
        filled += len(values) - values.null_count
        unfit += len(errors) - errors.null_count
        at = rows.schema.get_field_index(field.name)
        rows = rows.set_column(at, rows.schema.field(at), pc.coalesce(column, values))
    return rows, filled, unfit


def check_refilled(table: ArchiveTable, names: Sequence[str]) -> tuple[BodyField, ...]:
    """The body columns of these names; ConfigError for one that the table does not have."""
    known = {field.name: field for field in table.body_fields()}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--refill {name}: the table has no body column of this name"
                f"{suggest(name, known)}; `roquet spark archive … --body-schema` adds one"
            )
    return tuple(known[name] for name in names)


def refill(
    table: ArchiveTable,
    run_task_set: RunTaskSet,
    names: Sequence[str],
    compression: str = COMPRESSION,
    *,
    is_preview: bool,
) -> RefillCounts:
    """Fill columns from the bodies, or say in numbers what would be filled.

    Files of other writers are left alone. Raises TableConflict while an archive writes to the
    table; what was committed before that stays.
    """
    fields, state = check_refilled(table, names), table.state(())  # before the files are listed
    files = [file for file in table.files() if file.name.startswith(PREFIX)] if fields else []
    total = RefillCounts()
    for first in range(0, len(files), COMMIT_FILES_MAX):
        part = files[first : first + COMMIT_FILES_MAX]
        directory = None if is_preview else table.begin()
        results = run_task_set(_tasks(table, part, fields, compression, directory))
        counts = [msgspec.json.decode(each.payload, type=_TaskCounts) for each in results]
        total = RefillCounts(
            files=total.files + sum(each.filled > 0 for each in counts),
            filled=total.filled + sum(each.filled for each in counts),
            unfit=total.unfit + sum(each.unfit for each in counts),
        )
        added = [file for result in results for file in result.files]
        removed = [part[each.number] for each in counts if each.filled]
        if directory is None or not added:
            continue
        assert sum(file.rows for file in added) == sum(file.rows for file in removed)
        commit = state.then(state.offsets, directory.name, added, removed)
        table.commit(msgspec.structs.replace(commit, is_update=True))
        state = msgspec.structs.replace(state, number=state.number + 1)
    return total


def _tasks(
    table: ArchiveTable,
    files: Sequence[DataFile],
    fields: tuple[BodyField, ...],
    compression: str,
    directory: StagingDirectory | None,
) -> RefillTasks:
    return RefillTasks(
        paths=[table.path(file) for file in files],
        refilled=fields,
        columns=table.identity.columns,
        body_fields=table.body_fields(),
        directory=directory,
        compression=compression,
        storage=table.storage,
        scheme=table.identity.scheme,
        sort_by=table.identity.sort_by,
    )


def _result(number: int, filled: int, unfit: int) -> TaskResult:
    counts = _TaskCounts(number, filled, unfit)
    return TaskResult(payload=msgspec.json.encode(counts).decode())
