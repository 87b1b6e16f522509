"""Logs needed: in how many logs each acknowledged message surely is, as a controller stores it.

    fewer than before            stored before the lease is granted, so before the master acts on it
    more, the whole set, or one  stored once the whole set has what was acknowledged before

So the number covers earlier messages, too, whatever the settings are when somebody is elected. It
holds in one epoch: the winner of an election has every acknowledged message, and whoever joins its
set has them as well. Apache's controller knows nothing of this.
"""

from collections.abc import Iterable

import msgspec

from roquet.rules.election.group import ReplicaGroup
from roquet.rules.election.lease import LeaseRequest

NOTHING_PROMISED = 1
"""Where one log is enough an acknowledged message may be lost with its master; more members do not
change that."""


class StricterRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a master that does not cover yet what was acknowledged before it."""

    epoch: int
    logs_needed: int | None
    end: int
    """End of the log when the rule came: what was acknowledged before is in front of it."""


class LogsNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """Number to store, and the rule that waits to replace it."""

    stored: int | None
    waiting: StricterRule | None = None


def next_logs_needed(
    stored: int | None, request: LeaseRequest, waiting: StricterRule | None
) -> LogsNeeded:
    """The number to store before a lease is granted; None: the whole set, or no promise."""
    said = request.logs_needed
    if said is not None and (request.waits_for_all or said <= NOTHING_PROMISED):
        said = None
    if said == stored or stored is None or (said is not None and said < stored):
        return LogsNeeded(stored=said)
    if waiting is None or (waiting.epoch, waiting.logs_needed) != (request.epoch, said):
        waiting = StricterRule(epoch=request.epoch, logs_needed=said, end=request.end)
    if request.confirmed >= waiting.end:
        return LogsNeeded(stored=said)
    return LogsNeeded(stored=stored, waiting=waiting)


def logs_promised(group: ReplicaGroup, reported: Iterable[int | None]) -> int:
    """In how many logs of the set each acknowledged message is at least.

    A number that is not stored, as by an earlier version, is the smallest that living members
    report; without one all of the set has the messages, or nothing is promised: then it is 1.
    """
    if group.logs_needed is not None:
        return group.logs_needed
    return min((one for one in reported if one is not None), default=NOTHING_PROMISED)
