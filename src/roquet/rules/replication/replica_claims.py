"""Replica claims: which of several connections is the replica whose id they all name.

    a handshake                          claims nothing: whoever reaches the port can send one
    the first connection that reports    holds the id
    another one that has caught up       gets it once the holder has not, for `patience_ms`
    the holder has ended                 the one that caught up last gets it

The protocol of Apache's replicas proves no more: a replica names its id and where its log ends. So
nobody takes the place of a replica that lives; and one whose connection is dead, which its master
may not notice for haHousekeepingInterval, waits no longer for its place than an idle replica is
silent.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame


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
