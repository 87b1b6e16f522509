"""LeaseHeartbeats: heartbeats to the controllers, which extend the lease of a master.

    every second, or four times in a lease ──▶ 904 ──▶ term extended ──▶ not fenced
                                                          │
                                                          └─▶ over ──▶ fenced

Under a controller without leases the answer to 1004 takes their place: see
`rules.election.heartbeat_term` for what that is worth.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from roquet.broker.replication.control.controller_client import Complaints, heartbeat_of
from roquet.broker.replication.control.failover_context import FailoverContext, GroupStanding
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused
from roquet.rules.election.heartbeat_term import term_by_heartbeat
from roquet.rules.election.lease import MasterTerm
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET
from roquet.wire.calls.route import BrokerHeartbeat
from roquet.wire.codes import ResponseCode

log = logger(__name__)

HEARTBEATS_A_LEASE: Final = 4
"""Heartbeats in the time of one lease: two may be lost."""


class LeaseHeartbeats:
    """Heartbeats of one broker, and the end of its lease."""

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
