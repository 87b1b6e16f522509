"""CopyBack: a master that returns takes over the progress of the replicas that stood in for it.

    start ──▶ fenced: no message is taken, no name server is told
                 │ each replica that name servers know: offsets, delay levels, timer
                 ▼
              master: what its own files say is older, so groups would read again what they handled

A replica that does not answer is asked again, for ten seconds; then the master goes on without it,
and groups repeat what they had committed there. Source: Apache RocketMQ 5.5.0,
BrokerPreOnlineService.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from roquet.broker.replication.acting_master import group_members
from roquet.broker.replication.copies.master_tables import MasterTables
from roquet.broker.replication.copies.metadata_copy import identity_fault
from roquet.broker.replication.role import RoleCell
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model.errors import CallError, FieldError, StoreError, UsageError
from roquet.model.topic import MASTER_ID
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.replication.role_change import ReturnFacts, is_as_new, may_take_progress
from roquet.store.timer.layout import TimerCheckpoint

log = logger(__name__)

RETRY_MS: Final = 1_000
"""Ms between two tries to reach the replicas."""

PATIENCE_MS: Final = 10_000
"""Ms after which a master goes on without the progress of its replicas: senders wait for it."""


class ReturnTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the master that progress goes to."""

    tables: BrokerTables
    log_end: Callable[[], int]
    """End of the own log."""
    timer_checkpoint: Callable[[], TimerCheckpoint]
    follow_timer: Callable[[TimerCheckpoint], Awaitable[object]]
    """Take the timer's progress of a replica."""


class CopyBack:
    """Copies progress from the replicas of a master that is about to begin."""

    def __init__(
        self,
        target: ReturnTarget,
        role: RoleCell,
        settings: RuntimeSettings,
        pool: ChannelPool,
        clock: Clock,
    ) -> None:
        self._target = target
        self._role = role
        self._settings = settings
        self._pool = pool
        self._clock = clock

    async def serve(self) -> None:
        """Copy what there is, then let the master begin."""
        deadline_ms = self._clock.monotonic_ms() + PATIENCE_MS
        try:
            while not await self.step():
                if self._clock.monotonic_ms() >= deadline_ms:
                    log.warning(
                        "the progress of replicas is not known: groups read again what they have "
                        "committed there"
                    )
                    break
                await self._clock.sleep(RETRY_MS)
        except Exception:  # a master that never begins would be worse than messages that come twice
            log.exception("the progress of replicas cannot be taken over")
        self._role.change(msgspec.structs.replace(self._role.current, is_fenced=False))

    async def step(self) -> bool:
        """Ask all replicas once; whether nothing more is to be learnt."""
        config = self._settings.config
        if not config.name_servers:
            return True
        members = await group_members(self._settings, self._pool)
        if members is None:
            return False
        replicas = [members[number] for number in sorted(members) if number != MASTER_ID]
        return all([await self._has_copied(address) for address in replicas])

    async def _has_copied(self, address: str) -> bool:
        """Copy from one replica; False if it has to be asked again."""
        try:
            await self._copy(MasterTables(self._pool, address))
        except (CallError, FieldError, StoreError, UsageError) as error:
            log.warning("the replica at %s does not say how far groups are: %s", address, error)
            return False
        return True

    async def _copy(self, replica: MasterTables) -> None:
        """Copy what is newer than the own progress. Raises CallError, FieldError, StoreError."""
        config, target = self._settings.config, self._target
        group = (config.cluster_name, config.broker_name)
        if fault := identity_fault(await replica.identity(), group, MASTER_ID):
            raise FieldError(fault)
        offsets = await replica.offsets(None, 0)
        delays = await replica.delay_offsets()
        timer = await replica.timer_checkpoint()
        facts = ReturnFacts(own_end=target.log_end(), replica_end=await replica.follower_end())
        if not may_take_progress(facts):
            log.error(
                "the replica at %s has a longer log than this master, which has lost messages: its "
                "progress is not taken over", replica.address,
            )  # fmt: skip
            return
        own = target.tables
        if is_as_new(offsets.version, own.offsets.version):
            own.offsets.copy(offsets.rows, offsets.version)
        if is_as_new(delays.data_version, own.delay_offsets.version):
            own.delay_offsets.copy(delays)
        mine = target.timer_checkpoint()
        is_begun = timer.read_ms > 0
        if is_begun and timer.read_ms >= mine.read_ms and timer.master_offset >= mine.offset:
            await target.follow_timer(timer)
        log.info("the progress at the replica %s is taken over", replica.address)
