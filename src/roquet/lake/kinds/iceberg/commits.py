"""Commits of an Iceberg table: tried again, with files that stay until the outcome is known.

A change is refused when another one came first, and by a Hive metastore also while another writer
holds the table's lock. A writer that was killed leaves its lock behind.

Offsets are a property of the table, which stays as it is when an engine sets the table back to an
older snapshot: the rows between the two would be missing for ever. Snapshots of ours that moved no
offset, as after days were removed or files merged, may be undone.

    1 ─── 2 ─── 3 ─── 4     ours: 3 the last one at offset 30, 4 merged its files; 3 is as good
          └──── 5           of another engine, after a rollback to 2: offsets 20 to 30 are not in it
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from roquet.lake.table import TableConflict
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table import Transaction
    from pyiceberg.table.snapshots import Snapshot

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


def commit_change(change: "Transaction", is_made: Callable[[], bool]) -> None:
    """Commit a staged change once; raises CommitFailedException for one that was refused.

    Its manifests are deleted then, unless `is_made` says that the table has the change: a request
    whose answer was lost, and that a library or a gateway has sent again, is refused by its own
    first one, whose manifests belong to the table by then.
    """
    from pyiceberg.exceptions import CommitFailedException

    producers = [*change._snapshot_producers]
    change._snapshot_producers.clear()  # pyiceberg deletes files of those alone, and retries those
    try:
        change.commit_transaction()
    except CommitFailedException:
        if not is_made():
            for producer in producers:
                producer._clean_all_uncommitted()
        raise


def check_lineage(table: "IceTable", whole: Sequence["Snapshot"], where: object) -> None:
    """Raise ConfigError when the table was set back to a snapshot before all of `whole`.

    These are the snapshots of ours that end at the table's offsets, the newest last. Nothing is
    known where snapshots in between have expired, or these have (empty).
    """
    from pyiceberg.table.snapshots import ancestors_of

    if not whole:
        return
    last, known = whole[-1].snapshot_id, {each.snapshot_id for each in whole}
    oldest = min(each.sequence_number or 0 for each in whole)
    current = table.current_snapshot()
    if current is None:
        raise ConfigError(_text(where, "no snapshot", last))
    for each in ancestors_of(current, table.metadata):
        if each.snapshot_id in known:
            return
        if each.sequence_number is not None and each.sequence_number < oldest:
            raise ConfigError(_text(where, f"snapshot {each.snapshot_id}", last))


def _text(where: object, found: str, last: int) -> str:
    return (
        f"{where} was set back to {found}, from before the archive's last one ({last}), so rows up "
        "to its offsets are missing: set it to that one again, or archive to another place"
    )
