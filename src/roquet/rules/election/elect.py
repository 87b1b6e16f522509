"""Election of a group's master: among members of the sync-state set, by epoch, position, priority.

    a group without a set         whoever asks: it never had a master, or was removed
    brokers of a later epoch      nobody: the state is older than the brokers
    the master is alive           it stays, unless an operator names another one
    members of the set alive      the named one if it has all that the others have, or the best one,
                                  as soon as there are enough to compare
    none alive                    nobody; if an operator accepts losses, the best of all that do
                                  not only learn

The winner leads in the next epoch, with a set of its own alone. Source: Apache RocketMQ 5.5.0,
ReplicasInfoManager.electMaster and DefaultElectPolicy. Apache's controller compares positions by a
difference of 32 bits, so that a lead of 2 to 4 GiB loses.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.rules.election.group import Refusal, RefusalCode, ReplicaGroup, with_set
from roquet.rules.election.lease import (
    NOTHING_PROMISED,
    MasterLease,
    logs_promised,
    may_replace_master,
)

PRIORITY_DEFAULT: Final = 2**31 - 1
"""Of brokers that name none (brokerElectionPriority); lower wins."""


SILENT_MS: Final = 3_000
"""Ms since a heartbeat after which another candidate is preferred: they come every second."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Last heartbeat of a broker that is alive."""

    epoch: int
    """Last epoch of its log."""
    end: int
    """Position of its log's end."""
    priority: int = PRIORITY_DEFAULT
    heard_ms: int | None = None
    """Time of the heartbeat on the clock of the lease; None counts as late enough."""
    is_learner: bool = False
    """Whether it only learns (asyncLearner): outside the set only an operator elects it by name."""
    logs_needed: int | None = None
    """Number of logs in which a message is before a master acknowledges it, by this broker's
    settings; None: in those of the whole set, or, as by Apache's brokers, not said."""


class ElectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asks for an election."""

    asker: int | None = None
    """Broker that asks or, if `designated`, that is to be elected; None: the controller itself."""
    designated: bool = False
    """Elect `asker` or nobody."""
    restarted: bool = False
    """The asker has been started again. If it was the master, its log may lack what had not reached
    its disk: it stays only if no other member has more, and its lease has to be released before.
    Apache's controller lets it go on."""
    unclean: bool = False
    """Elect somebody outside the set, or one of too few members, rather than nobody, although
    acknowledged messages are lost (enableElectUncleanMaster)."""
    epoch: int = 0
    """Latest epoch that the asker tells of, of its log or one that it obeys; 0: none."""


class ElectionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the group's brokers at the moment of an election."""

    live: Mapping[int, Candidate]
    """Brokers that are alive."""
    lease: MasterLease | None
    now_ms: int
    """Time on the clock of the lease."""
    epoch_known: int = 0
    """Latest epoch that the controller has heard of, from any broker of the group's name."""


class ElectionResult(msgspec.Struct, frozen=True, kw_only=True):
    """State after an election, to be stored if it differs."""

    group: ReplicaGroup
    refusal: Refusal | None = None
    """Why nobody new was elected; MASTER_STILL_EXIST answers with the group's master."""
    is_unclean: bool = False
    """The winner was outside the set, or compared with too few: it may lack messages that were
    acknowledged."""
    missing: int = 0
    """Further members of the set that have to be alive before one of them is elected."""
    retry_ms: int | None = None
    """Time on the clock of the lease from which the election may succeed; None: not by waiting."""


def election_reason(before: ReplicaGroup, request: ElectionRequest) -> str:
    """Why a group has another master, or the same one in another epoch, for the log."""
    if request.designated:
        return "an operator named it"
    if before.master is None:
        return "nobody led"
    if request.asker == before.master:
        return "it led before, and asked for another epoch"
    if request.restarted:
        return f"broker {before.master} led before, and {request.asker} was started again"
    return f"broker {before.master} led before, and is not heard of"


def elect(group: ReplicaGroup, request: ElectionRequest, facts: ElectionFacts) -> ElectionResult:
    """Elect a master.

    If the controller itself asked in vain, the group has no master from now on, its set stays, and
    so only a member of it can be elected later. While the lease runs the master keeps its place: a
    controller that has just been started has not heard of it yet.

    Where acknowledgements do not wait for the whole set, members are compared by heartbeats that
    came after the end of the lease: an earlier one may be from before the last message that was
    acknowledged. And so many are compared that one of them has every acknowledged message, also
    where an operator names a broker: a controller that has just begun to lead has not heard of all
    that live. Apache's controller elects whichever member is alive.
    """
    if (epoch_known := max(facts.epoch_known, request.epoch)) > group.master_epoch:
        return _outdated(group, epoch_known)
    if not group.in_sync:
        return _first_election(group, request, facts)
    winner, is_unclean = _best(group, request, facts, group.in_sync), False
    if winner is None and request.unclean:
        winner = _best(group, request, facts, group.replicas)
        is_unclean = winner is not None
    if winner is None:
        return _nobody(group, request, facts)
    if winner == group.master and not _has_restarted(group, request):
        remark = f"The old master {winner} is still alive"
        return ElectionResult(group=group, refusal=Refusal(RefusalCode.MASTER_STILL_EXIST, remark))
    if (premature := _premature(group, request, facts, winner)) is not None:
        return premature
    is_unclean = is_unclean or _missing(group, facts) > 0 or _is_behind(group, facts, winner)
    return ElectionResult(group=_led_by(group, winner), is_unclean=is_unclean)


