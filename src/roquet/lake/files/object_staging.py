"""Object staging: files are uploaded to their days at once, and count only if a commit names them.

    s3://BUCKET/TABLE/day=2026-01-31/roquet-….parquet   in the table, or an orphan of a killed run
    s3://BUCKET/TABLE/_roquet/runs/RUN                  exists while a run goes on, or was killed
    s3://BUCKET/TABLE/_roquet/cleaned                   uploaded when orphans were last removed

An object store has neither renames nor locks, and needs none here: names are unique, readers go by
the table's log, and of two archives the commit of one is refused. A commit is not begun for files
that are older than COMMIT_MS_MAX, and only files older than ORPHAN_MS are removed, so no file is
removed that a commit might still name. Ages are by the store's own clock, not by the machines'.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final
from uuid import uuid4

from roquet.lake.files.output_files import OWN_FILE
from roquet.lake.objects.object_location import ObjectDirectory, ObjectLocation
from roquet.lake.objects.object_store import ObjectStore, StoredObject
from roquet.lake.table import DataFile, TableCommit
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.net.clock import SYSTEM_CLOCK, Clock, boottime

log = logger(__name__)

HOUR_MS: Final = 3_600_000

ORPHAN_MS: Final = 24 * HOUR_MS
"""Age from which a file that no version of the table names is an orphan."""

COMMIT_MS_MAX: Final = 12 * HOUR_MS
"""Age up to which files may be committed. The difference is for a commit that is on its way."""

MARK_MS: Final = HOUR_MS
"""How often a run that goes on renews its mark."""

MARK_MS_MAX: Final = ORPHAN_MS + COMMIT_MS_MAX + MARK_MS
"""Age of a mark from which all files of its run are orphans: it was not renewed for MARK_MS, and
the last batch went on uploading for COMMIT_MS_MAX."""

CLEAN_MS: Final = 7 * 24 * HOUR_MS
"""How often a table is cleaned without an old mark: tasks that were repeated leave files, too."""

RUNS: Final = "_roquet/runs"

CLEANED: Final = "_roquet/cleaned"

NOW: Final = "_roquet/now"
"""Uploaded again and again: it tells the store's time."""


class ObjectStaging:
    """The files of one table in an object store, as one run writes them."""

    def __init__(self, location: ObjectLocation, clock: Clock = SYSTEM_CLOCK) -> None:
        self._location = location
        self._store = ObjectStore(location)
        self._mark = f"{RUNS}/{uuid4().hex[:12]}"
        self._marked_ms: int | None = None
        self._begun: dict[str, int] = {}
        self._is_pending = self._has_orphans = False
        self._is_stamped = True
        self._elapsed_ms = boottime(clock)

    def begin(self) -> ObjectDirectory:
        """A new attempt; a mark tells later runs that there may be files of this one."""
        now_ms = self._elapsed_ms()
        if self._marked_ms is None or now_ms - self._marked_ms >= MARK_MS:
            self._store.put(self._mark, b"{}")
            self._marked_ms = now_ms
        if not self._is_stamped:
            self._store.put(CLEANED, b"{}")
            self._is_stamped = True
        name = uuid4().hex[:12]
        self._has_orphans |= self._is_pending
        self._begun, self._is_pending = {name: now_ms}, True
        return ObjectDirectory(self._location, name)

    def publish(self, commit: TableCommit) -> None:
        """Check that the files of a commit are young enough, and still at their places."""
        begun_ms = self._begun.get(commit.attempt)
        if begun_ms is None or self._elapsed_ms() - begun_ms > COMMIT_MS_MAX:
            raise RoquetError(
                f"a batch took more than {COMMIT_MS_MAX // HOUR_MS} hours, so its files may have "
                "been removed; nothing was committed. Set maxOffsetsPerTrigger for smaller ones"
            )
        for file in commit.added:
            if self._store.modified_ms(file.path) is None:
                raise RoquetError(
                    f"{self.address(file)} was removed meanwhile; nothing was committed. Start "
                    "again, and let nothing else remove files of the table"
                )

    def settle(self, number: int) -> None:  # noqa: ARG002 - there is nothing to undo
        """Note that the last attempt was committed.

        Files that no commit names are removed once nobody can name them any more.
        """
        self._is_pending = False

    def has_leftovers(self) -> bool:
        """Whether a run was killed so long ago that its files are orphans, or CLEAN_MS are over."""
        marks, stamps = self._notes()
        self._is_stamped = bool(stamps)
        if not marks and not stamps:
            return False
        now_ms = self._store.now_ms(NOW)
        return bool(_older(marks, now_ms - MARK_MS_MAX) or _older(stamps, now_ms - CLEAN_MS))

    def clean(self, named: Callable[[], Collection[str]]) -> int:
        """Remove the orphans; returns how many.

        `named` gives the paths in all versions of the table. It is called after the files have been
        listed, so that it knows what has been committed meanwhile.
        """
        now_ms = self._store.now_ms(NOW)
        old_ms = now_ms - ORPHAN_MS
        marks = _older(self._notes()[0], now_ms - MARK_MS_MAX)
        old = [
            file.path
            for file in self._store.files()
            if file.modified_ms < old_ms and OWN_FILE.fullmatch(file.path)
        ]
        known = named() if old else ()
        orphans = [path for path in old if path not in known]
        for path in orphans:
            self._store.remove(path)
        for mark in marks:
            self._store.remove(mark)
        self._store.put(CLEANED, b"{}")
        self._is_stamped = True
        if orphans:
            log.info("%s: %s files of killed runs were removed", self._location, len(orphans))
        return len(orphans)

    def address(self, file: DataFile) -> str:
        """The URL of a file."""
        return self._location.file(file.path)

    def close(self) -> None:
        """Remove the run's mark, unless an attempt without a commit may have left files."""
        if self._marked_ms is None or self._is_pending or self._has_orphans:
            return
        try:
            self._store.remove(self._mark)
        except RoquetError as error:
            log.warning("the mark of this run stays: %s", error)

    def _notes(self) -> tuple[list[StoredObject], list[StoredObject]]:
        """The marks of runs, and the stamp of the last cleaning if there is one."""
        files = self._store.files("_roquet")
        marks = [file for file in files if file.path.startswith(f"{RUNS}/")]
        return marks, [file for file in files if file.path == CLEANED]


def _older(files: Iterable[StoredObject], ms: int) -> list[str]:
    """The paths of the files that were uploaded before this time, in ms since 1970."""
    return [file.path for file in files if file.modified_ms < ms]
