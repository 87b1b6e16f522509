"""EpochLog: the epochs of this broker's log, in memory and in their file.

Every change is in the file before it returns: an epoch is noted before its first byte is stored.
"""

from roquet.model.epoch import EpochEntry
from roquet.rules.replication.epochs import (
    EpochExtent,
    Epochs,
    append_epoch,
    drop_expired_epochs,
    extent_at,
    last_epoch,
    truncate_epochs,
)
from roquet.store.replication.epoch_file import EpochFile


class EpochLog:
    """Epochs of one log, the oldest first."""

    def __init__(self, file: EpochFile | None) -> None:
        """Load them; None keeps them in memory. Raises StoreError for a damaged file."""
        self._file = file
        self.entries: Epochs = file.load() if file is not None else ()
        self.latest = last_epoch(self.entries)
        """Latest epoch that this log ever had, also if the bytes of it are gone; -1 for none."""

    def append(self, epoch: int, start: int) -> None:
        """Begin an epoch at a position, the log's end; later than all others. Raises StoreError.

        The first epoch of a log begins where the caller says, not necessarily at its end.
        """
        self._save(append_epoch(self.entries, epoch, start))
        self.latest = max(self.latest, epoch)

    def truncate(self, end: int) -> None:
        """Drop the epochs of a log that is cut at `end`. Raises StoreError."""
        self._save(truncate_epochs(self.entries, end))

    def expire(self, begin: int) -> None:
        """Drop the epochs whose last byte is before the log's begin. Raises StoreError."""
        self._save(drop_expired_epochs(self.entries, begin))

    def extent_at(self, position: int) -> EpochExtent | None:
        """Epoch of the byte at a position; None before the first one."""
        return extent_at(self.entries, position)

    def within(self, end: int) -> Epochs:
        """Epochs that have bytes in a log that ends at `end`, to be compared with a master's.

        A loss of power may have taken the tail of the log and not the note of its epoch.
        """
        return truncate_epochs(self.entries, end)

    def _save(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries != self.entries:
            if self._file is not None:
                self._file.save(entries)
            self.entries = entries
