"""RoleTransitions: how a broker becomes master or replica, step by step.

    lead     fenced ─▶ stream left ─▶ torn record cut ─▶ epoch noted on the disk ─▶ set begins
             ─▶ master, fenced ── lease ──▶ services start, messages are taken
    follow   fenced ─▶ connections of replicas closed ─▶ stream left ─▶ replica of the new master
             ─▶ its stream is looked for; the handshake cuts the log

The tasks of each role change with the role (`role.RoleTasks`): those of a master begin once it is
not fenced any more. Source: Apache RocketMQ 5.5.0, ReplicasManager and AutoSwitchHAService.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.broker.log.flush import ConfirmedView
from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.broker.replication.control.machine_boot import BootNote
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.epoch_framing import EpochLog
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.log_records import logger
from roquet.model.errors import RoquetError, StoreError
from roquet.model.settings import join_address, parse_address
from roquet.model.topic import MASTER_ID
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.rules.replication.epochs import last_epoch
from roquet.rules.replication.role_change import AdoptSet, FollowMaster, LeadGroup
from roquet.rules.replication.sync_state import SyncState
from roquet.store.store import Store
from roquet.wire.calls.replication import ExchangeHaInfo

log = logger(__name__)

INTERVAL_MS: Final = 200
"""Ms between two looks whether there is a master to be asked."""

TIMEOUT_MS: Final = 1_000
"""Timeout of the question in ms."""


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Log of this broker, by which a controller compares candidates."""

    epoch: int
    """Last epoch; -1 without any."""
    end: int
    confirmed: int
    members: frozenset[int] = frozenset()
    """Sync-state set that this broker knows as its master; empty at a replica."""
    set_version: int = 0


class RoleTransitions:
    """Changes the role of one broker."""

    def __init__(  # noqa: PLR0913 - the parts of a role
        self,
        role: RoleCell,
        store: Store,
        epochs: EpochLog,
        sync_set: SyncSet,
        view: ConfirmedView,
        stream: StreamClient,
        *,
        note: BootNote,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._role = role
        self._store = store
        self._epochs = epochs
        self._set = sync_set
        self._view = view
        self._stream = stream
        self._note = note
        self.may_be_elected = note.is_whole
        """Whether the log certainly has all that this broker has acknowledged."""
        self._flush = flush
        """Brings the log to the disk."""

    async def lead(self, broker_id: int, step: LeadGroup) -> None:
        """Become master, fenced until a lease is granted. Raises StoreError."""
        await self.stop_leading(broker_id, step.epoch)
        raw = self._store.raw
        if step.epoch <= self._epochs.latest:
            raise StoreError(
                f"the log has epoch {self._epochs.latest} already: it cannot begin {step.epoch}"
            )
        raw.cut_torn()
        # This broker is the only member of its set now: what was acknowledged before, and is in
        # memory alone here, must not go with the power of its machine.
        await self._flush()
        start = (
            raw.end if self._epochs.entries else raw.begin
        )  # a log without epochs gets its first
        self._epochs.append(step.epoch, start)
        state = SyncState(members=step.members, version=step.set_version)
        self._set.begin(broker_id, state, raw.end)
        self._note_whole()
        self._role.change(
            Role(role=BrokerRole.SYNC_MASTER, broker_id=MASTER_ID, epoch=step.epoch, is_fenced=True)
        )

    async def follow(self, broker_id: int, step: FollowMaster) -> None:
        """Become a replica; its stream is looked for."""
        await self.stop_leading(broker_id, step.epoch)
        self._role.change(
            Role(role=BrokerRole.SLAVE, broker_id=broker_id, epoch=step.epoch, master=step.address)
        )

    def adopt(self, step: AdoptSet) -> None:
        """Take over the sync-state set."""
        self._set.adopt(step.members, step.set_version)

    async def stop_leading(self, broker_id: int, epoch: int) -> None:
        """Take no messages, and follow nobody; returns once nothing is appended any more."""
        if self._set.state.members:
            shown = self._set.confirmed
            self._set.end_term()
            self._view.show(shown)
        self._role.change(
            Role(role=BrokerRole.SLAVE, broker_id=broker_id, epoch=epoch, is_fenced=True)
        )
        await self._stream.leave()

    def fence(self, *, is_fenced: bool) -> None:
        """Take no messages while the lease is over, and take them again.

        Services begin by reading what they noted in the log, so it has to be confirmed before: a
        later call takes messages again.
        """
        role = self._role.current
        if not role.is_master or role.is_fenced == is_fenced:
            return
        self._set.confirm()
        if is_fenced or self._set.confirmed >= self._store.raw.end:
            self._role.change(msgspec.structs.replace(role, is_fenced=is_fenced))

    def facts(self) -> LogFacts:
        """Log of this broker now."""
        end, known = self._store.raw.end, self._set.state
        return LogFacts(
            epoch=last_epoch(self._epochs.within(end)),
            end=end,
            confirmed=self._set.confirmed if known.members else 0,
            members=known.members,
            set_version=known.version,
        )

    def confirmed(self, position: int, *, is_whole: bool) -> None:
        """Show what the master says is confirmed, as far as it is here.

        `is_whole` says that the log has all that was ever acknowledged.
        """
        self._view.show(position)
        if is_whole:
            self._note_whole()

    def _note_whole(self) -> None:
        """Note that the log has all that was ever acknowledged. Raises StoreError."""
        if not self.may_be_elected and self.disk_failure is None:
            self._note.note_whole()
            self.may_be_elected = True

    @property
    def disk_failure(self) -> StoreError | None:
        """Why the disk takes nothing any more, for as long as this process runs; None: it does."""
        return self._store.failure

    @property
    def can_be_replaced(self) -> bool:
        """Whether another member of the set can be elected in place of this master."""
        return self._set.can_be_replaced

    def note_failure(self) -> None:
        """Note that the disk has failed: it may have dropped what was in memory alone.

        A restart in the same boot of the machine would find a log that counts as whole.
        """
        try:
            self._note.note_failed()
        except StoreError as error:
            log.critical(
                "the disk has failed, and does not take a note of that: start this broker again "
                "with an empty directory (%s)", error,
            )  # fmt: skip

    def check_epochs(self, _now_ms: int = 0) -> None:
        """Forget the epochs of deleted files."""
        self._epochs.expire(self._store.raw.begin)


class MasterLocator:
    """Asks the master of a replica where its stream is, while there is no stream.

    The controller names the master's address for clients; request 906 to that address answers with
    the one for replicas. Apache's replicas wait for the name server's answer to their next
    registration, which may be the old master's for half a minute.
    """

    def __init__(
        self, role: RoleCell, stream: StreamClient, pool: ChannelPool, clock: Clock
    ) -> None:
        self._role = role
        self._stream = stream
        self._pool = pool
        self._clock = clock

    async def serve(self) -> None:
        """Ask, forever."""
        while True:
            await self.step()
            await self._clock.sleep(INTERVAL_MS)

    async def step(self) -> None:
        """Ask once, if there is a master and no stream."""
        role = self._role.current
        if role.is_master or role.master is None or self._stream.facts.is_connected:
            return
        try:
            reply = await self._pool.call(role.master, ExchangeHaInfo(), TIMEOUT_MS)
            told = reply.master_ha_address
            stream = join_address(*parse_address(told, "masterHaAddress")) if told else None
        except RoquetError as error:
            log.debug("the master at %s does not say where its stream is: %s", role.master, error)
            return
        if stream is not None and self._role.current is role:
            self._role.change(replace(role, master_stream=stream))
