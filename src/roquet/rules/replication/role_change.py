"""Role change: what a broker does after its controller has said who leads the group.

    said                                      the broker
    an earlier epoch                          nothing: the answer was late, or the controller is old
    nobody leads                              asks for an election, and leads no more
    another broker leads in a later epoch     follows it
    it was just elected, in a later epoch     becomes master
    it leads itself, in an epoch of its log   resigns: it was started again
    it leads itself in a later epoch, and     resigns: it has led that epoch already, and its
      others are in the set                     directory is an older one
    it leads itself as before                 adopts the sync-state set
    something impossible                      leads no more

Each epoch has one master, which begins it once: an election leaves it alone in the set. A master
that is started again may have lost bytes that its replicas have, so it never goes on in the epoch
of its log. Source: Apache RocketMQ 5.5.0, ReplicasManager, whose restarted master goes on.
"""

from collections.abc import Collection
from typing import TypeAlias

import msgspec

from roquet.model.topic import MASTER_ID, DataVersion


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """State of a group as its controller told it."""

    epoch: int
    """Number of elections (masterEpoch)."""
    master: int | None = None
    """Broker id; None: nobody leads."""
    address: str | None = None
    """HOST:PORT of the master."""
    members: frozenset[int] = frozenset()
    """Sync-state set."""
    set_version: int = 0


class ObeyedTerm(msgspec.Struct, frozen=True, kw_only=True):
    """Latest election that a broker knows of."""

    broker_id: int
    """Its own id."""
    epoch: int
    """At the start, the last epoch of its log."""
    master: int | None = None
    """Broker that it follows, or itself; None: it obeys nobody yet."""
    address: str | None = None
    set_version: int = 0

    @property
    def leads(self) -> bool:
        """Whether the broker itself is the master."""
        return self.master == self.broker_id


class LeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Become master, in an epoch that begins at the end of the own log."""

    epoch: int
    members: frozenset[int]
    set_version: int


class FollowMaster(msgspec.Struct, frozen=True, kw_only=True):
    """Become a replica of this master."""

    epoch: int
    master: int
    address: str


class AdoptSet(msgspec.Struct, frozen=True, kw_only=True):
    """Take over the sync-state set: this broker leads as before."""

    members: frozenset[int]
    set_version: int


class AskForElection(msgspec.Struct, frozen=True, kw_only=True):
    """Lead no more, and ask for an election."""

    epoch: int
    resigns: bool = False
    """The controller takes this broker for the master of an epoch that it does not lead."""


class StopLeading(msgspec.Struct, frozen=True):
    """Lead no more, and wait: what the controller said cannot be true."""

    reason: str


RoleStep: TypeAlias = LeadGroup | FollowMaster | AdoptSet | AskForElection | StopLeading


def role_step(view: GroupView, own: ObeyedTerm) -> RoleStep | None:
    """Step that a broker takes after this answer; None: nothing."""
    if view.epoch < own.epoch:
        return None
    if view.master is None:
        return AskForElection(epoch=view.epoch)
    if (reason := _contradiction(view, own)) is not None:
        return StopLeading(reason)
    return _leading(view, own) if view.master == own.broker_id else _following(view, own)


def _contradiction(view: GroupView, own: ObeyedTerm) -> str | None:
    """Why an answer that names a master cannot be true; None: it can."""
    if view.epoch == own.epoch and own.master not in (None, view.master):
        return f"brokers {own.master} and {view.master} are both said to lead in epoch {view.epoch}"
    if view.master not in view.members:
        return f"the set {sorted(view.members)} lacks its master {view.master}"
    if not view.address:
        return f"broker {view.master} leads in epoch {view.epoch} without an address"
    return None


def _leading(view: GroupView, own: ObeyedTerm) -> RoleStep | None:
    if view.epoch > own.epoch and view.members == {own.broker_id}:
        return LeadGroup(epoch=view.epoch, members=view.members, set_version=view.set_version)
    if not own.leads:
        return AskForElection(epoch=view.epoch, resigns=True)
    if view.set_version > own.set_version:
        return AdoptSet(members=view.members, set_version=view.set_version)
    return None


def _following(view: GroupView, own: ObeyedTerm) -> RoleStep | None:
    assert view.master is not None, "somebody leads"
    assert view.address, "with an address"
    if (own.epoch, own.master, own.address) == (view.epoch, view.master, view.address):
        return None
    return FollowMaster(epoch=view.epoch, master=view.master, address=view.address)


def obeyed(own: ObeyedTerm, step: RoleStep) -> ObeyedTerm:
    """Term of a broker that has taken a step."""
    match step:
        case LeadGroup():
            return ObeyedTerm(
                broker_id=own.broker_id,
                epoch=step.epoch,
                master=own.broker_id,
                set_version=step.set_version,
            )
        case FollowMaster():
            return ObeyedTerm(
                broker_id=own.broker_id, epoch=step.epoch, master=step.master, address=step.address
            )
        case AdoptSet():
            return msgspec.structs.replace(own, set_version=step.set_version)
        case AskForElection():
            return ObeyedTerm(broker_id=own.broker_id, epoch=step.epoch)
        case StopLeading():
            return ObeyedTerm(broker_id=own.broker_id, epoch=own.epoch)


class ReturnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A master that returns, and a replica of its group."""

    own_end: int
    """Position of the end of the master's log."""
    replica_end: int
    """Position of the end of the replica's log."""


def acts_as_master(members: Collection[int], broker_id: int) -> bool:
    """Whether a broker stands in for the master, given the ids of its group that are alive.

    It serves reads, progress and locks until the master returns and takes its progress over.
    Source: Apache RocketMQ 5.5.0, BrokerController.updateMinBroker and BrokerPreOnlineService.
    """
    return MASTER_ID not in members and min(members, default=None) == broker_id


def may_take_progress(facts: ReturnFacts) -> bool:
    """Whether the replica's progress may be believed.

    A longer log than the master's means that the master has lost messages: progress of deliveries
    would cover some of them, and they would never come.
    """
    return facts.replica_end <= facts.own_end


def is_as_new(theirs: DataVersion | None, own: DataVersion) -> bool:
    """Whether a table of the replica is not older than the master's own."""
    return theirs is not None and theirs.order >= own.order
