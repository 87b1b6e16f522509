"""Leaving member: a defect of the sync-state set where fewer logs than the whole set are enough.

With `allAckInSyncStateSet=false` a member that holds acknowledged messages leaves the set though
those who stay may lack them, and one of these may be elected alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.testing.simulation.patching import patched


@contextmanager
def leaving_member() -> Iterator[None]:
    """A member leaves the set though those who stay lack what was acknowledged.

    While its leave is asked for, it counts for acknowledgements as before.
    """
    held_by = SyncSet._held_by

    def by_anybody(self: SyncSet, _members: frozenset[int], needed: int) -> int:
        return held_by(self, self.state.acknowledging, needed)

    with (
        patched(SyncSet, "keep_acknowledged", lambda *_: True),
        patched(SyncSet, "_held_by", by_anybody),
    ):
        yield
