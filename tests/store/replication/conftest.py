"""A master's store and a replica's, and bytes that go from one to the other."""

from collections.abc import Iterable, Iterator
from itertools import cycle

from tests.store.conftest import index_all

from roquet.store.store import Store


def frames_of(
    master: Store, position: int, sizes: Iterable[int] = (1 << 20,)
) -> Iterator[tuple[int, bytes]]:
    """Cuts of the master's log from a position on, of these sizes in turn."""
    for size in cycle(sizes):
        data = bytes(master.raw.read(position, size))
        if not data:
            return
        yield position, data
        position += len(data)


def copy_log(master: Store, replica: Store, sizes: Iterable[int] = (1 << 20,)) -> None:
    """Copy all that the replica lacks, and build its queues and its index."""
    start = replica.raw.end or master.raw.begin
    for position, data in frames_of(master, start, sizes):
        replica.raw.append(position, data)
    dispatch_all(replica)


def dispatch_all(store: Store, count_max: int = 1000) -> None:
    """Build queues and index for all whole records of a log."""
    before = -1
    while before < store.raw.dispatched:
        before = store.raw.dispatched
        store.raw.dispatch(count_max)
    index_all(store)
