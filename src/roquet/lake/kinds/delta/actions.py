"""Delta actions: the files of a commit as entries of the log, and files as the log lists them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.partition_scheme import Partition, place_of
from roquet.lake.columns.partitioning import NO_DAY
from roquet.lake.table import DataFile, TableCommit

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction

DAY: Final = "partition.day"
"""Column of add actions with the day; missing in a table that is not divided by days."""

FILE_COLUMNS: Final = ("path", "size_bytes", "num_records", DAY)
"""Columns of add actions that describe a file; the others are statistics of the table's columns."""

FILES_AT_ONCE: Final = 1000
"""Add actions that are Python objects at a time, beside the files that are made of them."""


def actions(
    commit: TableCommit, now_ms: int, *, has_ranges: bool
) -> "list[AddAction | RemoveAction]":
    """The files that a commit adds and removes; the statistics may be without ranges."""
    from deltalake.transaction import RemoveAction

    is_news = commit.is_news
    return [
        *(
            added_file(file, now_ms, is_news=is_news, has_ranges=has_ranges)
            for file in commit.added
        ),
        *(
            RemoveAction(file.path, is_news, now_ms, file.size, _partition(file))
            for file in commit.removed
        ),
    ]


def added_file(file: DataFile, written_ms: int, *, is_news: bool, has_ranges: bool) -> "AddAction":
    """A file that is added, or that gets other statistics."""
    from deltalake.transaction import AddAction

    found = file.statistics
    stats = _Statistics(file.rows, found.nulls)
    if has_ranges:
        stats = _Statistics(file.rows, found.nulls, found.least, found.most)
    text = msgspec.json.encode(stats).decode()
    return AddAction(file.path, file.size, _partition(file), written_ms, is_news, text)


def files_of(added: pa.Table) -> list[DataFile]:
    """The files of a table, from its flat add actions."""
    columns = added.select([name for name in FILE_COLUMNS if name in added.column_names])
    batches = columns.to_batches(FILES_AT_ONCE)
    return [file_of(action) for batch in batches for action in batch.to_pylist()]


def file_of(action: Mapping[str, Any]) -> DataFile:
    """A file of the table, from a flat row of its add actions."""
    partition, name = place_of(action["path"])
    if DAY in action:
        day = action[DAY]
        partition = Partition(NO_DAY if day is None else str(day), partition.within)
    else:
        partition = Partition("", partition.day or partition.within)
    return DataFile(
        name=name,
        day=partition.day,
        within=partition.within,
        rows=action["num_records"],
        size=action["size_bytes"],
    )


def _partition(file: DataFile) -> dict[str, str | None]:
    parts = (part.partition("=") for part in file.partition.path.split("/"))
    return {name: None if value == NO_DAY else value for name, _, value in parts}


class _Statistics(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The statistics of a file in the log."""

    num_records: int
    null_count: Mapping[str, int] = {}
    min_values: Mapping[str, Any] = {}
    max_values: Mapping[str, Any] = {}
