"""Heartbeat term: how long a master may lead under a controller that grants no leases.

    master        heartbeat, request 1004 ├────── term ──────┤ stops by itself
    controller            heartbeat came ├────────── time-out ─────────┤ elects another

Apache's controller elects another master once heartbeats have failed to come for a time that the
master itself names (heartbeatTimeoutMills), and also as soon as the master's connection is closed.
Against the first the term helps: it begins when the heartbeat was sent, and ends before the
time-out. Against the second no clock helps: there only those messages are safe whose
acknowledgement waited for the whole sync-state set, since the next master is one of its members.
"""

from typing import Final

from roquet.rules.election.lease import LeaseTerms, MasterTerm

HEARTBEAT_TIMEOUT_MS: Final = 10_000
"""Default time-out that brokers name (controllerHeartBeatTimeoutMills)."""

SCHEDULING_MS: Final = 500
"""Time that the controller may take the heartbeat for earlier than it was sent: it notes the time
at which its thread handles it, so this only covers clocks that are read in steps."""


def term_by_heartbeat(epoch: int, sent_ms: int, timeout_ms: int, terms: LeaseTerms) -> MasterTerm:
    """Term of a master that the controller confirmed after a heartbeat sent at `sent_ms`.

    The confirmation is an answer to a request on the same connection, later than the heartbeat,
    which names the master and this epoch. `terms` say how much the clocks may drift.
    """
    slow, fast = 1_000 - terms.drift_per_mille, 1_000 + terms.drift_per_mille
    length_ms = max(timeout_ms - SCHEDULING_MS, 0) * slow // fast
    return MasterTerm(epoch=epoch, until_ms=sent_ms + length_ms)
