"""Compaction: merges small files of one day into large ones, sorted by queue and offset.

The table's offsets do not change. Each commit merges a few groups of files, so a run after a kill
continues with the remaining groups.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from roquet.spark.jobs.archive.archive_tasks import CompactionTasks
from roquet.spark.jobs.task_set import TaskResult, TaskSet
from roquet.spark.tables.object_store import open_source
from roquet.spark.tables.output_files import PREFIX
from roquet.spark.tables.parquet_writer import COMPRESSION
from roquet.spark.tables.table import ArchiveTable, DataFile, TableState

TARGET_BYTES: Final = 128 * 1024 * 1024
"""Aimed size of a merged file; a file of at least half of it is not merged."""

GROUP_COLUMN_BYTES_MAX: Final = 512 * 1024 * 1024
"""Uncompressed columns of one group: a worker holds them twice in memory, as read and sorted."""

FILES_MIN: Final = 2
"""Default for the small files of one day that are worth merging."""

COMMIT_GROUPS_MAX: Final = 8
"""Groups that one commit merges."""


RunTaskSet = Callable[[TaskSet], list[TaskResult]]
"""Runs the tasks of a set and returns their results."""


class SizedFile(msgspec.Struct, frozen=True):
    """A file of the table, and the uncompressed bytes of its columns."""

    file: DataFile
    bytes: int

    @property
    def is_small(self) -> bool:
        """Whether the file should be merged with others."""
        return 2 * self.file.size < TARGET_BYTES and 2 * self.bytes < GROUP_COLUMN_BYTES_MAX


def merge_groups(
    files: Sequence[SizedFile], files_min: int = FILES_MIN
) -> Iterator[list[DataFile]]:
    """Group small files of one day, each group as large as a merged file shall be.

    Groups of fewer than `files_min` files are left out.
    """
    small = sorted(
        (each for each in files if each.is_small), key=lambda each: (each.file.day, each.file.name)
    )
    for _, of_day in groupby(small, key=lambda each: each.file.day):
        yield from (group for group in _fill_groups(list(of_day)) if len(group) >= files_min)


def _fill_groups(small: Sequence[SizedFile]) -> Iterator[list[DataFile]]:
    group, size, columns = list[DataFile](), 0, 0
    for each in small:
        if group and columns + each.bytes > GROUP_COLUMN_BYTES_MAX:
            yield group
            group, size, columns = [], 0, 0
        group.append(each.file)
        size += each.file.size
        columns += each.bytes
        if size >= TARGET_BYTES:
            yield group
            group, size, columns = [], 0, 0
    yield group


def sized_files(table: ArchiveTable) -> list[SizedFile]:
    """The files that an archive of ours wrote, with the sizes from their footers."""
    import pyarrow.parquet as pq

    files = []
    for file in table.files():
        if file.name.startswith(PREFIX):
            footer = pq.read_metadata(open_source(table.path(file), table.storage))
            sizes = (footer.row_group(at).total_byte_size for at in range(footer.num_row_groups))
            files.append(SizedFile(file, sum(sizes)))
    return files


def compact(
    table: ArchiveTable,
    run_task_set: RunTaskSet,
    compression: str = COMPRESSION,
    files_min: int = FILES_MIN,
) -> int:
    """Merge the small files of each day that has enough of them; returns how many were merged."""
    merged, state = 0, table.state(())  # read before the files are listed, and never again
    groups = list(merge_groups(sized_files(table), files_min))
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
        columns=table.identity.columns,
        directory=directory,
        compression=compression,
        storage=table.storage,
    )
    added = [file for result in run_task_set(task_set) for file in result.files]
    removed = [file for group in groups for file in group]
    assert sum(file.rows for file in added) == sum(file.rows for file in removed)
    table.commit(state.then(state.offsets, directory.name, added, removed))
    return msgspec.structs.replace(state, number=state.number + 1)
