"""Acknowledgements: when the sender of a stored message is answered.

    append ──▶ on this disk, with synchronous flush ───┐
       │                                               ├─▶ status ─▶ reply
       └─────▶ reports of replicas ──▶ replicated ─────┘

Replicas report how far their logs reach; the position that enough of them have is a watermark, so
one report completes all sends that wait for it. A broker that waits for neither disk nor replica
says so by `is_needed`.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

import msgspec

from roquet.broker.log.flush import Flush
from roquet.broker.replication.role import RoleCell
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import Clock
from roquet.rules.replication.acknowledgement import (
    NOT_ENOUGH_REMARK,
    AcknowledgementPolicy,
    ConnectionReport,
    DeploymentMode,
    PutStatus,
    logs_needed,
    put_status,
    replicated_position,
    reports_of_replicas,
)
from roquet.rules.replication.sync_state import in_sync_count
from roquet.store.store import Store
from roquet.wire.codes import ResponseCode

REMARKS: Final = {
    PutStatus.FLUSH_DISK_TIMEOUT: "the message is stored, but not yet on the disk",
    PutStatus.FLUSH_SLAVE_TIMEOUT: (
        "the message is stored, but too few replicas have acknowledged it in time (inSyncReplicas, "
        "slaveTimeout)"
    ),
}
"""Remarks of statuses that promise less than the settings ask for."""


class StatusWait(msgspec.Struct, frozen=True):
    """A wait for one number to grow, as nearly all waits of senders are."""

    decide: Callable[["StatusWait", bool], PutStatus | Awaitable[PutStatus]]
    """Gives the status once the wait has ended, or one that takes longer still."""
    mark: AsyncWatermark
    position: int
    """Value of the mark that is waited for."""
    begun_ms: int
    """Monotonic time at which the message was stored."""
    deadline_ms: int
    """Monotonic time at which the wait ends at the latest."""
    epoch: int = 0
    """Epoch in which the message was stored; 0 where roles are fixed."""

    def status(self, reached: bool) -> PutStatus | Awaitable[PutStatus]:
        """The status; False when the deadline came first, or when the mark will grow no more."""
        return self.decide(self, reached)

    def __await__(self) -> Generator[Any, Any, PutStatus]:
        """Wait for the status."""
        reached = yield from self.mark.reach(self.position, self.deadline_ms).__await__()
        status = self.status(reached)
        return status if isinstance(status, PutStatus) else (yield from status.__await__())


class Acknowledgements:
    """Reports of replicas, and the senders that wait for them and for the disk."""

    may_lose_stored = False
    """Where roles are fixed nothing is cut from a master's log."""

    def __init__(
        self,
        store: Store,
        flush: Flush,
        settings: RuntimeSettings,
        clock: Clock,
        role: RoleCell,
        mode: DeploymentMode = DeploymentMode.FIXED_ROLES,
    ) -> None:
        self._store = store
        self._flush = flush
        self._settings = settings
        self._clock = clock
        self._role = role
        self._mode = mode
        self._connections: dict[int, ConnectionReport] = {}
        self._report_count = 0
        self._reports: dict[int, int] = {}
        """Last report of each replica, by its connection."""
        self.is_needed = False
        """Whether any sender waits: for the disk, or for replicas. Read with every send."""
        self.is_short = mode is not DeploymentMode.FIXED_ROLES
        """Whether `check` has to be asked before a message is stored: never where roles are fixed
        and no replica stands in for the master."""
        self._policy = AcknowledgementPolicy()
        self._needed_always: int | None = None
        """Logs that have to hold a message, whoever is in sync; None: it depends on that."""
        self._mark = AsyncWatermark(clock=clock)
        self.configure()

    def configure(self, *_: object) -> None:
        """Apply changed settings, or a changed role; those who wait go by them as well."""
        config = self._settings.config
        policy = AcknowledgementPolicy(
            role=self._role.current.role,
            mode=self._mode,
            in_sync_replicas=config.in_sync_replicas,
            min_in_sync_replicas=config.in_sync_replicas_min,
            adapts=config.auto_in_sync_replicas,
        )
        is_fixed = self._mode is DeploymentMode.FIXED_ROLES
        self._needed_always = logs_needed(policy, in_sync=1) if is_fixed else None
        # With all of them in sync: a number that adapts is one only until replicas have connected.
        needed = logs_needed(policy, in_sync=policy.in_sync_replicas)
        self.is_needed = config.sync_flush or needed != 1
        if policy != self._policy:
            before, self._policy = self._mark, policy
            self._mark = AsyncWatermark(self._replicated_position(), clock=self._clock)
            before.release()  # they wait again, for the new position

    def report(self, connection: int, host: str, log_end: int) -> None:
        """Note how far the log of a replica reaches that is connected from a host."""
        self._report_count = count = self._report_count + 1
        known = self._connections.get(connection)
        self._connections[connection] = ConnectionReport(
            host=host,
            log_end=log_end,
            first=count if known is None else known.first,
            previous=count if known is None else known.latest,
            latest=count,
        )
        self._reports = reports_of_replicas(self._connections)
        self._mark.advance(self._replicated_position())

    def forget(self, connection: int) -> None:
        """Forget a connection that has ended: what it has reported stays acknowledged."""
        self._connections.pop(connection, None)
        self._reports = reports_of_replicas(self._connections)

    @property
    def in_sync(self) -> int:
        """Number of logs in sync, the master's among them."""
        end, gap_max = self._store.end_position, self._settings.config.ha_gap_max
        return in_sync_count(end, self._reports.values(), gap_max)

    @property
    def replicated(self) -> int:
        """Position up to which as many logs as needed hold everything."""
        return self._mark.value

    @property
    def waiting(self) -> int:
        """Senders that wait for replicas."""
        return self._mark.waiting

    def check(self, *, waits: bool = True) -> None:
        """Raise CallRefused when too few logs are in sync to store a message at all.

        Never where roles are fixed and no replica stands in for the master. `waits` is the
        message's property waitStoreMsgOK.
        """
        if logs_needed(self._policy, in_sync=self.in_sync, waits=waits) is None:
            raise CallRefused(ResponseCode.SYSTEM_ERROR, NOT_ENOUGH_REMARK)

    def wait(self, position: int) -> StatusWait | None:
        """A wait for `status` that is one for replicas alone; None: `status` has to be awaited."""
        config, mark = self._settings.config, self._mark
        if config.sync_flush or mark.value >= position:
            return None
        if not self._role.current.is_master or self._needed() == 1:
            return None
        begun_ms = self._clock.monotonic_ms()
        deadline_ms = begun_ms + config.slave_timeout
        return StatusWait(self._status_after, mark, position, begun_ms, deadline_ms)

    def _status_after(self, wait: StatusWait, reached: bool) -> PutStatus | Awaitable[PutStatus]:
        return PutStatus.PUT_OK if reached else self._status(wait.position, wait.begun_ms)

    async def status(self, position: int) -> PutStatus:
        """Wait until the log in front of a position is as safe as the settings ask for.

        Waits for the disk and for replicas side by side, each with its own timeout. Raises
        StoreFailed once the disk has failed: whether the message survives is unknown.
        """
        wait = self.wait(position)
        if wait is not None:
            return await wait
        return await self._status(position, self._clock.monotonic_ms())

    async def _status(self, position: int, began_ms: int) -> PutStatus:
        config = self._settings.config
        if config.sync_flush:
            self._flush.request()
        replicated = await self._replicate(position, began_ms + config.slave_timeout)
        on_disk = not config.sync_flush or await self._flush.durable(
            position, began_ms + config.sync_flush_timeout
        )
        return put_status(on_disk=on_disk, replicated=replicated)

    async def _replicate(self, position: int, deadline_ms: int) -> bool:
        """Wait until enough logs hold everything in front of a position.

        False at the deadline, and when this broker leads no more: whether the next master has the
        message is unknown.
        """
        while self._role.current.is_master and self._needed() != 1:
            mark = self._mark
            if await mark.reach(position, deadline_ms):
                return True
            if mark is self._mark:
                return False
        return self._role.current.is_master

    def _needed(self) -> int:
        """Logs that have to hold a message which is stored already."""
        if self._needed_always is not None:  # asked with every send: a count takes 1 us
            return self._needed_always
        needed = logs_needed(self._policy, in_sync=self.in_sync)
        return self._policy.in_sync_replicas if needed is None else needed

    def _replicated_position(self) -> int:
        return replicated_position(self._needed(), self._store.end_position, self._reports)