def needs_election(group: ReplicaGroup, live: Collection[int]) -> bool:
    """Whether the master is dead while another broker is alive."""
    return (
        group.master is not None
        and group.master not in live
        and any(broker_id in live for broker_id in group.replicas)
    )


def _outdated(group: ReplicaGroup, epoch: int) -> ElectionResult:
    remark = (
        f"brokers of this name are in epoch {epoch}, the controller's state in epoch"
        f" {group.master_epoch}: the state was lost or is old; restore it, or clean the group"
    )
    return ElectionResult(group=group, refusal=Refusal(RefusalCode.ELECT_MASTER_FAILED, remark))


def _too_early(group: ReplicaGroup, lease: MasterLease | None) -> ElectionResult:
    remark = "Failed to elect a new master: the old one may still acknowledge messages"
    return ElectionResult(
        group=group,
        refusal=Refusal(RefusalCode.ELECT_MASTER_FAILED, remark),
        retry_ms=lease.until_ms if lease else None,
    )


def _premature(
    group: ReplicaGroup, request: ElectionRequest, facts: ElectionFacts, winner: int
) -> ElectionResult | None:
    """The result as long as a winner may not lead yet; None: now it may."""
    needs_comparison = not request.designated or (
        not request.unclean and _may_lack_messages(group, facts)
    )
    is_certain = not needs_comparison or _are_comparable(group, facts)
    if not is_certain or not may_replace_master(group, facts.lease, winner, facts.now_ms):
        return _too_early(group, facts.lease)
    if request.unclean:
        return None
    if missing := _missing(group, facts):
        return _too_few(group, facts.now_ms, missing)
    is_compared = request.designated and needs_comparison
    return _behind(group, facts, winner) if is_compared else None


def _may_lack_messages(group: ReplicaGroup, facts: ElectionFacts) -> bool:
    """Whether a member of the set may lack acknowledged messages.

    While nothing is known of the lease, which a controller has assumed or no master asked for, the
    number of logs says it; Apache's brokers name none.
    """
    lease = facts.lease
    if lease is not None and lease.holder is not None:
        return not lease.waits_for_all
    return _logs_promised(group, facts) > NOTHING_PROMISED


def _behind(group: ReplicaGroup, facts: ElectionFacts, winner: int) -> ElectionResult | None:
    """The refusal of a named broker that has less than another living member; None: it has all."""
    live, own = facts.live, facts.live[winner]
    others = [one for one in group.in_sync if one in live and one != winner]
    ahead = max(others, key=lambda one: (live[one].epoch, live[one].end), default=winner)
    if (live[ahead].epoch, live[ahead].end) <= (own.epoch, own.end):
        return None
    remark = (
        f"Failed to elect a new master: broker {winner} lacks messages that broker {ahead} has;"
        " wait until it has them, or elect it even so as unclean"
    )
    refusal = Refusal(RefusalCode.ELECT_MASTER_FAILED, remark)
    return ElectionResult(group=group, refusal=refusal, retry_ms=facts.now_ms)


def _is_behind(group: ReplicaGroup, facts: ElectionFacts, winner: int) -> bool:
    """Whether a winner lacks what was acknowledged perhaps: only an operator elects such a one."""
    return _may_lack_messages(group, facts) and _behind(group, facts, winner) is not None


def _logs_promised(group: ReplicaGroup, facts: ElectionFacts) -> int:
    members = [facts.live[one] for one in group.in_sync if one in facts.live]
    return logs_promised(group, (one.logs_needed for one in members))


def _are_comparable(group: ReplicaGroup, facts: ElectionFacts) -> bool:
    """Whether heartbeats say which member has the most of what was acknowledged."""
    lease = facts.lease
    if lease is None or lease.waits_for_all:
        return True
    members = [facts.live[one] for one in group.in_sync if one in facts.live]
    return all(one.heard_ms is None or one.heard_ms >= lease.until_ms for one in members)


