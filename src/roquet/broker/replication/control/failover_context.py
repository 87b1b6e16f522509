"""Failover context: the parts that controller mode of one broker is made of."""

from collections.abc import Callable
from random import Random

import msgspec

from roquet.broker.replication.confirmation.set_acknowledgements import LogsInForce, MasterTermCell
from roquet.broker.replication.control.controller_client import ControllerClient, OwnBroker
from roquet.broker.replication.control.transitions import RoleTransitions
from roquet.net.clock import Clock
from roquet.rules.election.lease import LeaseTerms
from roquet.rules.replication.role_change import (
    GroupView,
    ObeyedTerm,
)
from roquet.store.replication.identity_file import IdentityFile


class FailoverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals and limits of controller mode, in ms."""

    poll_ms: int
    """Between two questions who leads (syncBrokerMetadataPeriod)."""
    heartbeat_ms: int
    """Between two heartbeats (brokerHeartbeatInterval)."""
    heartbeat_timeout_ms: int
    """Silence after which the controller elects another (controllerHeartBeatTimeoutMills)."""
    priority: int
    """Lower is elected first among equals (brokerElectionPriority)."""
    waits_for_all: bool
    """Whether acknowledgements wait for the whole set (allAckInSyncStateSet)."""
    logs_needed: int | None = None
    """Number of logs that have to hold a message, where not the whole set has to."""
    is_learner: bool = False
    """Whether this broker never asks to be elected (asyncLearner)."""
    lease: LeaseTerms = LeaseTerms()


class FailoverContext(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of controller mode."""

    member: OwnBroker
    client: ControllerClient
    identity: IdentityFile
    transitions: RoleTransitions
    term: MasterTermCell
    logs: LogsInForce
    settings_in_force: Callable[[], FailoverSettings]
    clock: Clock
    rng: Random

    @property
    def settings(self) -> FailoverSettings:
        """The settings as they are now."""
        return self.settings_in_force()

    def may_be_elected(self, standing: "GroupStanding") -> bool:
        """Whether this broker may be elected: its disk takes messages, and nothing is missing."""
        transitions = self.transitions
        is_whole = transitions.may_be_elected
        return transitions.disk_failure is None and standing.may_be_elected(is_log_whole=is_whole)


class GroupStanding:
    """Standing of this broker in its group: what it knows of the latest election, and obeys."""

    def __init__(self, epoch: int) -> None:
        self.own = ObeyedTerm(broker_id=0, epoch=epoch)
        """Its id is 0 before it is known."""
        self._log_epoch = epoch
        """Last epoch of the log at the start."""
        self._alone_since: GroupView | None = None
        """Answer by which the set was this broker alone at the start, if it still is."""
        self.view: GroupView | None = None
        """Last answer of the controller."""
        self.refused: int | None = None
        """Epoch that this broker leads no more: its lease was refused, or the sync-state set is in
        doubt; None: there is no such epoch."""
        self.resigned: int | None = None
        """Epoch that this broker will not lead though the controller says so: until there is a
        later one it sends no heartbeats; None: there is no such epoch."""
        self.is_registered = True
        """Whether the controller takes this process for the broker whose id it has."""

    @property
    def leading(self) -> tuple[int, int] | None:
        """Own id and epoch while this broker leads; None while it does not."""
        return (self.own.broker_id, self.own.epoch) if self.own.leads else None

    def may_be_elected(self, *, is_log_whole: bool) -> bool:
        """Whether heartbeats may be sent: who sends them may be elected.

        A broker whose log may lack what it has acknowledged leads only if nobody else was in the
        sync-state set when its machine was lost. In an epoch that its log does not have it was
        elected afterwards, while others had all.
        """
        if self.resigned is not None:
            return False
        return is_log_whole or (self.view is not None and self._was_alone(self.view))

    def _was_alone(self, view: GroupView) -> bool:
        """Whether the set has no other member since before this broker was started.

        An answer of an earlier epoch says nothing: the controller's state was lost, or is old.
        """
        since = self._alone_since
        if view.epoch < (self._log_epoch if since is None else since.epoch):
            return since is not None
        if since is not None and not _has_only_elections(since, view):
            since = None
        # An election that found nobody has an epoch, too.
        elected_in = view.epoch if view.master is not None else view.epoch - 1
        if since is None and elected_in <= self._log_epoch:
            since = view
        self._alone_since = since if view.members <= {self.own.broker_id} else None
        return self._alone_since is not None


def _has_only_elections(before: GroupView, after: GroupView) -> bool:
    """Whether elections alone can have changed the set, as long as this broker does not lead.

    Each raises its version by no more than the epoch; other changes raise the version alone, so
    that the first answer was of a state that was lost or old.
    """
    return after.set_version - before.set_version <= after.epoch - before.epoch
