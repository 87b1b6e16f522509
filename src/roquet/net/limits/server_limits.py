"""Server limits: memory that all connections of a server may hold together.

That is partial frames and unsent replies. Each connection has limits of its own, but ten thousand
connections within them would still fill a machine.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from roquet.net.limits.fair_share import FairShare
from roquet.net.limits.request_limits import LoopLag, RequestLimit
from roquet.rules.admission import UNSENT_TOTAL_MAX, slow_readers

PARTIAL_FREE: Final = 4 * 1024
"""Bytes of a partial frame that every connection may hold: most requests are smaller."""

PARTIAL_TOTAL_MAX: Final = 256 * 1024 * 1024
"""Bytes of all larger frames that are received at one time: 64 of the largest messages. Further
ones wait in their sockets."""

QUEUED_TOTAL_MAX: Final = 64 * 1024 * 1024
"""Bytes received of frames that wait for budget: one read each of 256 connections."""

SETTLE_BYTES: Final = 32 * 1024 * 1024
"""Bytes written between two checks of the unsent replies: a hundredth of a second of writing."""


class LimitedConnection(Protocol):
    """A connection, as the limits know it."""

    @property
    def unsent(self) -> int:
        """Bytes of replies that it has not read."""

    def admit(self) -> None:
        """Read on: the budget has room for its frame now."""

    def drop(self, reason: str) -> None:
        """Abort the connection."""


class LargeFrameBudget:
    """A budget for frames that are being received and are larger than PARTIAL_FREE."""

    def __init__(self, size_max: int = PARTIAL_TOTAL_MAX) -> None:
        self.size_max = size_max
        """Limit of the admitted bytes."""
        self._taken: dict[LimitedConnection, int] = {}
        self._queue: dict[LimitedConnection, tuple[int, int]] = {}
        self.size = 0
        """Bytes of the admitted frames, counted at their full length."""
        self.queued = 0
        """Bytes received of the frames that wait."""

    @property
    def has_waiting(self) -> bool:
        """Whether a connection waits."""
        return bool(self._queue)

    def take(self, connection: LimitedConnection, wanted: int, pending: int) -> bool:
        """Reserve `wanted` bytes for a frame of which `pending` came; False: wait for `admit`."""
        if self._taken.get(connection) == wanted:
            return True
        self.leave(connection)
        if not self._queue and self.size + wanted <= self.size_max:
            self._reserve(connection, wanted)
            return True
        if self.queued + pending > QUEUED_TOTAL_MAX:
            connection.drop(
                f"{len(self._taken)} large frames are under way, and more wait than may"
            )
            return True
        self._queue[connection] = (wanted, pending)
        self.queued += pending
        return False

    def leave(self, connection: LimitedConnection) -> None:
        """Release what a connection holds: its frame is complete, or never will be."""
        self.size -= self._taken.pop(connection, 0)
        self.queued -= self._queue.pop(connection, (0, 0))[1]
        while self._queue:
            first, (wanted, pending) = next(iter(self._queue.items()))
            if self.size + wanted > self.size_max:
                return
            del self._queue[first]
            self.queued -= pending
            self._reserve(first, wanted)
            first.admit()

    def _reserve(self, connection: LimitedConnection, wanted: int) -> None:
        self._taken[connection] = wanted
        self.size += wanted


class UnsentBytes:
    """Counts written bytes, and drops slow readers when too many of them are unsent."""

    __slots__ = ("_sizes", "left", "limit")

    def __init__(self, sizes: Callable[[], dict[LimitedConnection, int]], limit: int) -> None:
        self._sizes = sizes
        self.limit = limit
        """Limit of the unsent bytes of all connections."""
        self.left = SETTLE_BYTES
        """Bytes that may be written before the next check."""

    def settle(self) -> None:
        """Drop the slowest readers until all unsent bytes are within the limit."""
        self.left = SETTLE_BYTES
        sizes = self._sizes()
        for connection in slow_readers(sizes, self.limit):
            connection.drop(
                f"{sizes[connection]} bytes wait for it, and more than {self.limit} for all clients"
            )


class ServerLimits:
    """The limits that the connections of one server share."""

    def __init__(
        self,
        connections: Collection[LimitedConnection] = (),
        gates: Iterable[RequestLimit] = (),
        *,
        untaken_max: int = UNSENT_TOTAL_MAX,
        share: FairShare | None = None,
    ) -> None:
        self._connections = connections
        self.share = share or FairShare()
        self.large_frames = LargeFrameBudget()
        self.turn = LoopLag(gates)
        self.tally = UnsentBytes(self._untaken, untaken_max)

    def _untaken(self) -> dict[LimitedConnection, int]:
        return {connection: size for connection in self._connections if (size := connection.unsent)}


UNLIMITED: Final = ServerLimits()
"""For connections of clients: nothing is limited."""
