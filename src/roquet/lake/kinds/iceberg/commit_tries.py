"""Commit tries: how often a change that a catalog refused is tried again.

A change is refused when another one came first, and by a Hive metastore also while another writer
holds the table's lock. A writer that was killed leaves its lock behind.
"""

from typing import Final

from roquet.lake.table import TableConflict

CONFLICTS_MAX: Final = 20
"""Refusals of one change because other writers committed theirs."""

LOCKED_MAX: Final = 40
"""Refusals of one change because of a lock, each after 14 s unless options of the catalog differ.

Together nine minutes: by default a metastore looks every 3 minutes for locks without a sign of life
for 5 minutes, and ends those.
"""


class CommitTries:
    """Counts refusals of one change of the table `where`; `unchanged` says what was not done."""

    def __init__(self, where: str, unchanged: str) -> None:
        self._where, self._unchanged = where, unchanged
        self._conflicts = self._locked = 0

    def refused(self, error: Exception) -> None:
        """Count a refusal; raises TableConflict for the last one."""
        if is_locked(error):
            self._locked += 1
        else:
            self._conflicts += 1
        if self._locked >= LOCKED_MAX:
            raise TableConflict(
                f"another writer held the lock of {self._where} in its Hive metastore in all of "
                f"{self._locked} tries; {self._unchanged}. A writer that was killed leaves its "
                "lock, until the metastore's housekeeping ends it (metastore.txn.timeout, 5 "
                "minutes unless set; in Hive 4 with metastore.housekeeping.threads.on): start "
                "again then. SHOW LOCKS names the owner"
            ) from error
        if self._conflicts >= CONFLICTS_MAX:
            raise TableConflict(
                f"other writers changed {self._where} {self._conflicts} times in a row; "
                f"{self._unchanged}"
            ) from error


def is_locked(error: Exception) -> bool:
    """Whether a change was refused because another writer kept a lock."""
    from pyiceberg.exceptions import WaitingForLockException

    return isinstance(error.__cause__, WaitingForLockException)
