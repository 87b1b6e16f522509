"""Staging: where files wait for their commit, hidden from readers, and how they get to their days.

    DIR/_roquet/lock             held by the one archive that writes
    DIR/_roquet/staging/ATTEMPT/ files that no commit has named yet
    DIR/_roquet/intent.json      a commit whose files may lie in their days already
    DIR/day=2026-01-31/          what readers see

Tasks write into the directory of their attempt alone. It goes with the attempt, so what killed or
doubled tasks leave is never seen, and those that live on find no place to write to.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import uuid4

import msgspec

from roquet.model.errors import ConfigError, StoreLocked
from roquet.spark.tables.disk import Disk
from roquet.spark.tables.table import DataFile, TableCommit, TableConflict, TableDamaged
from roquet.store.filesystem.directory_lock import FileLock

HIDDEN: Final = "_roquet"
"""Spark, Delta and Iceberg all pass over names that begin like this."""

KIND_MARKERS: Final[Mapping[str, str]] = MappingProxyType(
    {"parquet": f"{HIDDEN}/archive.json", "delta": "_delta_log", "iceberg": "catalog.db"}
)
"""What is there in a table of each kind, and in no other."""


class Staging:
    """The hidden directory of one table; `days` is where the table's files belong."""

    def __init__(self, root: Path, days: Path, disk: Disk) -> None:
        self.home = root / HIDDEN
        self.days = days
        self.disk = disk
        self._attempts = self.home / "staging"
        self._intent = self.home / "intent.json"
        disk.make(self._attempts)
        try:
            self._lock = FileLock(self.home / "lock", "another archive")
        except StoreLocked:
            raise TableConflict(
                f"another archive writes to {root}: let one run for a table, or give another "
                "directory"
            ) from None
        try:
            for torn in self.home.rglob("*.json.*"):  # a kill came before it got its name
                disk.remove(torn)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Let others have the table."""
        self._lock.release()

    def begin(self) -> Path:
        """The directory of a new attempt, the only one there is."""
        self.sweep()
        attempt = self._attempts / uuid4().hex[:12]
        self.disk.make(attempt)
        return attempt

    def sweep(self) -> None:
        """What attempts have left is gone."""
        for attempt in sorted(self._attempts.iterdir()):
            self.disk.clear(attempt)

    def path(self, file: DataFile) -> Path:
        """Where a file lies that readers see."""
        return self.days / file.path

    def place(self, attempt: str, files: Iterable[DataFile]) -> None:
        """Move files to their days; those that are there already stay."""
        touched = set[Path]()
        for file in files:
            waiting, place = self._attempts / attempt / file.name, self.path(file)
            if waiting.exists():
                self.disk.make(place.parent)
                self.disk.move(waiting, place)
                touched.add(place.parent)
            elif not place.exists():
                raise TableDamaged(f"{place} is neither there nor in {waiting.parent}")
        for directory in touched:
            self.disk.sync(directory)
        if touched:
            self.disk.sync(self.days)

    def is_waiting(self, attempt: str) -> bool:
        """Whether there may be files of an attempt to be placed."""
        return (self._attempts / attempt).is_dir()

    def intend(self, commit: TableCommit) -> None:
        """Note which files will be placed before the commit is made."""
        self.disk.put(self._intent, msgspec.json.encode(commit))

    def settle(self, number: int) -> None:
        """Take back what an earlier commit has placed, unless it was made: the table says so."""
        if not self._intent.exists():
            return
        intent = msgspec.json.decode(self._intent.read_bytes(), type=TableCommit)
        if intent.number > number:
            for file in intent.added:
                self.disk.remove(self.path(file))
        self.disk.remove(self._intent)


def home_of(root: Path) -> Path:
    """Where the hidden directory of a table is."""
    return root / HIDDEN


def check_target(root: Path, kind: str) -> None:
    """ConfigError for a place that holds something else than a table of this kind.

    Whose table it is, if it is one, the table itself knows.
    """
    if not root.exists():
        return
    if not root.is_dir():
        raise ConfigError(f"{root} is a file: give a directory")
    for other, mark in KIND_MARKERS.items():
        if other != kind and (root / mark).exists():
            raise ConfigError(f"{root} holds a table of kind {other}: give another directory")
    marks = (HIDDEN, KIND_MARKERS[kind])
    if not any((root / mark).exists() for mark in marks) and any(root.iterdir()):
        raise ConfigError(f"{root} is not empty and no archive: give another directory")
