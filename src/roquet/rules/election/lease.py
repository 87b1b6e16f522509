"""Lease: how long a master may acknowledge without news of the controller, and in how many logs.

    master        asks ├────── length ──────┤ stops by itself
    controller           ├ grants ── length and the clocks' drift ──┤ may elect another

Both measure on monotonic clocks of their own, whose rates differ from true time by a bounded
fraction. The master counts from before it asked, the controller from after it was asked, so
however slow the network is, the master has stopped when the controller's wait is over. Clocks have
to count while their machine sleeps (CLOCK_BOOTTIME on Linux). A controller grants only while it
certainly leads: its store has confirmed that after the request came.

Where acknowledgements wait for the whole set, a member may be elected before the lease is over: it
has all that was acknowledged, and as soon as it follows no master, nothing more is. Apache's
controller has no leases: a master that was suspended acknowledges messages after it was replaced,
and they are lost. Under it a master leads for a term from each heartbeat, which ends before the
time-out that the master itself names (heartbeatTimeoutMills). Against an election because its
connection was closed no clock helps: then only those messages are safe whose acknowledgement waited
for the whole set.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from roquet.rules.election.group import Refusal, RefusalCode, ReplicaGroup

LENGTH_MS: Final = 2_000
"""Default length: two heartbeats may be lost, and a frozen master is replaced soon after."""

DRIFT_PER_MILLE: Final = 10
"""Bound of a clock's error in rate; NTP corrects clocks by up to 0.5 per mille, virtual machines
may be worse."""


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of leases, the same for controller and brokers."""

    length_ms: int = LENGTH_MS
    drift_per_mille: int = DRIFT_PER_MILLE

    @property
    def wait_ms(self) -> int:
        """Time on the controller's clock in which `length_ms` pass on any master's clock.

        One more for times that are rounded down to a millisecond.
        """
        fast, slow = 1_000 + self.drift_per_mille, 1_000 - self.drift_per_mille
        return -(-self.length_ms * fast // slow) + 1


class MasterLease(msgspec.Struct, frozen=True, kw_only=True):
    """Lease as a controller remembers it; never stored, since clocks start anew."""

    holder: int | None
    """None: this controller has not granted it, and does not know to whom."""
    address: str = ""
    """Where the holder is: a process elsewhere that has its id does not hold the lease."""
    until_ms: int
    """Time on the controller's clock at which the holder has certainly stopped."""
    waits_for_all: bool = False
    """Whether the holder acknowledges only what its whole set has."""


class MasterTerm(msgspec.Struct, frozen=True, kw_only=True):
    """Lease as a master knows it."""

    epoch: int
    until_ms: int
    """Time on the master's clock."""

    def may_acknowledge(self, epoch: int, now_ms: int) -> bool:
        """Whether the master of an epoch may say that a message is stored, at this moment."""
        return epoch == self.epoch and now_ms < self.until_ms


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A master asks for its lease, or for a longer one."""

    broker_id: int
    address: str
    """Where it is."""
    epoch: int
    waits_for_all: bool = False
    """Every acknowledgement in this epoch has waited and will wait for the whole set. A master asks
    without it, and is granted that, before it acts otherwise."""
    logs_needed: int | None = None
    """Number of logs in which a message is before this master acknowledges it, by its settings;
    None: in those of the whole set, or not said."""
    end: int = 0
    """Position at which its log ends."""
    confirmed: int = 0
    """Position up to which the whole set has its log."""


def granted_term(epoch: int, asked_ms: int, terms: LeaseTerms) -> MasterTerm:
    """Term of a master whose request, sent at `asked_ms` on its clock, was granted."""
    return MasterTerm(epoch=epoch, until_ms=asked_ms + terms.length_ms)


def grant_lease(
    group: ReplicaGroup,
    lease: MasterLease | None,
    request: LeaseRequest,
    now_ms: int,
    terms: LeaseTerms,
) -> MasterLease | Refusal:
    """Grant a lease to the group's master of its current epoch, and to nobody else.

    A process that runs in a copy of the master's directory has its id, and another address.
    """
    if request.broker_id != group.master:
        remark = f"the current master is {group.master}, not {request.broker_id}"
        return Refusal(RefusalCode.INVALID_MASTER, remark)
    if request.epoch != group.master_epoch:
        remark = f"the current master epoch is {group.master_epoch}, not {request.epoch}"
        return Refusal(RefusalCode.FENCED_MASTER_EPOCH, remark)
    if request.address != group.master_address:
        remark = f"the current master is at {group.master_address}, not at {request.address}"
        return Refusal(RefusalCode.INVALID_MASTER, remark)
    until_ms = now_ms + terms.wait_ms
    if lease is not None:  # of a master before, that an early election has replaced
        until_ms = max(until_ms, lease.until_ms)
    return MasterLease(
        holder=group.master,
        address=request.address,
        until_ms=until_ms,
        waits_for_all=request.waits_for_all,
    )


def assumed_lease(now_ms: int, terms: LeaseTerms) -> MasterLease:
    """Lease that a controller assumes as it begins to lead: others may have granted it just now."""
    return MasterLease(holder=None, until_ms=now_ms + terms.wait_ms)


def released_lease(lease: MasterLease, broker_id: int, address: str, now_ms: int) -> MasterLease:
    """Lease after its holder said that it acknowledges no more in this epoch."""
    if (lease.holder, lease.address) != (broker_id, address):
        return lease
    return msgspec.structs.replace(lease, until_ms=min(lease.until_ms, now_ms))


def may_replace_master(
    group: ReplicaGroup, lease: MasterLease | None, winner: int, now_ms: int
) -> bool:
    """Whether a broker may be elected now; no lease: the master never asked for one.

    Before the lease is over, the winner has to be a member for which the master waits.
    """
    if lease is None or now_ms >= lease.until_ms:
        return True
    if lease.holder == winner:  # or a process elsewhere, which may lack what the holder has
        return lease.address == group.replicas[winner].address
    return lease.waits_for_all and winner in group.in_sync and lease.holder in group.in_sync


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
    """Number of logs in which each acknowledged message surely is, and the rule that waits.

    A smaller number is stored before the lease is granted, so before the master acts on it; a
    larger one, the whole set or one log once the whole set has what was acknowledged before. So it
    covers earlier messages, too. It holds in one epoch: the winner of an election has every
    acknowledged message. Apache's controller knows nothing of this.
    """

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
