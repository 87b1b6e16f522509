"""Failover context: standing of a broker in its group, and heartbeats that extend its lease."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from roquet.broker.replication.confirmation.set_acknowledgements import LogsInForce, MasterTermCell
from roquet.broker.replication.control.controller_client import (
    Complaints,
    ControllerClient,
    OwnBroker,
    heartbeat_of,
)
from roquet.broker.replication.control.transitions import RoleTransitions
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused
from roquet.net.clock import Clock
from roquet.rules.election.lease import LeaseTerms, MasterTerm, term_by_heartbeat
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET
from roquet.rules.replication.role_change import GroupView, ObeyedTerm
from roquet.store.replication.identity_file import IdentityFile
from roquet.wire.calls.route import BrokerHeartbeat
from roquet.wire.codes import ResponseCode

log = logger(__name__)

HEARTBEATS_A_LEASE: Final = 4
"""Heartbeats in the time of one lease: two may be lost."""


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


class LeaseHeartbeats:
    """Heartbeats of one broker to its controllers, and the end of its lease.

        every second, or four times in a lease ──▶ 904 ──▶ term extended ──▶ not fenced
                                                              │
                                                              └─▶ over ──▶ fenced

    Under a controller without leases the answer to 1004 takes their place: see
    `rules.election.lease` for what that is worth.
    """

    def __init__(
        self, context: FailoverContext, standing: GroupStanding, on_doubt: Callable[[], object]
    ) -> None:
        self._context = context
        self._standing = standing
        self._on_doubt = on_doubt
        self._complaints = Complaints()
        """Why no heartbeat has extended a lease since one did."""
        self._is_over = False
        """Whether the last lease is over."""

    async def serve(self) -> None:
        """Send heartbeats, forever; a slow answer delays no further heartbeat."""
        beats: set[asyncio.Task[None]] = set()
        try:
            while True:
                task = asyncio.create_task(self._beat())
                beats.add(task)
                task.add_done_callback(beats.discard)
                await self._pause()
        finally:
            for task in beats:
                task.cancel()

    async def _beat(self) -> None:
        """Send one heartbeat, if it may be sent now: not after one that releases the lease."""
        if self._may_send():
            await self.step()

    def _may_send(self) -> bool:
        """Whether a heartbeat may be sent now.

        Once the disk has failed only a master sends them, until another member can be elected.
        """
        if self._context.transitions.disk_failure is not None:
            self._on_doubt()
            return self._standing.own.leads
        return self._context.may_be_elected(self._standing)

    async def _pause(self) -> None:
        """Return when the next heartbeat is due: soon if this broker has been elected meanwhile."""
        clock, settings = self._context.clock, self._context.settings
        began_ms, usual_ms = clock.monotonic_ms(), settings.heartbeat_ms
        leading_ms = min(usual_ms, settings.lease.length_ms // HEARTBEATS_A_LEASE)
        passed_ms = 0
        while passed_ms < (leading_ms if self._standing.own.leads else usual_ms):
            await clock.sleep(min(leading_ms, usual_ms - passed_ms))
            passed_ms = clock.monotonic_ms() - began_ms

    async def step(self, *, releases: bool = False) -> None:
        """Send one heartbeat, and take over the lease that it is answered with.

        With `releases` it says that this broker acknowledges nothing until it is granted a lease
        again: before an election, and before a stop.
        """
        context, own = self._context, self._standing.own
        epoch = own.epoch if own.leads else None
        logs_needed = context.settings.logs_needed
        logs_needed = ALL_OF_THE_SET if logs_needed is None else logs_needed
        sent_ms = context.term.now_ms()
        if epoch is not None:
            context.logs.asked(logs_needed)
        try:
            reply = await context.client.heartbeat(
                self._heartbeat(epoch, releases=releases), context.settings.lease.length_ms
            )
            if epoch is None:
                self._complaints.end()
                return
            if reply.lease_millis is None:
                term = await self._term_by_heartbeat(epoch, sent_ms)
            else:
                term = MasterTerm(epoch=epoch, until_ms=sent_ms + reply.lease_millis)
            if term is not None:
                self._extend(term, logs_needed)
        except CallError as error:
            self._failed(error, epoch)

    def _failed(self, error: CallError, epoch: int | None) -> None:
        if isinstance(error, CallRefused):
            is_of_now = epoch is not None and epoch == self._standing.own.epoch
            if error.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                self._standing.is_registered = False
            if error.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH and is_of_now:
                self._standing.refused = epoch  # a late answer takes no later resignation back
            self._on_doubt()
        if self._complaints.is_new(error):
            log.warning("heartbeat to the controller: %s", error)

    def _heartbeat(self, epoch: int | None, *, releases: bool) -> BrokerHeartbeat:
        context = self._context
        facts, settings, own = context.transitions.facts(), context.settings, self._standing.own
        leads = epoch is not None and bool(facts.members)
        return heartbeat_of(
            context.member,
            broker_id=own.broker_id,
            heartbeat_timeout_mills=settings.heartbeat_timeout_ms,
            epoch=facts.epoch,
            max_offset=facts.end,
            confirm_offset=facts.confirmed,
            election_priority=settings.priority,
            lease_epoch=epoch,
            waits_for_all=settings.waits_for_all if epoch is not None else None,
            releases_lease=releases or None,
            is_learner=settings.is_learner or None,
            logs_needed=settings.logs_needed,
            sync_state_set=",".join(map(str, sorted(facts.members))) if leads else None,
            sync_state_set_epoch=facts.set_version if leads else None,
            obeyed_epoch=own.epoch,
        )

    async def _term_by_heartbeat(self, epoch: int, sent_ms: int) -> MasterTerm | None:
        """Term under a controller without leases: it answers who leads, and where."""
        view, address = await self._context.client.group(), self._context.member.address
        own_id = self._standing.own.broker_id
        if (view.master, view.epoch, view.address) != (own_id, epoch, address):
            self._on_doubt()
            return None
        settings = self._context.settings
        return term_by_heartbeat(epoch, sent_ms, settings.heartbeat_timeout_ms, settings.lease)

    def _extend(self, term: MasterTerm, logs_needed: int) -> None:
        """Take over a lease, and messages again if it had ended.

        `logs_needed` is what the heartbeat said.
        """
        own, cell = self._standing.own, self._context.term
        if own.leads and own.epoch == term.epoch:
            self._complaints.end()
            cell.extend(term)
            if cell.current is term:  # not a late answer to an earlier heartbeat
                self._context.logs.granted(logs_needed)
            if cell.may_acknowledge(term.epoch):
                if self._is_over:
                    self._is_over = False
                    log.warning("epoch %d has a lease again: messages are taken", own.epoch)
                self._context.transitions.fence(is_fenced=False)

    async def watch(self) -> None:
        """Take no messages once the lease is over; forever."""
        cell = self._context.term
        while True:
            await cell.wait_end()
            own = self._standing.own
            if own.leads and not cell.may_acknowledge(own.epoch):
                self._is_over = True
                log.warning("the lease of epoch %d is over: no messages are taken", own.epoch)
                self._context.transitions.fence(is_fenced=True)
            await cell.wait_extended()
