"""Refill: body columns get the values of rows that were written before there was the column.

A file is written anew if one of its bodies has a value that the column lacks; the table's offsets
do not change. Each commit replaces a few files, so a run after a kill continues with the others.
Other columns stay, and so does a row whose body had an error.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from roquet.lake.columns.body_columns import BODY_ERROR, BodyField
from roquet.lake.columns.body_parser import BodyParser
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.files.output_files import PREFIX
from roquet.lake.files.parquet_writer import COMPRESSION
from roquet.lake.maintain.compaction import RewriteTasks, RunTaskSet, replace_files, rewrite_options
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


class RefillTasks(RewriteTasks, frozen=True, kw_only=True):
    """Tasks that write a file each anew, unless nothing is missing in it."""

    paths: Sequence[str]
    refilled: tuple[BodyField, ...]
    source: BodySchema | None = None
    """The schema of bodies that are no JSON."""

    def __len__(self) -> int:
        return len(self.paths)

    def run(self, number: int) -> TaskResult:
        """Write one file with the values that its columns lack."""
        counts = [0, 0]
        for _ in self._filled(number, counts):
            if counts[0] and self.directory is not None:
                break  # counted while it is written
        files: tuple[DataFile, ...] = ()
        if self.directory is not None and counts[0]:
            counts = [0, 0]
            files = self.write(self._filled(number, counts))
        payload = msgspec.json.encode(_TaskCounts(number, *counts)).decode()
        return TaskResult(files=files, payload=payload)

    def _filled(self, number: int, counts: list[int]) -> Iterator[pa.RecordBatch]:
        """The rows of a file; adds the values and the unfit bodies that they got to the counts."""
        for batch in self.read([self.paths[number]]):
            rows, filled, unfit = fill(batch, self.refilled, self.source)
            counts[0] += filled
            counts[1] += unfit
            yield rows


def fill(
    rows: pa.RecordBatch, fields: Sequence[BodyField], source: BodySchema | None = None
) -> tuple[pa.RecordBatch, int, int]:
    """Rows with the values of these fields where a column has none, their number, unfit bodies."""
    filled = unfit = 0
    is_readable = rows.column(BODY_ERROR).is_null()
    for field in fields:
        column = rows.column(field.name)
        is_missing = pc.and_(column.is_null(), is_readable)
        parser = BodyParser([field], source=source)
        errors, values = parser.parse(rows.column("body"), pc.invert(is_missing))
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
        task_set = RefillTasks(
            paths=[table.path(file) for file in part],
            refilled=fields,
            source=table.identity.body_source,
            **rewrite_options(table, directory, compression),
        )
        results = run_task_set(task_set)
        counts = [msgspec.json.decode(each.payload, type=_TaskCounts) for each in results]
        total = RefillCounts(
            files=total.files + sum(each.filled > 0 for each in counts),
            filled=total.filled + sum(each.filled for each in counts),
            unfit=total.unfit + sum(each.unfit for each in counts),
        )
        added = [file for result in results for file in result.files]
        removed = [part[each.number] for each in counts if each.filled]
        if directory is not None and added:
            state = replace_files(table, state, directory.name, added, removed, is_update=True)
    return total
