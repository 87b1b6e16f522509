"""Table: what an archive writes to: files that one commit publishes with the offsets they end at.

A commit has a number and says from which offsets it goes on. It is refused when the table is
elsewhere by then, because another archive has written, so no message gets in twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec

from roquet.model.errors import ConfigError, RoquetError
from roquet.spark.queue_offsets import OffsetsJson, QueueKey, QueueOffsets, from_json, to_json
from roquet.spark.tables.partitioning import archive_columns

FORMAT: Final = 1
"""Of what stands beside the messages: identity, commits, offsets. A newer one is not touched."""


class TableConflict(RoquetError):
    """Somebody else has written to the table meanwhile; what was to be committed is not."""


class TableDamaged(RoquetError):
    """The table lacks what it was given; the text says what."""


class ArchiveIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose archive a table is; written when it is made, and never changed."""

    topic: str
    columns: tuple[str, ...]
    format: int = FORMAT


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file: its name, its day, and what is in it."""

    name: str
    day: str
    rows: int
    size: int
    least: Mapping[str, Any] = {}
    """Of some columns the least value, as the file's own statistics have it."""
    most: Mapping[str, Any] = {}

    @property
    def path(self) -> str:
        """Where it stands in its table."""
        return f"day={self.day}/{self.name}"


class TableCommit(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become part of a table at once."""

    number: int
    attempt: str
    """The directory in which the files wait."""
    before: OffsetsJson
    after: OffsetsJson
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    topic_ids: Mapping[str, str] = {}
    """By broker which topic of that name the offsets after are of (rules.topic_id)."""


class TableState(msgspec.Struct, frozen=True):
    """How far a table has come: its last commit, and the offsets of the next messages."""

    number: int
    offsets: QueueOffsets
    topic_ids: Mapping[str, str] = {}
    """By broker which topic of that name they are of; unknown ones are left out."""

    def then(
        self,
        after: QueueOffsets,
        attempt: str,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        topic_ids: Mapping[str, str] | None = None,
    ) -> TableCommit:
        """The commit that leads on from here; without ids to the same topics."""
        return TableCommit(
            number=self.number + 1,
            attempt=attempt,
            before=to_json(self.offsets),
            after=to_json(after),
            added=tuple(added),
            removed=tuple(removed),
            topic_ids=self.topic_ids if topic_ids is None else topic_ids,
        )


class ArchiveTable(Protocol):
    """A table that is held for one archive."""

    @property
    def identity(self) -> ArchiveIdentity:
        """Whose archive it is."""

    def state(self, queues: Iterable[QueueKey]) -> TableState:
        """How far it has come, in these queues and in all others that it knows of."""

    def begin(self) -> Path:
        """A fresh directory for the files of one attempt; what earlier ones left is gone."""

    def commit(self, commit: TableCommit) -> None:
        """Publish files and offsets, both or none; TableConflict when the table is elsewhere."""

    def files(self) -> Sequence[DataFile]:
        """The files that readers see now."""

    def path(self, file: DataFile) -> Path:
        """Where one of them lies."""

    def close(self) -> None:
        """Let others have it."""

    def __enter__(self) -> Self:
        """Hold it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let others have it."""


def check_base(commit: TableCommit, found: TableState) -> None:
    """TableConflict unless the table is where the commit goes on from."""
    before = from_json(commit.before)
    if found.number != commit.number - 1 or any(
        found.offsets.get(queue) != offset for queue, offset in before.items()
    ):
        raise TableConflict(
            f"the table is at commit {found.number}, not at {commit.number - 1}: another archive "
            "writes to it; nothing was committed. Let one archive run for a table"
        )


def agree_identity(
    wanted: ArchiveIdentity, found: ArchiveIdentity | None, where: object
) -> ArchiveIdentity:
    """Whose archive a table is from now on; ConfigError when it is another one's.

    Who wants no columns gets those that are there.
    """
    if found is None:
        return msgspec.structs.replace(wanted, columns=archive_columns(wanted.columns))
    if found.format > FORMAT:
        raise ConfigError(f"{where} was written by a newer Roquet (format {found.format})")
    if found.topic != wanted.topic:
        raise ConfigError(
            f"{where} is the archive of topic {found.topic!r}, not of {wanted.topic!r}: "
            "give another directory"
        )
    if wanted.columns and found.columns != wanted.columns:
        raise ConfigError(
            f"{where} has the columns {','.join(found.columns)}: ask for these, or for none, "
            "or give another directory"
        )
    return found
