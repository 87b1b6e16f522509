"""The interface of archive tables: one commit publishes files and the offsets they end at.

A commit has a number and the offsets that it continues from. It is refused when the table is at
other offsets, because another archive has written: so no message is stored twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final, Protocol, Self

import msgspec
import pyarrow as pa

from roquet.lake.columns.body_columns import JSON, BodyField, check_format, file_schema
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.columns.column_statistics import ColumnStatistics
from roquet.lake.columns.partition_scheme import (
    DAILY,
    Partition,
    PartitionScheme,
    RowDivision,
    parse_scheme,
    parse_sort,
)
from roquet.lake.columns.partitioning import archive_columns
from roquet.lake.objects.object_location import StagingDirectory, TableLocation, storage_of
from roquet.lake.queue_offsets import (
    OffsetsJson,
    QueueKey,
    QueueOffsets,
    from_json,
    queue_text,
    to_json,
)
from roquet.model.errors import ConfigError, RoquetError

FORMAT: Final = 3
"""Newest version of an archive's own data: identity, commits and offsets. Newer ones are refused.

Version 2 has partitions other than days, and columns of JSON bodies; tables of the latest state
begin with it. Version 3 has columns of other bodies, and body columns of tables of the latest
state. A table has the lowest version that has all of it, for older Roquets."""


class TableConflict(RoquetError):
    """Another archive has written to the table meanwhile; nothing was committed."""


class TableDamaged(RoquetError):
    """A file of the table is missing or unreadable; the text says which."""


class ArchiveIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The topic and columns of an archive; written when the table is created, never changed."""

    topic: str
    columns: tuple[str, ...]
    format: int = 1
    partition_by: str = ""
    """By what its files are divided, as `parse_scheme` reads it; empty is by days."""
    sort_by: tuple[str, ...] = ()
    """Columns by which merged files are sorted, before queue and offset."""
    body_format: str = ""
    """`json`, `avro` or `protobuf` if the table has columns for the fields of the bodies."""
    body_source: BodySchema | None = None
    """The schema with which it was made, of bodies in Avro or Protobuf."""
    infer_body: bool = False
    """Whether every run adds columns for the fields that bodies turn out to have."""
    body_prefix: str = ""
    """The begin of the names of new body columns."""

    @property
    def scheme(self) -> PartitionScheme:
        """By what the table's files are divided."""
        return parse_scheme(self.partition_by, self.columns)


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file of a table, with the statistics of some columns."""

    name: str
    day: str
    rows: int
    size: int
    within: str = ""
    """Directories of its partition below the day: `hour=23`."""
    statistics: ColumnStatistics = ColumnStatistics()
    """From the file's footer; empty in a list of a table's files."""

    @property
    def partition(self) -> Partition:
        """The partition of its rows."""
        return Partition(self.day, self.within)

    @property
    def path(self) -> str:
        """The file's path relative to the table's files."""
        return f"{self.partition.path}/{self.name}"


class TableCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a table: files added and removed, and offsets, all at once."""

    number: int
    attempt: str
    """Name of the staging directory with the files."""
    before: OffsetsJson
    after: OffsetsJson
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    topic_ids: Mapping[str, str] = {}
    """Topic ids by broker that the offsets in `after` belong to (rules.topic_id)."""
    retired_before: str = ""
    """The first day (ISO) that stays, in a commit that removes the rows of older days."""

    is_update: bool = False
    """Whether the added files have other rows than the removed ones, which they replace."""

    @property
    def is_news(self) -> bool:
        """Whether readers see other rows than before: not after files were merged."""
        return self.is_update or not (self.added and self.removed)


class TableState(msgspec.Struct, frozen=True):
    """The number of a table's last commit, and the offsets of the next messages."""

    number: int
    offsets: QueueOffsets
    topic_ids: Mapping[str, str] = {}
    """Topic ids by broker that the offsets belong to; unknown ones are left out."""

    def then(
        self,
        after: QueueOffsets,
        attempt: str,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        topic_ids: Mapping[str, str] | None = None,
    ) -> TableCommit:
        """The next commit after this state; `topic_ids` None keeps the present ones."""
        return TableCommit(
            number=self.number + 1,
            attempt=attempt,
            before=to_json(self.offsets),
            after=to_json(after),
            added=tuple(added),
            removed=tuple(removed),
            topic_ids=self.topic_ids if topic_ids is None else topic_ids,
        )


