"""Failover: keeps a broker in the role that its controller gives it.

    find the leader ─▶ id ─▶ register ─┬─▶ heartbeats, which extend the lease
                                       └─▶ every 5 s, and when told: who leads? ─▶ change of role

A broker is fenced from its start until somebody leads. A notice of the controller (1008) only makes
it ask at once: anybody could send one. Source: Apache RocketMQ 5.5.0, ReplicasManager.
"""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from roquet.broker.replication.control.broker_id import obtain_id, register
from roquet.broker.replication.control.controller_client import Complaints
from roquet.broker.replication.control.failover_context import (
    FailoverContext,
    GroupStanding,
    LeaseHeartbeats,
)
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RoquetError, StoreError
from roquet.rules.replication.role_change import (
    AdoptSet,
    AskForElection,
    FollowMaster,
    GroupView,
    LeadGroup,
    ObeyedTerm,
    RoleStep,
    StopLeading,
    obeyed,
    role_step,
)
from roquet.wire.codes import ResponseCode

log = logger(__name__)

RETRY_MS: Final = 1_000
"""Ms between two tries to join the group, to have a master elected, or to get an answer."""

ELECTED_MS: Final = 50
"""Ms between an election or a refusal and the question who leads: a controller that contradicts
itself, or refuses each heartbeat, must not be asked without a pause."""

NOT_REGISTERED: Final = frozenset(
    {
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    }
)
"""Codes of a controller that does not know this broker, or not any more."""


