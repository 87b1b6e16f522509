"""FixedRoles: the parts of a broker whose settings say whether it is a master or a replica."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from roquet.broker.log.flush import FlushedView
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements
from roquet.broker.replication.master_tables import MasterTables
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.framing import classic_master
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.replication.stream.stream_server import StreamServer
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model.errors import CallError, FieldError, StoreError, UsageError
from roquet.model.topic import MASTER_ID
from roquet.net.clock import Clock, every
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole, DeploymentMode
from roquet.rules.replication.role_change import (
    ReturnFacts,
    acts_as_master,
    is_as_new,
    may_take_progress,
)
from roquet.store.timer.layout import TimerCheckpoint
from roquet.wire.calls.admin.namesrv import BrokerMembersBody, GetBrokerMembers
from roquet.wire.fastjson import codec

log = logger(__name__)

LOOK_MS: Final = 1_000
"""Ms between two questions who is alive, as with Apache's brokers."""

TIMEOUT_MS: Final = 1_000
"""Timeout of the question in ms."""

RETRY_MS: Final = 1_000
"""Ms between two tries to reach the replicas."""

PATIENCE_MS: Final = 10_000
"""Ms after which a master goes on without the progress of its replicas: senders wait for it."""


class ActingMaster:
    """Whether this replica stands in for the master of its group, which is away.

        name servers ◀── who is alive? ── each second
             └──▶ the master       ──▶ this is a replica like any other
             └──▶ only replicas    ──▶ the lowest id acts: consumers read, commit and lock there

    It takes no messages and delivers none: delayed, timed and popped messages, and transactions,
    wait for the master. Only where roles are fixed, and with the setting `acting_master` at all
    brokers of the group. Source: Apache RocketMQ 5.5.0, BrokerController.syncBrokerMemberGroup.
    """

    def __init__(self, settings: RuntimeSettings, role: RoleCell) -> None:
        self._settings = settings
        self._role = role
        self.is_acting = False
        self.on_change: list[Callable[[], object]] = []
        """Each is called after a change, in the order of subscription."""
        self.on_outdated: list[Callable[[], object]] = []
        """Each is called when the role does not say what name servers know of the master."""

    def follow_role(self, _before: Role, role: Role) -> None:
        """Act no more once this broker is the master."""
        if role.is_master:
            self._act(is_acting=False)

    async def step(self, pool: ChannelPool) -> None:
        """Ask name servers who is alive; while none of them answers nothing changes."""
        if self._role.current.is_master:
            return
        members = await group_members(self._settings, pool)
        role = self._role.current
        if members is None or role.is_master:
            return
        self._act(is_acting=acts_as_master(members, role.broker_id))
        if (MASTER_ID in members) != (role.master is not None):
            for callback in self.on_outdated:
                callback()

    def _act(self, *, is_acting: bool) -> None:
        if is_acting == self.is_acting:
            return
        self.is_acting = is_acting
        if is_acting:
            log.warning("the master is away: consumers read, commit and lock at this replica")
        else:
            log.warning("this replica does not act as master any more")
        for callback in self.on_change:
            callback()


async def group_members(settings: RuntimeSettings, pool: ChannelPool) -> Mapping[int, str] | None:
    """Addresses of the brokers of this name that any name server knows, by id.

    None while no name server answers.
    """
    config = settings.config
    answers = await asyncio.gather(
        *(_members(server, config, pool) for server in config.name_servers)
    )
    known = [answer for answer in answers if answer is not None]
    if not known:
        return None
    return {broker_id: address for answer in known for broker_id, address in answer.items()}


async def _members(
    server: str, config: BrokerConfig, pool: ChannelPool
) -> Mapping[int, str] | None:
    call = GetBrokerMembers(cluster_name=config.cluster_name, broker_name=config.broker_name)
    try:
        reply = await pool.call(server, call, TIMEOUT_MS)
        group = codec.loads(reply.body, BrokerMembersBody).broker_member_group
    except (CallError, FieldError) as error:
        log.debug("name server %s does not say who is alive: %s", server, error)
        return None
    return {} if group is None else group.broker_addrs


class ReturnTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the master that progress goes to."""

    tables: BrokerTables
    log_end: Callable[[], int]
    """End of the own log."""
    timer_checkpoint: Callable[[], TimerCheckpoint]
    follow_timer: Callable[[TimerCheckpoint], Awaitable[object]]
    """Take the timer's progress of a replica."""


class CopyBack:
    """Copies progress from the replicas of a master that is about to begin.

        start ──▶ fenced: no message is taken, no name server is told
                     │ each replica that name servers know: offsets, delay levels, timer
                     ▼
                  master: what its own files say is older, so groups would read again what they
                  handled

    A replica that does not answer is asked again, for ten seconds; then the master goes on without
    it, and groups repeat what they had committed there. Source: Apache RocketMQ 5.5.0,
    BrokerPreOnlineService.
    """

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
        target = self._target
        if fault := (await replica.identity()).fault(self._settings.config, MASTER_ID):
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


class FixedRoles:
    """Parts of a broker whose settings fix its role."""

    def __init__(
        self,
        message_log: MessageLog,
        settings: RuntimeSettings,
        clock: Clock,
        return_target: ReturnTarget,
    ) -> None:
        """Begin in the role of the settings. Raises StoreFailed."""
        config, store = settings.config, message_log.store
        self._settings = settings
        self._clock = clock
        self._return_target = return_target
        self._view = FlushedView(store, message_log.arrivals, message_log.flush, config)
        self.flush_hidden = message_log.flush.request
        """Called for each message that is hidden until it is on the disk."""
        self.role = RoleCell(_first_role(config))
        self.acting_master = ActingMaster(settings, self.role)
        is_fixed = not config.has_acting_master
        mode = DeploymentMode.FIXED_ROLES if is_fixed else DeploymentMode.ACTING_MASTER
        self.acknowledgements = Acknowledgements(
            store, message_log.flush, settings, clock, self.role, mode
        )
        framing = classic_master(store, self.acknowledgements, settings)
        self.stream_server = StreamServer(store, settings, clock, self.role, framing)
        self.stream_client = StreamClient(message_log, settings, clock, self.role)

    def settings_fault(self, _before: BrokerConfig, _config: BrokerConfig) -> str | None:
        """Why settings cannot be in force here; None when they can."""
        return None

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings: what consumers see, and which master a replica follows."""
        self._view.configure(config)
        if config.ha_master is not None and not self.role.current.is_master:
            self.role.change(replace(self.role.current, master_stream=config.ha_master))

    def follow_flush(self) -> None:
        """Show what is on the disk by now."""
        self._view.show_flushed()

    def work(
        self, _address: str, pool: ChannelPool, _rng: Random
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Tasks of a group in which a replica stands in for the master; none in another."""
        if not self._settings.config.has_acting_master:
            return
        yield every(LOOK_MS, lambda _: self.acting_master.step(pool), self._clock)
        if self.role.current.is_master:
            target, settings = self._return_target, self._settings
            yield CopyBack(target, self.role, settings, pool, self._clock).serve()

    async def release(self) -> None:
        """Nobody else is to lead when this broker stops."""


def _first_role(config: BrokerConfig) -> Role:
    """Role of a broker whose settings fix it.

    A replica gets the log from where the settings say; None: where name servers say. A master that
    a replica may have stood in for takes no messages before it knows how far groups are
    (`CopyBack`).
    """
    is_master = config.broker_role is not BrokerRole.SLAVE
    return Role(
        role=config.broker_role,
        broker_id=config.broker_id,
        master_stream=None if is_master else config.ha_master,
        is_fenced=is_master and config.has_acting_master,
    )
