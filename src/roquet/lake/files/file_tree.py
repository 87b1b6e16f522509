"""File tree: whole files by their paths, below a directory or below a URL of an object store.

    store = file_tree(table_location("s3://lake/lag", {}))
    store.put("samples/1.parquet", parquet_bytes(rows))

A file appears with all of its bytes or not at all; what a kill leaves has another name.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from roquet.lake.files.disk import Disk, sync
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import ObjectStore

DRAFT: Final = ".draft"
"""How the name of a file ends that is not whole yet; such names begin with a dot."""


class DirectoryTree:
    """The files below a directory."""

    def __init__(self, root: Path) -> None:
        self._root, self._disk = root, Disk()

    def names(self) -> set[str]:
        """The names in the directory."""
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    def list_directory(self, directory: str) -> list[str]:
        """The sorted paths of the whole files of one directory; empty when there is none."""
        paths = sorted((self._root / directory).glob("*"))
        names = [path.name for path in paths if path.is_file() and not path.name.startswith(".")]
        return [f"{directory}/{name}" for name in names]

    def put(self, path: str, data: bytes) -> None:
        """Write a file durably, replacing an older one."""
        with self.writer(path) as stream:
            stream.write(data)

    @contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        """A stream for a file, which appears, durably, at the end of a block without errors."""
        target = self._root / path
        self._disk.make(target.parent)
        draft = target.with_name(f".{target.name}.{uuid4().hex[:8]}{DRAFT}")
        try:
            with draft.open("xb") as stream:
                yield stream
            sync(draft)
            self._disk.move(draft, target)
        except Exception:
            draft.unlink(missing_ok=True)
            raise
        self._disk.sync(target.parent)

    def rows(
        self, paths: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of Parquet files; all columns by default."""
        from pyarrow.dataset import dataset  # not at the top: it loads pandas, too

        names = list(columns or schema.names)
        if not paths:
            return schema.empty_table().select(names)
        files = [str(self._root / path) for path in paths]
        return dataset(files, schema, format="parquet").to_table(columns=names)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        self._disk.remove(self._root / path)

    def address(self, path: str) -> str:
        """The path of a file."""
        return str(self._root / path)


FileTree = DirectoryTree | ObjectStore
"""The files below a location; paths are relative to it, with slashes."""


def file_tree(location: TableLocation) -> FileTree:
    """The files below a location."""
    return DirectoryTree(location) if isinstance(location, Path) else ObjectStore(location)


def parquet_bytes(rows: pa.Table) -> bytes:
    """A Parquet file with these rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())