class ExpiredVersions(msgspec.Struct, frozen=True):
    """Older versions of a table that are given up, and the files that only they have."""

    versions: int = 0
    files: int = 0


class StagingArea(Protocol):
    """Where the files of a Delta or Iceberg table are until a commit names them."""

    def begin(self) -> StagingDirectory:
        """Where the tasks of a new attempt write their files."""

    def publish(self, commit: TableCommit) -> None:
        """Bring the files of a commit to their places, before the commit names them."""

    def settle(self, number: int) -> None:
        """Note the number of the table's last commit: what was begun beyond it is undone."""

    def has_leftovers(self) -> bool:
        """Whether `clean` is due: a run was killed, and no commit can name its files any more."""

    def clean(self, named: Callable[[], Collection[str]]) -> int:
        """Remove the files of killed runs but for the named paths; returns how many."""

    def address(self, file: DataFile) -> str:
        """The path or URL of a file."""

    def close(self) -> None:
        """Release what the archive holds."""


class ArchiveTable(ABC):
    """A table opened for writing by one archive, which locks it if it is a directory."""

    identity: ArchiveIdentity
    """The topic and columns."""
    kind: ClassVar[str]
    """`delta` or `iceberg`."""
    own_columns: ClassVar[frozenset[str]] = frozenset()
    """Columns besides those of messages that no field of a body can have the name of."""
    _root: TableLocation
    _staging: StagingArea

    @abstractmethod
    def state(self, queues: Iterable[QueueKey] = ()) -> TableState:
        """The last commit, with the offsets of these queues and of all others in the table."""

    @property
    def storage(self) -> Mapping[str, str]:
        """The options of the object store that its files lie in; empty for a directory."""
        return storage_of(self._root)

    def begin(self) -> StagingDirectory:
        """Where the tasks of a new attempt write files; those of earlier attempts do not count."""
        return self._staging.begin()

    @abstractmethod
    def commit(self, commit: TableCommit) -> None:
        """Publish files and offsets, both or neither; TableConflict when the base has changed."""

    @abstractmethod
    def files(self) -> Sequence[DataFile]:
        """The files that readers see; ConfigError where another writer keeps rows otherwise."""

    @property
    def division(self) -> RowDivision:
        """How rows are divided among files."""
        return self.identity.scheme

    def row_schema(self) -> pa.Schema:
        """The columns of the table's files."""
        fields = self.body_fields() if self.identity.body_format else None
        return file_schema(self.identity.columns, fields)

    def path(self, file: DataFile) -> str:
        """The path or URL of one of these files."""
        return self._staging.address(file)

    def incomplete_files(self) -> Sequence[DataFile]:
        """Files by which readers may pass over rows, as the table says too little of them."""
        return ()

    def complete_statistics(self) -> int:
        """Complete what the table says of such files, in commits without data; returns how many."""
        return 0

    def clean(self) -> int:
        """Remove files that killed runs have left and no commit can name; returns how many."""
        return self._staging.clean(self._named_paths)

    @abstractmethod
    def _named_paths(self) -> set[str]:
        """The paths of the files of all versions of the table."""

    @abstractmethod
    def expire(self, before_ms: int, *, is_preview: bool) -> ExpiredVersions:
        """Give up versions of the table that were replaced before this time (ms since 1970).

        Files that no later version has are removed. A preview removes nothing.
        """

    @abstractmethod
    def body_fields(self) -> tuple[BodyField, ...]:
        """The body columns of the table; empty when bodies are not parsed."""

    @abstractmethod
    def add_body_fields(self, fields: Iterable[BodyField]) -> None:
        """Add body columns; those that are there stay as they are.

        Raises ConfigError for one that would change its type.
        """

    def close(self) -> None:
        """Release the lock of a directory, the mark of a run in an object store."""
        self._staging.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TableNote(msgspec.Struct, frozen=True):
    """An archive's state as JSON in the table's own metadata."""

    number: int
    offsets: OffsetsJson
    topic_ids: Mapping[str, str] = {}
    attempt: str = ""
    """The attempt of the commit, where the table has kept it."""