class Failover:
    """The role of one broker, as its controller has it."""

    def __init__(self, context: FailoverContext, epoch: int) -> None:
        """Begin without a role; `epoch` is the last one of the log."""
        self._context = context
        self.standing = GroupStanding(epoch)
        self.heartbeats = LeaseHeartbeats(context, self.standing, self.notice)
        self._complaints = Complaints()
        """Why there has been no news of the controller since there was some."""
        self._has_failed = False
        """Whether the failure of the disk was taken notice of."""
        self._poll_now = asyncio.Event()

    def notice(self) -> None:
        """Ask the controller now who leads."""
        self._poll_now.set()

    def resign(self, epoch: int) -> None:
        """Lead no more in an epoch, and have somebody elected: its sync-state set is in doubt."""
        self.standing.refused = epoch
        self.notice()

    async def serve(self) -> None:
        """Keep the role, forever."""
        await self._join()
        async with asyncio.TaskGroup() as group:
            for work in (self.heartbeats.serve(), self.heartbeats.watch(), self._poll()):
                group.create_task(work)

    async def release(self) -> None:
        """Let another lead at once: this broker is about to stop."""
        own = self.standing.own
        if not own.leads:
            return
        self._context.term.end()
        await self._context.transitions.stop_leading(own.broker_id, own.epoch)
        self.standing.own = ObeyedTerm(broker_id=own.broker_id, epoch=own.epoch)
        await self.heartbeats.step(releases=True)
        await self._context.client.hang_up()

    async def _join(self) -> None:
        """Get an id and register the address, until both are done."""
        context = self._context
        while True:
            try:
                broker_id = await obtain_id(
                    context.identity, context.client, context.member, context.clock, context.rng
                )
                await register(broker_id, context.client, context.member, context.clock)
            except RoquetError as error:
                self._complain(error)
                await context.clock.sleep(RETRY_MS)
            else:
                self.standing.own = msgspec.structs.replace(self.standing.own, broker_id=broker_id)
                return

    async def _register_again(self) -> None:
        """Leave the group, and join it again: the controller knows this broker at another address.

        Its stored state is old, or another process runs in a copy of this directory: as long as
        that one is alive the controller does not take this one.
        """
        await self._leave_role()
        await self._join()
        self.standing.is_registered = True

    def _complain(self, error: RoquetError) -> None:
        """Log why the controller is of no help; each reason once, until there is news."""
        if self._complaints.is_new(error):
            log.warning("%s: no news of its controller: %s", self._context.member.name, error)

    async def _poll(self) -> None:
        """Ask who leads, and change the role accordingly; forever.

        A question that failed is repeated soon: it may have followed a notice that this broker has
        been elected, and was asked of a controller that did not lead any more.
        """
        while True:
            self._poll_now.clear()
            is_answered = False
            try:
                if not self.standing.is_registered:
                    await self._register_again()
                await self.step()
                is_answered = True
            except CallRefused as error:
                self._complain(error)
                if error.code in NOT_REGISTERED:
                    await self._join()
            except RoquetError as error:
                self._complain(error)
            except Exception:
                log.exception("the role could not be changed; it is tried again")
            if not is_answered:  # a refused heartbeat gives notice of itself
                await self._context.clock.sleep(ELECTED_MS)
            is_settled = is_answered and self.standing.own.master is not None
            poll_ms = self._context.settings.poll_ms
            pause_ms = poll_ms if is_settled else min(poll_ms, RETRY_MS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._poll_now.wait()

    async def step(self) -> None:
        """Ask once who leads, and take the step that follows."""
        standing = self.standing
        await self._yield_if_failed()
        standing.view = view = await self._context.client.group()
        if standing.resigned is not None and view.epoch > standing.resigned:
            standing.resigned = None
        if (view.master, view.epoch) == standing.leading == (view.master, standing.refused):
            await self._leave_role()
        if self._is_elsewhere(view):
            await self._yield_to(view)
            return
        step = role_step(view, standing.own)
        if isinstance(step, LeadGroup) and self._must_refuse(step):
            return
        if step is not None:
            await self._take(step)
        if self._complaints.end():
            log.warning("%s: its controller is heard again", self._context.member.name)

    async def _take(self, step: RoleStep) -> None:
        """Change the role, and ask for an election if that is the step."""
        standing = self.standing
        own = standing.own
        if not isinstance(step, AdoptSet):  # late answers to heartbeats extend nothing from now on
            self._context.term.end()
            standing.own = ObeyedTerm(broker_id=own.broker_id, epoch=own.epoch)
        await self._change(step)
        standing.own = obeyed(own, step)
        if isinstance(step, LeadGroup):
            await self.heartbeats.step()
        elif isinstance(step, AskForElection):
            await self._ask_for_election(step)

    def _must_refuse(self, step: LeadGroup) -> bool:
        """Whether this broker must not lead: elected while its machine was lost, or its disk."""
        if self._context.may_be_elected(self.standing):
            return False
        reason = (
            "its log may lack messages that were acknowledged, since its machine was lost or its "
            "disk failed"
        )
        if (failure := self._context.transitions.disk_failure) is not None:
            reason = f"its disk has failed ({failure})"
        self._complain(
            StoreError(
                f"this broker was elected in epoch {step.epoch}, and {reason}: let the controller "
                "elect another one (enableElectUncleanMaster) or, if there is none, start this one "
                "with trust_log"
            )
        )
        return True

    async def _yield_if_failed(self) -> None:
        """Let nobody elect a broker whose disk has failed, and hand over the lead.

        A master leads on until another can be elected: consumers read there meanwhile.
        """
        context, own = self._context, self.standing.own
        if context.transitions.disk_failure is None:
            return
        if not self._has_failed:
            self._has_failed = True
            context.transitions.note_failure()
            if not own.leads:
                await context.client.hang_up()
        if own.leads and context.transitions.can_be_replaced:
            log.error("broker %d, this one, leads %s no more: its disk has failed",
                      own.broker_id, context.member.name)  # fmt: skip
            await self.release()

    def _is_elsewhere(self, view: GroupView) -> bool:
        """Whether the master has the id of this broker, and is another process."""
        own, address = self.standing.own, self._context.member.address
        is_of_now = view.master == own.broker_id and view.epoch >= own.epoch
        return is_of_now and bool(view.address) and view.address != address

    async def _yield_to(self, view: GroupView) -> None:
        """Take no part in the group while another process has the id of this broker."""
        if self.standing.own.master is not None:
            await self._leave_role()
        self._complain(
            StoreError(
                f"broker {view.master} leads at {view.address}, and this process at"
                f" {self._context.member.address} has a copy of its directory: stop one of the"
                " two, or start this one in an empty directory"
            )
        )

    async def _leave_role(self) -> None:
        """Lead no more, and follow nobody, in an epoch that cannot go on like this.

        The lease is refused, since the controller has heard late that this broker had been started
        before it was elected; or nobody can know any more what its sync-state set is; or another
        process has its id.
        """
        own = self.standing.own
        self._context.term.end()
        self.standing.own = ObeyedTerm(broker_id=own.broker_id, epoch=own.epoch)
        await self._context.transitions.stop_leading(own.broker_id, own.epoch)

    async def _change(self, step: RoleStep) -> None:
        transitions, name = self._context.transitions, self._context.member.name
        own = self.standing.own
        match step:
            case LeadGroup():
                await transitions.lead(own.broker_id, step)
                log.warning("broker %d, this one, leads %s in epoch %d",
                            own.broker_id, name, step.epoch)  # fmt: skip
            case FollowMaster():
                await transitions.follow(own.broker_id, step)
                log.warning("broker %d at %s leads %s in epoch %d",
                            step.master, step.address, name, step.epoch)  # fmt: skip
            case AdoptSet():
                transitions.adopt(step)
            case StopLeading():
                await transitions.stop_leading(own.broker_id, own.epoch)
                log.error("the controller's answer cannot be true: %s", step.reason)
            case AskForElection():
                await transitions.stop_leading(own.broker_id, step.epoch)

    async def _ask_for_election(self, step: AskForElection) -> None:
        """Ask for an election; a refusal is followed by the next question who leads."""
        context, standing = self._context, self.standing
        if not context.may_be_elected(standing) or context.settings.is_learner:
            return
        # The controller compares those that it has heard of.
        await self.heartbeats.step(releases=True)
        epoch = max(context.transitions.facts().epoch, standing.own.epoch)
        still_leads = await context.client.elect(standing.own.broker_id, epoch)
        if step.resigns and still_leads:
            # Apache's controller answers so until it misses this broker.
            standing.resigned = step.epoch
            await context.client.hang_up()
        await context.clock.sleep(ELECTED_MS)
        self.notice()
