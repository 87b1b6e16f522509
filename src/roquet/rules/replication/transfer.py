"""Transfer: where the stream to a replica begins, how fast it flows, and whose reports count.

A replica reports where its log ends. 0 is an empty log: the stream begins at the start of a file,
since files of both logs have the same size and are named by their positions. Source: Apache
RocketMQ 5.5.0, DefaultHAConnection and AutoSwitchHAConnection.

Of several connections that name one id, the first that reports holds it. Another one that has
caught up gets it once the holder has not for `patience_ms`, or has ended: the protocol proves no
more, so nobody takes the place of a replica that lives.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame


class LogBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of a master's log."""

    first: int
    """Start of the oldest file."""
    end: int
    file_size: int

    @property
    def last_file(self) -> int:
        """Start of the file that holds the end."""
        return self.end - self.end % self.file_size


def is_possible_report(log_end: int, master_end: int) -> bool:
    """Whether a replica of this master can have such a log.

    Apache's master believes every report: a replica of another past counts as in sync, and its
    acknowledgements confirm messages that it does not have (issue 3015 of Apache RocketMQ).
    """
    return 0 <= log_end <= master_end


def transfer_start(log_end: int, bounds: LogBounds, *, from_last_file: bool) -> int | None:
    """Position at which the stream begins after a replica's first report.

    An empty log begins at the last file, always so for masters with a fixed role, or else at the
    oldest one. None: the master no longer has what follows the replica's log, or never had the
    log itself: close the connection.
    """
    if log_end == 0:
        return bounds.last_file if from_last_file else bounds.first
    if not bounds.first <= log_end <= bounds.end:
        return None
    return log_end


SECOND_MS = 1_000


class TransferMeter:
    """Counts the bytes that one connection transfers, by seconds of a monotonic clock."""

    __slots__ = ("_before", "_count", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._count = 0
        self._before = 0

    def add(self, count: int, now_ms: int) -> None:
        """Count bytes that are transferred now."""
        self._turn_to(now_ms)
        self._count += count

    def left(self, per_second_max: int, now_ms: int) -> int:
        """Bytes that may still be transferred in this second."""
        self._turn_to(now_ms)
        return max(per_second_max - self._count, 0)

    def bytes_per_second(self, now_ms: int) -> int:
        """Bytes of the last whole second."""
        self._turn_to(now_ms)
        return self._before

    def _turn_to(self, now_ms: int) -> None:
        second = now_ms // SECOND_MS
        if second != self._second:
            self._before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0


def next_second_ms(now_ms: int) -> int:
    """Milliseconds until the next second begins: 1 to 1,000."""
    return SECOND_MS - now_ms % SECOND_MS


class ReplicaClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Last report of a connection."""

    facts: ReplicaReportFacts
    sent: SentFrame
    """Last frame that it was sent before."""
    caught_up_ms: int | None = None
    """Last time at which it had all of the master's log; None: never."""


def patience_ms(heartbeat_ms: int) -> int:
    """Ms without having caught up after which a replica may be replaced.

    An idle one reports every `heartbeat_ms` (haSendHeartbeatInterval).
    """
    return heartbeat_ms * 3 // 2


def may_replace(holder: ReplicaClaim, claim: ReplicaClaim, now_ms: int, patience_ms: int) -> bool:
    """Whether a connection that has just reported gets the id in place of its holder."""
    if claim.caught_up_ms is None or now_ms - claim.caught_up_ms > patience_ms:
        return False
    return holder.caught_up_ms is None or now_ms - holder.caught_up_ms > patience_ms


def next_holder(claims: Mapping[int, ReplicaClaim]) -> int | None:
    """Connection that gets an id without a holder, the earlier of two; None without any."""

    def order(number: int) -> int:
        time_ms = claims[number].caught_up_ms
        return -1 if time_ms is None else time_ms

    return max(claims, key=order, default=None)


class ConnectionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A connection for which there is no room, perhaps."""

    host: str
    report: int | None
    """Where its log ends; None: it has not reported."""


def most_dispensable(places: Mapping[int, ConnectionPlace]) -> int:
    """Connection to end for a new one, by number: the higher, the newer. There is one at least.

    First those that have not reported, the oldest first, of the host that has the most; then the
    one with the shortest log, of the host that has the most, the newest first.
    """
    crowds = Counter(place.host for place in places.values())

    def order(number: int) -> tuple[int, ...]:
        place = places[number]
        if place.report is None:
            return -1, -crowds[place.host], number
        return place.report, -crowds[place.host], -number

    return min(places, key=order)
