r"""Delta actions: the files of a commit as entries of the log, and files as the log lists them.

Earlier Roquets counted no nulls. Readers that know a range alone then pass over rows without a key,
so such entries are written anew:

    {"add": {"path": …, "stats": "{…,\"nullCount\":{}}", "dataChange": true}}
    {"add": {"path": …, "stats": "{…,\"nullCount\":{\"key\":7,…}}", "dataChange": false}}
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from roquet.lake.columns.column_statistics import statistics_of
from roquet.lake.columns.partition_scheme import Partition, place_of
from roquet.lake.columns.partitioning import NO_DAY
from roquet.lake.files.output_files import PREFIX
from roquet.lake.objects.object_store import READERS, explained_read, open_source
from roquet.lake.table import DataFile, TableCommit

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction

DAY: Final = "partition.day"
"""Column of add actions with the day; missing in a table that is not divided by days."""

FILE_COLUMNS: Final = ("path", "size_bytes", "num_records", DAY)
"""Columns of add actions that describe a file; the others are statistics of the table's columns."""

WRITTEN_MS: Final = "modification_time"

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


class ListedFile(msgspec.Struct, frozen=True):
    """A file as the log lists it, and when it was written."""

    file: DataFile
    written_ms: int


def incomplete_files(listed: pa.Table, columns: Sequence[str]) -> list[ListedFile]:
    """Files of the archive that lack statistics of these columns, from flat add actions."""
    kinds = [f"{kind}.{name}" for kind in ("null_count", "min", "max") for name in columns]
    names = [name for name in (*FILE_COLUMNS, WRITTEN_MS, *kinds) if name in listed.column_names]
    return [
        ListedFile(file, action[WRITTEN_MS])
        for batch in listed.select(names).to_batches(FILES_AT_ONCE)
        for action in batch.to_pylist()
        if (file := file_of(action)).name.startswith(PREFIX) and not is_complete(action, columns)
    ]


def is_complete(action: Mapping[str, Any], columns: Sequence[str]) -> bool:
    """Whether a file counts the nulls of each column, and has a range of all of them or of none."""
    nulls = [action.get(f"null_count.{name}") for name in columns]
    bounds = [(action.get(f"min.{name}"), action.get(f"max.{name}")) for name in columns]
    if None in nulls or all(bound == (None, None) for bound in bounds):
        return None not in nulls
    return all(
        None not in bound or count == action["num_records"]
        for bound, count in zip(bounds, nulls, strict=True)
    )


def restated(
    files: Sequence[ListedFile],
    columns: Sequence[str],
    address: Callable[[DataFile], str],
    storage: Mapping[str, str],
) -> "Iterator[AddAction]":
    """The entries of files with statistics from their footers, which change no data."""

    def footer_of(listed: ListedFile) -> pq.FileMetaData:
        path = address(listed.file)
        with explained_read(path, storage):
            return pq.read_metadata(open_source(path, storage))

    with ThreadPoolExecutor(READERS) as readers:
        for listed, footer in zip(files, readers.map(footer_of, files), strict=True):
            file = msgspec.structs.replace(
                listed.file, rows=footer.num_rows, statistics=statistics_of(footer, columns)
            )
            yield added_file(file, listed.written_ms, is_news=False, has_ranges=True)
