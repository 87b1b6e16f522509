"""Hall: what all guests of a server may hold together: halves of frames, and untaken answers.

One connection has its own limits. Ten thousand connections within them would still fill a machine.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from roquet.net.fair_share import FairShare
from roquet.net.request_limits import LoopLag, RequestLimit
from roquet.rules.admission import UNSENT_TOTAL_MAX, slow_readers

PARTIAL_FREE: Final = 4 * 1024
"""Bytes of half a frame that every connection may send: most requests are smaller."""

PARTIAL_TOTAL_MAX: Final = 256 * 1024 * 1024
"""Bytes of all larger frames that are under way at one time: 64 of the largest messages. Further
ones wait in their sockets."""

QUEUED_TOTAL_MAX: Final = 64 * 1024 * 1024
"""Bytes that those may have sent whose frames wait for a place: what one read brings, of 256."""

SETTLE_BYTES: Final = 32 * 1024 * 1024
"""Between two looks at what clients have not taken: a hundredth of a second of writing."""


class LimitedConnection(Protocol):
    """A guest, as the hall knows it."""

    @property
    def unsent(self) -> int:
        """Bytes that wait for it."""

    def admit(self) -> None:
        """There is a place for its frame now: read on."""

    def drop(self, reason: str) -> None:
        """End the connection at once."""


class LargeFrameBudget:
    """The frames under way that are too large to be had for nothing."""

    def __init__(self, size_max: int = PARTIAL_TOTAL_MAX) -> None:
        self._size_max = size_max
        self._taken: dict[LimitedConnection, int] = {}
        self._queue: dict[LimitedConnection, tuple[int, int]] = {}
        self.size = 0
        """Bytes of the frames that have a place, as long as they will be."""
        self.queued = 0
        """Bytes that came of the frames that have none."""

    @property
    def are_wanted(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._queue)

    def take(self, guest: LimitedConnection, wanted: int, pending: int) -> bool:
        """A place for a frame of `wanted` bytes, of which some came; False: wait for `admit`."""
        if self._taken.get(guest) == wanted:
            return True
        self.leave(guest)
        if not self._queue and self.size + wanted <= self._size_max:
            self._seat(guest, wanted)
            return True
        if self.queued + pending > QUEUED_TOTAL_MAX:
            guest.drop(f"{len(self._taken)} large frames are under way, and more wait than may")
            return True
        self._queue[guest] = (wanted, pending)
        self.queued += pending
        return False

    def leave(self, guest: LimitedConnection) -> None:
        """Its frame is whole, or will never be."""
        self.size -= self._taken.pop(guest, 0)
        self.queued -= self._queue.pop(guest, (0, 0))[1]
        while self._queue:
            first, (wanted, pending) = next(iter(self._queue.items()))
            if self.size + wanted > self._size_max:
                return
            del self._queue[first]
            self.queued -= pending
            self._seat(first, wanted)
            first.admit()

    def _seat(self, guest: LimitedConnection, wanted: int) -> None:
        self._taken[guest] = wanted
        self.size += wanted


class UnsentBytes:
    """What was written since somebody looked how much of it was taken."""

    __slots__ = ("_limit", "_sizes", "left")

    def __init__(self, sizes: Callable[[], dict[LimitedConnection, int]], limit: int) -> None:
        self._sizes = sizes
        self._limit = limit
        self.left = SETTLE_BYTES
        """Bytes that may be written before the next look."""

    def settle(self) -> None:
        """Drop those who let so much pile up that it is too much for all together."""
        self.left = SETTLE_BYTES
        sizes = self._sizes()
        for guest in slow_readers(sizes, self._limit):
            guest.drop(
                f"{sizes[guest]} bytes wait for it, and more than {self._limit} for all clients"
            )


class ServerLimits:
    """What the guests of one server hold together."""

    def __init__(
        self,
        guests: Collection[LimitedConnection] = (),
        gates: Iterable[RequestLimit] = (),
        *,
        untaken_max: int = UNSENT_TOTAL_MAX,
        share: FairShare | None = None,
    ) -> None:
        self._guests = guests
        self.share = share or FairShare()
        self.places = LargeFrameBudget()
        self.turn = LoopLag(gates)
        self.tally = UnsentBytes(self._untaken, untaken_max)

    def _untaken(self) -> dict[LimitedConnection, int]:
        return {guest: size for guest in self._guests if (size := guest.unsent)}


UNLIMITED: Final = ServerLimits()
"""Where connections are that are nobody's guests: nothing there is looked at."""