def _missing(group: ReplicaGroup, facts: ElectionFacts) -> int:
    """How many more members have to be alive, so that one has each acknowledged message.

    Of n members, any n - k + 1 include one of those k that have it. Where one log is enough nothing
    is promised.
    """
    needed = _logs_promised(group, facts)
    if needed <= NOTHING_PROMISED:
        return 0
    alive = sum(one in facts.live for one in group.in_sync)
    return max(len(group.in_sync) - needed + 1 - alive, 0)


def _too_few(group: ReplicaGroup, now_ms: int, missing: int) -> ElectionResult:
    remark = (
        f"Failed to elect a new master: {missing} more of the set {sorted(group.in_sync)} must be"
        " alive, since messages were acknowledged before all of it had them; or an operator elects"
        " one as unclean (roquet cluster elect --unclean), and loses those that it lacks"
    )
    return ElectionResult(
        group=group,
        refusal=Refusal(RefusalCode.ELECT_MASTER_FAILED, remark),
        missing=missing,
        retry_ms=now_ms,
    )


def _first_election(
    group: ReplicaGroup, request: ElectionRequest, facts: ElectionFacts
) -> ElectionResult:
    """Elect whoever asks: no message was ever acknowledged, or an operator has given them up.

    One that an operator names has to be heard of: if the state was lost, its heartbeat says so.
    Asked by itself, Apache's controller counts an election without a set, after which nobody can be
    elected any more.
    """
    asker = request.asker
    if asker is None:
        refusal = Refusal(RefusalCode.MASTER_NOT_AVAILABLE, "the group never had a master")
        return ElectionResult(group=group, refusal=refusal)
    if asker not in group.replicas:
        remark = f"Broker {asker} hasn't been registered"
        refusal = Refusal(RefusalCode.BROKER_NEED_TO_BE_REGISTERED, remark)
        return ElectionResult(group=group, refusal=refusal)
    if request.designated and asker not in facts.live:
        remark = f"Failed to elect a new master: broker {asker} is not alive"
        refusal = Refusal(RefusalCode.ELECT_MASTER_FAILED, remark)
        return ElectionResult(group=group, refusal=refusal)
    may_lead = may_replace_master(group, facts.lease, asker, facts.now_ms)
    if group.master_epoch > 0 and not may_lead:
        return _too_early(group, facts.lease)
    return ElectionResult(group=_led_by(group, asker))


def _best(
    group: ReplicaGroup, request: ElectionRequest, facts: ElectionFacts, members: Collection[int]
) -> int | None:
    """The named broker, the master that still leads, or the best of these members; None: nobody."""
    eligible = [member for member in members if member in facts.live]
    if request.designated:
        return request.asker if request.asker in eligible else None
    if group.master in eligible and not _has_restarted(group, request):
        return group.master
    eligible = [one for one in eligible if one in group.in_sync or not facts.live[one].is_learner]
    return min(eligible, key=lambda member: _rank(group, member, facts), default=None)


def _has_restarted(group: ReplicaGroup, request: ElectionRequest) -> bool:
    return request.restarted and request.asker == group.master


def _rank(group: ReplicaGroup, member: int, facts: ElectionFacts) -> tuple[int, ...]:
    candidate, is_other = facts.live[member], int(member != group.master)
    order = (-candidate.epoch, -candidate.end, candidate.priority, is_other, member)
    return int(_may_be_dead(group, member, facts)), *order


def _may_be_dead(group: ReplicaGroup, member: int, facts: ElectionFacts) -> bool:
    """Whether to prefer another member: this one was silent, and any has what was acknowledged.

    It may have lost power together with the master. As the winner it would be the only member of
    the set, and nobody else could be elected until it is back.
    """
    lease, heard_ms = facts.lease, facts.live[member].heard_ms
    if lease is None or not lease.waits_for_all or member not in group.in_sync or heard_ms is None:
        return False
    return facts.now_ms - heard_ms >= SILENT_MS


def _nobody(group: ReplicaGroup, request: ElectionRequest, facts: ElectionFacts) -> ElectionResult:
    if request.asker is not None:
        refusal = Refusal(RefusalCode.ELECT_MASTER_FAILED, "Failed to elect a new master")
        return ElectionResult(group=group, refusal=refusal)
    if facts.lease is not None and facts.now_ms < facts.lease.until_ms:
        return _too_early(group, facts.lease)
    remark = "Old master has down and failed to elect a new broker master"
    refusal = Refusal(RefusalCode.MASTER_NOT_AVAILABLE, remark)
    if group.master is not None:
        group = replace(group, master=None, master_epoch=group.master_epoch + 1)
    return ElectionResult(group=group, refusal=refusal)


def _led_by(group: ReplicaGroup, winner: int) -> ReplicaGroup:
    return replace(
        with_set(group, frozenset({winner})),
        master=winner,
        master_epoch=group.master_epoch + 1,
        logs_needed=None,
    )
