"""Compaction: small files of a day become large ones, in the order of queues and offsets.

Offsets stay as they are, and each commit takes a few groups: a run that is killed goes on with what
is left.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from roquet.spark.jobs.task_set import CompactionTasks, TaskResult, TaskSet
from roquet.spark.tables.parquet_writer import COMPRESSION, PREFIX
from roquet.spark.tables.table import ArchiveTable, DataFile

TARGET_BYTES: Final = 128 * 1024 * 1024
"""Of a merged file; what has half of it is left alone."""

GROUP_COLUMN_BYTES_MAX: Final = 512 * 1024 * 1024
"""Of the columns of a group, which a worker holds all at once, and once more in order."""

FILES_MIN: Final = 2
"""Small files of a day that are worth it."""

COMMIT_GROUPS_MAX: Final = 8
"""Groups of one commit."""


RunTaskSet = Callable[[TaskSet], list[TaskResult]]
"""What has tasks done, and gives their answers."""


class SizedFile(msgspec.Struct, frozen=True):
    """A file and the bytes of its columns."""

    file: DataFile
    bytes: int

    @property
    def is_small(self) -> bool:
        """Whether it should be part of a larger one."""
        return 2 * self.file.size < TARGET_BYTES and 2 * self.bytes < GROUP_COLUMN_BYTES_MAX


def merge_groups(
    files: Sequence[SizedFile], files_min: int = FILES_MIN
) -> Iterator[list[DataFile]]:
    """What to merge: small files of one day, as many as make a large one."""
    small = sorted(
        (one for one in files if one.is_small), key=lambda one: (one.file.day, one.file.name)
    )
    for _, of_day in groupby(small, key=lambda one: one.file.day):
        found = list(_fill_groups(list(of_day)))
        yield from (group for group in found if len(group) >= files_min)


def _fill_groups(small: Sequence[SizedFile]) -> Iterator[list[DataFile]]:
    group, size, columns = list[DataFile](), 0, 0
    for one in small:
        if group and columns + one.bytes > GROUP_COLUMN_BYTES_MAX:
            yield group
            group, size, columns = [], 0, 0
        group.append(one.file)
        size += one.file.size
        columns += one.bytes
        if size >= TARGET_BYTES:
            yield group
            group, size, columns = [], 0, 0
    yield group


def sized_files(table: ArchiveTable) -> list[SizedFile]:
    """The table's files of ours, with what their footers say."""
    import pyarrow.parquet as pq

    found = []
    for file in table.files():
        if file.name.startswith(PREFIX):
            footer = pq.read_metadata(table.path(file))
            sizes = (footer.row_group(at).total_byte_size for at in range(footer.num_row_groups))
            found.append(SizedFile(file, sum(sizes)))
    return found


def compact(
    table: ArchiveTable,
    work: RunTaskSet,
    compression: str = COMPRESSION,
    files_min: int = FILES_MIN,
) -> int:
    """Merge what is worth it; gives how many files became part of larger ones."""
    merged = 0
    wanted = list(merge_groups(sized_files(table), files_min))
    for first in range(0, len(wanted), COMMIT_GROUPS_MAX):
        chosen = wanted[first : first + COMMIT_GROUPS_MAX]
        _merge(table, work, chosen, compression)
        merged += sum(map(len, chosen))
    return merged


def _merge(
    table: ArchiveTable,
    work: RunTaskSet,
    chosen: Sequence[Sequence[DataFile]],
    compression: str,
) -> None:
    state, directory = table.state(()), table.begin()
    errand = CompactionTasks(
        groups=[[str(table.path(file)) for file in group] for group in chosen],
        columns=table.identity.columns,
        directory=str(directory),
        compression=compression,
    )
    added = [file for answer in work(errand) for file in answer.files]
    removed = [file for group in chosen for file in group]
    assert sum(file.rows for file in added) == sum(file.rows for file in removed)
    table.commit(state.then(state.offsets, directory.name, added, removed))
