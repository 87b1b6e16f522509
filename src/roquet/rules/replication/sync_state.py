"""Sync state: which replicas are in sync with their master, by lag in bytes or in time.

    fixed roles    in sync while the lag is below haMaxGapNotInSync bytes
    controller     a set of ids with a version, changed by the controller only

A master asks for one change of the set at a time (request 1001). Until the answer is known both the
old and the new members have to acknowledge: the controller may have made the change. Source: Apache
RocketMQ 5.5.0, DefaultHAService and AutoSwitchHAService. Apache's master shrinks its own set before
the controller has agreed, and then acknowledges messages that nobody else has.
"""

from collections.abc import Collection, Mapping

import msgspec


def in_sync_count(end: int, reports: Collection[int], gap_max: int) -> int:
    """Number of logs in sync by bytes, the master's among them, from the replicas' last reports."""
    return 1 + sum(end - report < gap_max for report in reports)


class SyncState(msgspec.Struct, frozen=True, kw_only=True):
    """Sync-state set as its master knows it."""

    members: frozenset[int]
    """Broker ids; the master's own is among them."""
    version: int
    """Number of changes (Java's syncStateSetEpoch)."""
    proposed: frozenset[int] | None = None
    """Members asked for in a request whose result is not known."""

    @property
    def acknowledging(self) -> frozenset[int]:
        """Members whose logs have to hold a message before it is confirmed."""
        return self.members | (self.proposed or frozenset())

    @property
    def size_min(self) -> int:
        """Number of members at least, whether the change that is asked for was made or not."""
        proposed = self.members if self.proposed is None else self.proposed
        return min(len(self.members), len(proposed))

    def propose(self, members: frozenset[int]) -> "SyncState":
        """State once a change is asked for; the request has this state's version."""
        assert self.proposed is None, "the result of one change comes before the next"
        return msgspec.structs.replace(self, proposed=members)

    def adopt(self, members: frozenset[int], version: int) -> "SyncState":
        """State after the controller said what the set is; an older version changes nothing.

        A set of the known version does not end a proposal: its request may still be on its way.
        """
        if version <= self.version:
            return self
        return SyncState(members=members, version=version)

    def withdraw(self) -> "SyncState":
        """State after the controller refused the change; a lost answer is no refusal."""
        return msgspec.structs.replace(self, proposed=None)


class SentFrame(msgspec.Struct, frozen=True):
    """Last frame that was sent to a replica."""

    master_end: int
    """Where the master's log ended then."""
    sent_ms: int


def caught_up_ms(report: int, end: int, last: SentFrame, now_ms: int) -> int | None:
    """Time at which a replica had all of the master's log, from its report; None: not known.

    It had all there was when the last frame was sent, or even has all there is.
    """
    if report < last.master_end:
        return None
    return now_ms if report == end else last.sent_ms


class ReplicaReportFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a replica that has just reported."""

    broker_id: int
    report: int
    is_learner: bool = False


def may_join(
    replica: ReplicaReportFacts, state: SyncState, *, confirmed: int, epoch_start: int
) -> bool:
    """Whether a replica that has caught up is to be proposed for the set.

    It has every confirmed message, and has followed this master's own epoch.
    """
    if replica.is_learner or replica.broker_id in state.acknowledging:
        return False
    return replica.report >= max(confirmed, epoch_start)


def can_be_replaced(
    state: SyncState, master: int, reports: Mapping[int, int], *, needed: int, acknowledged: int
) -> bool:
    """Whether another member can be elected in place of the master, with all that was acknowledged.

    `reports` are those of connected replicas; `needed` is the number of logs that have to hold a
    message, ≤ 1 when only the whole set counts. The controller compares so many members
    that one of them has each acknowledged message (`rules.election.elect`).
    """
    sets = {state.members, state.proposed or state.members}
    return all(
        _has_successor(members - {master}, reports, needed, acknowledged) for members in sets
    )


def _has_successor(
    others: frozenset[int], reports: Mapping[int, int], needed: int, acknowledged: int
) -> bool:
    connected = [reports[one] for one in others if one in reports]
    compared = len(others) + 2 - needed if needed > 1 else 1
    return len(connected) >= compared and max(connected, default=-1) >= acknowledged


def members_in_time(
    state: SyncState, master: int, caught_up: Mapping[int, int], oldest_ms: int
) -> frozenset[int]:
    """Members that caught up at `oldest_ms` or later, by broker id, and the master itself.

    If these are not all members, the master proposes them. A member that never connected has no
    time. Apache's broker allows 15 s (haMaxTimeSlaveNotCatchup).
    """
    return frozenset(
        member
        for member in state.members
        if member == master or caught_up.get(member, oldest_ms - 1) >= oldest_ms
    )
