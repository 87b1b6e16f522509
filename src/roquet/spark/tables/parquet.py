"""Parquet directory: files in a directory for each day, published by numbered commits.

A commit is a file that can be created once, `_roquet/commits/0000000007.json`, with the names of
the files and the offsets they end at. Its existence is the decision; then the files are moved to
their days, and a restart completes the newest commit. So `spark.read.parquet(DIR)` sees complete
files and each message once.

A commit that merges files moves the new one before it removes the old ones: a read at that moment
sees some messages twice. Delta and Iceberg tables do not have this gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec
import pyarrow.parquet as pq

from roquet.model.errors import ConfigError
from roquet.spark.queue_offsets import QueueKey, from_json
from roquet.spark.tables.body_columns import BodyField
from roquet.spark.tables.disk import Disk
from roquet.spark.tables.partition_scheme import place_of
from roquet.spark.tables.staging import KIND_MARKERS, Staging, check_target
from roquet.spark.tables.table import (
    ArchiveIdentity,
    DataFile,
    ExpiredVersions,
    TableCommit,
    TableConflict,
    TableDamaged,
    TableState,
    agree_identity,
    check_base,
)

KEPT_COMMITS: Final = 1000
"""Commit files that are kept for inspection; only the newest one is needed."""


class ParquetTable:
    """An archive as a directory of Parquet files."""

    def __init__(self, root: Path, wanted: ArchiveIdentity, disk: Disk | None = None) -> None:
        check_target(root, "parquet")
        self._disk = disk or Disk()
        self._staging = Staging(root, root, self._disk)
        try:
            self._commits = self._staging.home / "commits"
            self._disk.make(self._commits)
            self.identity = self._identified(root, wanted)
            self._recover()
        except BaseException:
            self._staging.close()
            raise

    def state(self, queues: Iterable[QueueKey] = ()) -> TableState:  # noqa: ARG002 - it knows them all
        """The last commit and its offsets."""
        newest = self._newest()
        if newest is None:
            return TableState(0, {})
        return TableState(newest.number, from_json(newest.after), newest.topic_ids)

    @property
    def storage(self) -> Mapping[str, str]:
        """Empty: the files lie in a directory."""
        return {}

    def begin(self) -> Path:
        """A new staging directory for one attempt."""
        return self._staging.begin()

    def commit(self, commit: TableCommit) -> None:
        """Create the commit file, then move the files to their days."""
        check_base(commit, self.state())
        try:
            self._disk.create(self._file(commit.number), msgspec.json.encode(commit))
        except FileExistsError:
            text = f"commit {commit.number} was made by another archive; nothing was committed"
            raise TableConflict(text) from None
        self._publish(commit)
        self._disk.remove(self._file(commit.number - KEPT_COMMITS))

    def files(self) -> Sequence[DataFile]:
        """The files in the directories of the days."""
        return [_file_of(path) for path in sorted(self._staging.days.glob("day=*/**/*.parquet"))]

    def path(self, file: DataFile) -> str:
        """The path of one of the files."""
        return self._staging.address(file)

    def incomplete_files(self) -> Sequence[DataFile]:
        """None: readers know what is in the files themselves."""
        return ()

    def complete_statistics(self) -> int:
        """Nothing: readers know what is in the files themselves."""
        return 0

    def clean(self) -> int:
        """Nothing: opening the table has done it."""
        return 0

    def expire(self, before_ms: int, *, is_preview: bool) -> ExpiredVersions:  # noqa: ARG002
        """Nothing: a commit removes the files that it replaces."""
        return ExpiredVersions()

    def body_fields(self) -> tuple[BodyField, ...]:
        """Empty: `open_table` refuses body columns, since no schema says which files have them."""
        return ()

    def add_body_fields(self, fields: Iterable[BodyField]) -> None:  # noqa: ARG002
        """ConfigError: there is no schema to add them to."""
        raise ConfigError("a directory of Parquet files has no body columns: use --kind delta")

    def close(self) -> None:
        """Release the lock."""
        self._staging.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _identified(self, root: Path, wanted: ArchiveIdentity) -> ArchiveIdentity:
        """The archive's identity; written to a new directory."""
        note = root / KIND_MARKERS["parquet"]
        existing = None
        if note.exists():
            existing = msgspec.json.decode(note.read_bytes(), type=ArchiveIdentity)
        identity = agree_identity(wanted, existing, root)
        if existing is None:
            self._disk.create(note, msgspec.json.encode(identity))
        return identity

    def _recover(self) -> None:
        """Complete the newest commit, and remove what was not committed."""
        newest = self._newest()
        if newest is not None:
            self._publish(newest)
        self._staging.sweep()

    def _publish(self, commit: TableCommit) -> None:
        """Move the files of a commit to their days; part of it may be done already."""
        if self._staging.is_waiting(commit.attempt):
            self._staging.place(commit.attempt, commit.added)
            for file in commit.removed:
                self._disk.remove(self._staging.path(file))
            self._staging.sweep()
        if commit.retired_before:  # the first commit says where the archive began, and no longer is
            self._disk.remove(self._file(1))

    def _newest(self) -> TableCommit | None:
        names = [path.stem for path in self._commits.glob("*.json") if path.stem.isdecimal()]
        if not names:
            return None
        path = self._commits / f"{max(names)}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=TableCommit)
        except msgspec.DecodeError as error:
            raise TableDamaged(f"{path} is no commit: {error}") from error

    def _file(self, number: int) -> Path:
        return self._commits / f"{number:010}.json"


def _file_of(path: Path) -> DataFile:
    (day, within), name = place_of(path.as_posix())
    return DataFile(
        name=name,
        day=day,
        within=within,
        rows=pq.read_metadata(path).num_rows,
        size=path.stat().st_size,
    )
