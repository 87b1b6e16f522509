"""Compaction: merges small files of one partition into large ones, sorted by queue and offset.

The table's offsets do not change. Each commit merges a few groups of files, so a run after a kill
continues with the remaining groups.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.partition_scheme import DAILY, RowDivision
from roquet.lake.files.output_files import PREFIX
from roquet.lake.files.parquet_writer import (
    COMPRESSION,
    MERGED_FILE_BYTES,
    PartitionedWriter,
    read_sorted,
    write_files,
)
from roquet.lake.objects.object_location import StagingDirectory
from roquet.lake.table import ArchiveTable, DataFile, TableState
from roquet.lake.task_set import TaskResult, TaskSet

TARGET_BYTES: Final = 256 * 1024 * 1024
"""Least size of a full group of small files. A file of at least half of it is not merged again, so
files have 128 to 512 MiB, but for the last one of a partition."""

FILES_MIN: Final = 2
"""Default for the small files of one day that are worth merging."""

COMMIT_GROUPS_MAX: Final = 8
"""Groups that one commit merges."""


RunTaskSet = Callable[[TaskSet], list[TaskResult]]
"""Runs the tasks of a set and returns their results."""


class RewriteTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that write files of a table anew, in runs of sorted rows."""

    schema: pa.Schema
    """The columns of the files."""
    directory: StagingDirectory | None
    """Where the files go; None for a preview."""
    compression: str = COMPRESSION
    storage: Mapping[str, str] = {}
    """The options of the object store that the files lie in."""
    division: RowDivision = DAILY
    sort_by: tuple[str, ...] = ()

    def read(self, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of some files."""
        for rows in read_sorted(paths, self.schema, self.storage, self.sort_by):
            yield from rows.to_batches()

    def write(self, batches: Iterable[pa.RecordBatch]) -> tuple[DataFile, ...]:
        """New files with these rows."""
        assert self.directory is not None
        writer = PartitionedWriter(
            self.directory, self.schema, self.compression, self.division, MERGED_FILE_BYTES
        )
        return tuple(write_files(batches, writer))


class CompactionTasks(RewriteTasks, frozen=True, kw_only=True):
    """Tasks that write a group of small files as one each."""

    groups: Sequence[Sequence[str]]

    def __len__(self) -> int:
        return len(self.groups)

    def run(self, number: int) -> TaskResult:
        """Merge the files of one group."""
        return TaskResult(files=self.write(self.read(self.groups[number])))


def is_small(file: DataFile) -> bool:
    """Whether a file should be merged with others. Those of other writers are left alone."""
    return file.name.startswith(PREFIX) and 2 * file.size < TARGET_BYTES


def merge_groups(files: Iterable[DataFile], files_min: int = FILES_MIN) -> Iterator[list[DataFile]]:
    """Group small files of one partition, each group as large as a merged file shall be.

    Groups of fewer than `files_min` files are left out.
    """
    small = sorted(filter(is_small, files), key=lambda file: (file.partition, file.name))
    for _, of_one in groupby(small, key=lambda file: file.partition):
        yield from (group for group in _fill_groups(of_one) if len(group) >= files_min)


def _fill_groups(small: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    group, size = list[DataFile](), 0
    for file in small:
        group.append(file)
        size += file.size
        if size >= TARGET_BYTES:
            yield group
            group, size = [], 0
    yield group


def compact(
    table: ArchiveTable,
    run_task_set: RunTaskSet,
    compression: str = COMPRESSION,
    files_min: int = FILES_MIN,
) -> int:
    """Merge the small files of each day that has enough of them; returns how many were merged."""
    merged, state = 0, table.state(())  # read before the files are listed, and never again
    groups = list(merge_groups(table.files(), files_min))
    for first in range(0, len(groups), COMMIT_GROUPS_MAX):
        batch = groups[first : first + COMMIT_GROUPS_MAX]
        state = merge(table, state, run_task_set, batch, compression)
        merged += sum(map(len, batch))
    return merged


def merge(
    table: ArchiveTable,
    state: TableState,
    run_task_set: RunTaskSet,
    groups: Sequence[Sequence[DataFile]],
    compression: str,
) -> TableState:
    """Merge groups of files in one commit after `state`; returns the state that it makes."""
    directory = table.begin()
    task_set = CompactionTasks(
        groups=[[table.path(file) for file in group] for group in groups],
        **rewrite_options(table, directory, compression),
    )
    added = [file for result in run_task_set(task_set) for file in result.files]
    removed = [file for group in groups for file in group]
    return replace_files(table, state, directory.name, added, removed)


def rewrite_options(
    table: ArchiveTable, directory: StagingDirectory | None, compression: str
) -> dict[str, Any]:
    """The fields of `RewriteTasks` for files of a table."""
    return {
        "schema": table.row_schema(),
        "directory": directory,
        "compression": compression,
        "storage": table.storage,
        "division": table.division,
        "sort_by": table.identity.sort_by,
    }


def replace_files(
    table: ArchiveTable,
    state: TableState,
    attempt: str,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    *,
    is_update: bool = False,
) -> TableState:
    """Replace files by others with as many rows, in a commit after `state`; returns the new one."""
    assert sum(file.rows for file in added) == sum(file.rows for file in removed)
    commit = state.then(state.offsets, attempt, added, removed)
    table.commit(msgspec.structs.replace(commit, is_update=is_update))
    return msgspec.structs.replace(state, number=state.number + 1)
