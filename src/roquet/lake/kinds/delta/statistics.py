r"""Delta statistics: files whose entries in the log have incomplete ones, and the entries anew.

    {"add": {"path": …, "stats": "{…,\"nullCount\":{}}", "dataChange": true}}
    {"add": {"path": …, "stats": "{…,\"nullCount\":{\"key\":7,…}}", "dataChange": false}}

Earlier Roquets counted no nulls. Readers that know a range alone then pass over rows without a key.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from roquet.lake.columns.column_statistics import statistics_of
from roquet.lake.files.output_files import PREFIX
from roquet.lake.kinds.delta.actions import FILE_COLUMNS, FILES_AT_ONCE, added_file, file_of
from roquet.lake.objects.object_store import READERS, explained_read, open_source
from roquet.lake.table import DataFile

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

WRITTEN_MS: Final = "modification_time"


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
