"""Output files: a new Parquet file of a task, in a directory or uploaded to an object store."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from roquet.lake.columns.partition_scheme import Partition
from roquet.lake.files.disk import sync
from roquet.lake.objects.object_location import ObjectDirectory, StagingDirectory
from roquet.lake.objects.object_store import ObjectStore, explained_upload
from roquet.model.errors import RoquetError

PREFIX: Final = "roquet-"
"""Prefix of the file names of archives."""

OWN_FILE: Final = re.compile(
    rf"(?:day|bucket)=[^/]+/(?:\w+=[^/]+/)*{PREFIX}[0-9a-f]{{32}}\.parquet"
)
"""The paths, relative to a table, of the files that its archive writes; no others are removed."""


class LocalFile:
    """A file in a directory; the owner of the directory removes discarded ones."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self._path = name, directory / name
        self.stream = self._path.open("xb")

    def complete(self) -> None:
        """Close the file, durably."""
        self.stream.close()
        sync(self._path)

    def discard(self) -> None:
        """Close the file."""
        self.stream.close()


class UploadedFile:
    """A file of an object store, under the name that a commit may give it."""

    def __init__(self, directory: ObjectDirectory, path: str) -> None:
        self.name, self._path = path.rpartition("/")[2], path
        self._store = ObjectStore(directory.location)
        self.stream = self._store.create(self._path)

    def complete(self) -> None:
        """End the upload; OSError unless the store has the whole file."""
        self.stream.close()

    def discard(self) -> None:
        """Remove the file: pyarrow can end an upload, but not give it up."""
        with suppress(OSError):
            self.stream.close()
        with suppress(OSError, RoquetError):  # what stays is removed with other orphans
            self._store.remove(self._path)


OutputFile = LocalFile | UploadedFile
"""A file that is being written: pyarrow writes to its `stream`."""


def new_file(directory: StagingDirectory, day: str, within: str = "") -> OutputFile:
    """A new file with a name of its own, for rows of one day, or of a partition within it."""
    name = f"{PREFIX}{uuid4().hex}.parquet"
    if isinstance(directory, Path):
        return LocalFile(directory, name)
    return UploadedFile(directory, data_path(day, name, within))


@contextmanager
def explained_writes(directory: StagingDirectory) -> Iterator[None]:
    """Turn an error of an object store into a sentence; those of a directory's disk pass."""
    if isinstance(directory, Path):
        yield
    else:
        with explained_upload(directory.location):
            yield


def data_path(day: str, name: str, within: str = "") -> str:
    """The path of a file relative to its table."""
    return f"{Partition(day, within).path}/{name}"


def make_durable(directory: StagingDirectory) -> None:
    """Make the names of completed files durable."""
    if isinstance(directory, Path):
        sync(directory)


def remove_file(directory: StagingDirectory, day: str, name: str, within: str = "") -> None:
    """Remove a completed file of an attempt that failed, where no one else removes it."""
    if not isinstance(directory, Path):
        with suppress(OSError, RoquetError):
            ObjectStore(directory.location).remove(data_path(day, name, within))
