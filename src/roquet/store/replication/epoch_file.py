"""EpochFile: the epochs of a replicated log, kept in epochFileCheckpoint and its `.bak`.

Apache's broker copies the file to `.bak` and then overwrites it in place, and never writes an empty
list: a log that was cut to its beginning gets its old epochs back at the next start. Here both have
the same epochs, the copy first: without its last one, bytes that only this broker has would look
like those of the epoch before. An empty list is a file (`0`, `0`), without a `.bak`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.model.epoch import EpochEntry
from roquet.model.errors import FieldError, StoreError
from roquet.store.filesystem.files import Files, RealFiles, read_if_exists
from roquet.wire.replication.epoch_file import decode_epoch_file, encode_epoch_file

log = logger(__name__)

FILE_NAME: Final = "epochFileCheckpoint"


class EpochFile:
    """One epoch file. It is the setting storePathEpochFile, in the store's directory by default."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._files = files or RealFiles()

    def load(self) -> tuple[EpochEntry, ...]:
        """The epochs; none if there is no file. A damaged file is replaced by its `.bak`.

        Raises StoreError if that is damaged or missing, too.
        """
        try:
            found = self._read(self.path)
        except FieldError as error:
            return self._load_backup(error)
        if found is None and (found := self._read_backup()) is not None:
            log.warning("%s is missing: its copy %s is taken", self.path, self._backup)
        return found or ()

    def save(self, entries: Sequence[EpochEntry]) -> None:
        """Replace the epochs and their `.bak`, durably. Raises StoreError."""
        data = encode_epoch_file(entries)
        if entries:
            self._files.replace(self._backup, data)
        self._files.replace(self.path, data)
        if not entries:  # else Apache's broker would take the old ones
            self._files.remove(self._backup)

    def _load_backup(self, damage: FieldError) -> tuple[EpochEntry, ...]:
        found = self._read_backup()
        if found is None:
            raise StoreError(
                f"{self.path} cannot be read ({damage}), nor can its copy {self._backup.name}:"
                " restore one of them; or, to copy the whole log from the master again, remove"
                " the broker's store directory"
            )
        log.warning("%s is damaged (%s): its copy %s is taken", self.path, damage, self._backup)
        return found

    def _read_backup(self) -> tuple[EpochEntry, ...] | None:
        try:
            return self._read(self._backup)
        except FieldError as error:
            log.warning("%s is damaged: %s", self._backup, error)
            return None

    def _read(self, path: Path) -> tuple[EpochEntry, ...] | None:
        data = read_if_exists(self._files, path)
        return None if data is None else decode_epoch_file(data)
