"""Snapshot commit: a change of an Iceberg table whose files stay until its outcome is known.

pyiceberg deletes the manifests of a change that the catalog refuses. A request whose answer was
lost, and that a library or a gateway has sent again, is refused, too: by its own first one, whose
manifests belong to the table by then.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Transaction


def commit_change(change: "Transaction", is_made: Callable[[], bool]) -> None:
    """Commit a staged change once; raises CommitFailedException for one that was refused.

    Its manifests are deleted then, unless `is_made` says that the table has the change.
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
