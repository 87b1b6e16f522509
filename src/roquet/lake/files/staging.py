"""Staging: files that wait for their commit, hidden from readers, and their move to their days.

    DIR/_roquet/lock             held by the one archive that writes
    DIR/_roquet/staging/ATTEMPT/ files that no commit names yet
    DIR/_roquet/intent.json      a commit whose files may already be in their days
    DIR/day=2026-01-31/          files that readers see

Tasks write only into the directory of their attempt. It is removed with the attempt: readers never
see files of killed or repeated tasks, and tasks that still run cannot write any more.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import uuid4

import msgspec

from roquet.lake.files.disk import Disk
from roquet.lake.files.output_files import OWN_FILE, PREFIX
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.table import DataFile, StagingArea, TableCommit, TableConflict, TableDamaged
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError, StoreLocked
from roquet.store.filesystem.directory_lock import FileLock

log = logger(__name__)

HIDDEN: Final = "_roquet"
"""The hidden directory: Spark, Delta and Iceberg ignore names that begin with an underscore."""

KIND_MARKERS: Final[Mapping[str, str]] = MappingProxyType(
    {"delta": "_delta_log", "iceberg": "catalog.db"}
)
"""A path that exists in tables of one kind and in no other."""

PARQUET_ARCHIVE: Final = f"{HIDDEN}/archive.json"
"""A file of the directories of Parquet files that archives once filled."""


class Staging:
    """The hidden directory of one table, locked; the table's files are below `days`."""

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
            for torn in self.home.rglob("*.json.*"):  # a kill came before the rename
                disk.remove(torn)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def begin(self) -> Path:
        """A new attempt's directory; those of earlier attempts are removed."""
        self.sweep()
        attempt = self._attempts / uuid4().hex[:12]
        self.disk.make(attempt)
        return attempt

    def sweep(self) -> None:
        """Remove the directories of all attempts."""
        for attempt in sorted(self._attempts.iterdir()):
            self.disk.clear(attempt)

    def publish(self, commit: TableCommit) -> None:
        """Move the files of a commit to their days, and note which ones before that.

        Files that are already there are skipped.
        """
        self.disk.put(self._intent, msgspec.json.encode(commit))
        touched = set[Path]()  # each directory that got an entry, or may have become one
        for file in commit.added:
            staged, target = self._attempts / commit.attempt / file.name, self.days / file.path
            if staged.exists():
                self.disk.make(target.parent)
                self.disk.move(staged, target)
                touched |= {each for each in target.parents if each.is_relative_to(self.days)}
            elif not target.exists():
                raise TableDamaged(f"{target} is missing, and so is {staged}")
        for directory in sorted(touched, reverse=True):
            self.disk.sync(directory)

    def settle(self, number: int) -> None:
        """Undo what was begun beyond the table's last commit, and remove all attempts."""
        if self._intent.exists():
            intent = msgspec.json.decode(self._intent.read_bytes(), type=TableCommit)
            if intent.number > number:
                for file in intent.added:
                    self.disk.remove(self.days / file.path)
            self.disk.remove(self._intent)
        self.sweep()

    def has_leftovers(self) -> bool:
        """False: `settle` has removed them, since only the holder of the lock has attempts."""
        return False

    def clean(self, named: Callable[[], Collection[str]]) -> int:  # noqa: ARG002
        """Nothing: `settle` has done it."""
        return 0

    def address(self, file: DataFile) -> str:
        """The path at which readers see a file."""
        return str(self.days / file.path)


def unnamed_files(root: Path, named: Collection[str], before_ms: int) -> list[Path]:
    """Files of a table's archive that it does not name, written before a time (ms since 1970).

    `named` are paths relative to `root`. A table in a directory below has files of its own, which
    lie deeper than those of this one.
    """
    files = {path.relative_to(root).as_posix(): path for path in root.rglob(f"{PREFIX}*.parquet")}
    return [
        path
        for name, path in sorted(files.items())
        if OWN_FILE.fullmatch(name)
        and name not in named
        and path.stat().st_mtime * 1000 < before_ms
    ]


def clean_if_due(staging: StagingArea, clean: Callable[[], int]) -> None:
    """Remove leftovers of killed runs; an archive without the right to remove goes on."""
    try:
        if staging.has_leftovers():
            clean()
    except RoquetError as error:
        log.warning("leftovers of killed runs stay: %s", error)


def check_target(root: Path, kind: str) -> None:
    """Raise ConfigError unless the path is free or may hold a table of this kind.

    Whether it is the archive of the right topic is checked when it is opened.
    """
    if not root.exists():
        return
    if not root.is_dir():
        raise ConfigError(f"{root} is a file: give a directory")
    check_no_parquet_archive(root)
    for other, mark in KIND_MARKERS.items():
        if other != kind and (root / mark).exists():
            raise ConfigError(f"{root} holds a table of kind {other}: give another directory")
    marks = (HIDDEN, KIND_MARKERS[kind])
    if not any((root / mark).exists() for mark in marks) and any(root.iterdir()):
        raise ConfigError(f"{root} is not empty and no archive: give another directory")


def check_no_parquet_archive(location: TableLocation) -> None:
    """Raise ConfigError for the archive of a kind that no version writes any more."""
    if isinstance(location, Path) and (location / PARQUET_ARCHIVE).exists():
        raise ConfigError(
            f"{location} is an archive of kind parquet, which is no longer written: start a new "
            "Delta archive in a directory beside it. Any reader of Parquet reads the old files, "
            "so do replay, audit and lake query"
        )