def check_base(commit: TableCommit, state: TableState) -> None:
    """Raise TableConflict unless the table is at the state that the commit continues from.

    A queue that the run did not know, as its broker was away, must not begin anew: its messages
    would be in the table twice.
    """
    if state.number != commit.number - 1:
        raise TableConflict(
            f"the table is at commit {state.number}, not at {commit.number - 1}: another archive "
            "writes to it; nothing was committed. Let one archive run for a table"
        )
    before, after = from_json(commit.before), from_json(commit.after)
    for queue in sorted({*before, *after}):
        have, want = state.offsets.get(queue), before.get(queue)
        if have != want:
            raise TableConflict(
                f"{queue_text(queue)}: the table is at offset {have}, and this run began at "
                f"{want}; nothing was committed. Start again, and let one archive run for a table"
            )


def check_removed(commit: TableCommit, present: Collection[str]) -> None:
    """Raise TableConflict unless the table still has every file that the commit removes.

    `present` are the paths of its files. Rows of a file that is not there have been merged into
    another one, and would be in the table twice.
    """
    if any(file.path not in present for file in commit.removed):
        raise TableConflict(
            "another writer merged or removed the same files meanwhile; nothing was committed. "
            "Start again, and let one compaction run for a table"
        )


def agree_identity(
    wanted: ArchiveIdentity, existing: ArchiveIdentity | None, where: object
) -> ArchiveIdentity:
    """The identity of a new or existing table; ConfigError when topic, columns or format differ.

    `existing` is None for a new table. Without wanted columns the table's own are used.
    """
    if existing is None:
        return _new_identity(wanted)
    if existing.format > FORMAT:
        raise ConfigError(f"{where} was written by a newer Roquet (format {existing.format})")
    if existing.topic != wanted.topic:
        raise ConfigError(
            f"{where} is the archive of topic {existing.topic!r}, not of {wanted.topic!r}: "
            "give another directory"
        )
    if wanted.columns and existing.columns != wanted.columns:
        raise ConfigError(
            f"{where} has the columns {','.join(existing.columns)}: name these, or none, "
            "or give another directory"
        )
    _check_bodies(wanted, existing, where)
    scheme = parse_scheme(wanted.partition_by, existing.columns)
    if wanted.partition_by and scheme != existing.scheme:
        raise ConfigError(
            f"{where} is partitioned by {existing.scheme}, not by {scheme}: leave --partition-by "
            "out, or give another directory"
        )
    if wanted.sort_by and wanted.sort_by != existing.sort_by:
        order = ",".join(existing.sort_by) or "queue and offset"
        raise ConfigError(
            f"{where} is sorted by {order}, not by {','.join(wanted.sort_by)}: leave --sort-by "
            "out, or give another directory"
        )
    return existing


def _check_bodies(wanted: ArchiveIdentity, existing: ArchiveIdentity, where: object) -> None:
    """Raise ConfigError when bodies are wanted in other columns than the table was made with."""
    if wanted.body_format and wanted.body_format != existing.body_format:
        option = "--body-format json" if wanted.body_format == JSON else f"--{wanted.body_format}"
        raise ConfigError(
            f"{where} was made without {option}: leave it out, or give another directory"
        )
    if wanted.body_prefix and existing.body_prefix not in ("", wanted.body_prefix):
        raise ConfigError(
            f"{where} was made with --body-prefix {existing.body_prefix}, not "
            f"{wanted.body_prefix}: leave it out, or give another directory"
        )


def _lowest_format(scheme: PartitionScheme, body_format: str) -> int:
    if body_format not in ("", JSON):
        return 3
    return 1 if scheme == DAILY and not body_format else 2


def _new_identity(wanted: ArchiveIdentity) -> ArchiveIdentity:
    """The identity of a new table, its choices checked and spelled in one way."""
    columns = archive_columns(wanted.columns)
    check_format(wanted.body_format, columns, has_source=wanted.body_source is not None)
    scheme = parse_scheme(wanted.partition_by, columns)
    return msgspec.structs.replace(
        wanted,
        columns=columns,
        format=_lowest_format(scheme, wanted.body_format),
        partition_by="" if scheme == DAILY else str(scheme),
        sort_by=parse_sort(wanted.sort_by, columns),
        infer_body=wanted.infer_body and bool(wanted.body_format),
        body_prefix=wanted.body_prefix if wanted.body_format else "",
    )
