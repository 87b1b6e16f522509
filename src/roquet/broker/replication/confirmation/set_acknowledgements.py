"""SetAcknowledgements: when the sender of a message is answered by an elected master.

    append ──▶ on this disk, with synchronous flush ──────────┐
       │                                                      ├─▶ lease and epoch ─▶ reply
       └─────▶ reports of the sync-state set ──▶ confirmed ───┘

Lease and epoch are looked at last, when the reply is about to be sent: a master that was suspended
in between has perhaps been replaced.
"""

import asyncio
from typing import Final

from roquet.broker.log.flush import Flush
from roquet.broker.replication.confirmation.acknowledgements import StatusWait
from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.broker.replication.role import RoleCell
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused
from roquet.net.clock import Clock, boottime
from roquet.rules.election.lease import MasterTerm
from roquet.rules.replication.acknowledgement import (
    NOT_ENOUGH_REMARK,
    AcknowledgementPolicy,
    BrokerRole,
    DeploymentMode,
    PutStatus,
    logs_needed,
    put_status,
)
from roquet.wire.codes import ResponseCode

LOOK_MS: Final = 1_000
"""Longest sleep in ms of a wait for the end of a term: a machine that slept wakes up with a term
that is over, though the sleep is not."""


class MasterTermCell:
    """The term of this broker, None while it does not lead or has no lease."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._extended = asyncio.Event()
        self.now_ms = boottime(clock)
        """Time of the clock by which terms end."""
        self.current: MasterTerm | None = None

    def may_acknowledge(self, epoch: int) -> bool:
        """Whether the master of this epoch may say at this moment that a message is stored."""
        term = self.current
        return term is not None and term.may_acknowledge(epoch, self.now_ms())

    def extend(self, term: MasterTerm) -> None:
        """Take over a term that the controller granted; one that ends earlier changes nothing."""
        known = self.current
        if known is None or term.epoch > known.epoch or term.until_ms > known.until_ms:
            self.current = term
            self._extended.set()

    def end(self) -> None:
        """Acknowledge nothing from now on."""
        self.current = None

    async def wait_end(self) -> None:
        """Return once the current term is over, or at once without one."""
        while (term := self.current) is not None:
            left_ms = term.until_ms - self.now_ms()
            if left_ms <= 0:
                return
            await self._clock.sleep(min(left_ms, LOOK_MS))

    async def wait_extended(self) -> None:
        """Return after the next `extend`."""
        self._extended.clear()
        await self._extended.wait()


class SetAcknowledgements:
    """Senders that wait for the sync-state set and for the disk."""

    is_needed = True
    """Every sender waits, if only for a look at the lease."""

    may_lose_stored = True
    """A master that is replaced loses what is not confirmed."""

    def __init__(
        self,
        flush: Flush,
        settings: RuntimeSettings,
        clock: Clock,
        role: RoleCell,
        sync_set: SyncSet,
        term: MasterTermCell,
    ) -> None:
        self._flush = flush
        self._settings = settings
        self._clock = clock
        self._role = role
        self._set = sync_set
        self._term = term

    def configure(self, *_: object) -> None:
        """Keep nothing of settings or roles: they are looked at when a sender waits."""

    @property
    def in_sync(self) -> int:
        """Number of logs in sync at least, the master's among them; 0 at a replica.

        A member that is only asked for is none: another master might be elected without it.
        """
        return self._set.state.size_min

    @property
    def replicated(self) -> int:
        """Position up to which as many logs as needed hold everything."""
        return self._set.acknowledged

    @property
    def waiting(self) -> int:
        """Senders that wait for replicas."""
        return self._set.waiting

    @property
    def is_short(self) -> bool:
        """Whether fewer logs are in sync than `min_in_sync_replicas` asks for."""
        return self.in_sync < policy_of(self._settings.config).min_in_sync_replicas

    def check(self, *, waits: bool = True) -> None:
        """Raise CallRefused when too few logs are in sync to store a message at all.

        `waits` is the message's property waitStoreMsgOK.
        """
        policy = policy_of(self._settings.config)
        if logs_needed(policy, in_sync=self.in_sync, waits=waits) is None:
            raise CallRefused(ResponseCode.SYSTEM_ERROR, NOT_ENOUGH_REMARK)

    def wait(self, position: int) -> StatusWait | None:
        """A wait for `status` that is one for members alone; None: `status` has to be awaited."""
        config, mark = self._settings.config, self._set.acknowledged_mark
        if config.sync_flush or mark.value >= position or not self._set.needs_reports:
            return None
        begun_ms, epoch = self._clock.monotonic_ms(), self._role.current.epoch
        deadline_ms = begun_ms + config.slave_timeout
        return StatusWait(self._status_after, mark, position, begun_ms, deadline_ms, epoch)

    def _status_after(self, wait: StatusWait, reached: bool) -> PutStatus:
        replicated = reached and wait.mark is self._set.acknowledged_mark
        may_acknowledge = replicated and self._may_acknowledge(wait.epoch)
        return put_status(on_disk=True, replicated=may_acknowledge)

    async def status(self, position: int) -> PutStatus:
        """Wait until the log in front of a position is as safe as the settings ask for.

        FLUSH_SLAVE_TIMEOUT also for a master that may not acknowledge any more, and when too few
        logs are left in sync: members have left meanwhile. Raises StoreFailed once the disk has
        failed: whether the message survives is unknown.
        """
        wait = self.wait(position)
        if wait is not None:
            return await wait
        began_ms, config = self._clock.monotonic_ms(), self._settings.config
        epoch = self._role.current.epoch
        if config.sync_flush:
            self._flush.request()
        replicated = await self._set.reach(position, began_ms + config.slave_timeout)
        on_disk = not config.sync_flush or await self._flush.durable(
            position, began_ms + config.sync_flush_timeout
        )
        may_acknowledge = replicated and self._may_acknowledge(epoch)
        return put_status(on_disk=on_disk, replicated=may_acknowledge)

    def _may_acknowledge(self, epoch: int) -> bool:
        """Whether this broker leads in the epoch still, holds its lease, and enough are in sync."""
        leads = self._role.current.is_master and self._role.current.epoch == epoch
        return leads and self._term.may_acknowledge(epoch) and not self.is_short


def policy_of(config: BrokerConfig) -> AcknowledgementPolicy:
    """Policy of acknowledgements, by the settings of a broker with a controller."""
    return AcknowledgementPolicy(
        role=BrokerRole.SYNC_MASTER,
        mode=DeploymentMode.CONTROLLER,
        in_sync_replicas=config.in_sync_replicas,
        min_in_sync_replicas=config.in_sync_replicas_min,
        all_of_the_set=config.all_ack_in_sync_set,
    )


def needed_of(config: BrokerConfig) -> int:
    """Number of logs that have to hold a message, or ALL_OF_THE_SET."""
    policy = policy_of(config)
    needed = logs_needed(policy, in_sync=policy.min_in_sync_replicas)
    assert needed is not None, "as many are in sync as have to be"
    return needed


class LogsInForce:
    """Number of logs that have to hold a message.

        setting raised   ──▶ in force at once
        setting lowered  ──▶ said by a heartbeat ──▶ stored, lease granted ──▶ in force

    A controller that elects after losses compares as many members as this number asks for: it must
    know of a lower one before a message is acknowledged by it.
    """

    def __init__(self, settings: RuntimeSettings) -> None:
        self._wanted = self._known = needed_of(settings.config)
        self.current = self._wanted
        """The number, or ALL_OF_THE_SET."""

    def asked(self, said: int) -> None:
        """Note that a lease is asked for with this number, which the controller may store."""
        self._known = max(self._known, said)
        self._decide()

    def granted(self, said: int) -> None:
        """Note that a lease was granted to a master that said this number when it asked."""
        self._known = said
        self._decide()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._wanted = needed_of(config)
        self._decide()

    def _decide(self) -> None:
        # ALL_OF_THE_SET does not change while the broker runs, so two numbers are compared.
        self.current = max(self._wanted, self._known)
