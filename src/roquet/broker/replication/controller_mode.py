"""Controller mode: the parts of a broker that gets its role from a controller.

epochs, sync-state set, confirmed view ─▶ streams with epochs ─▶ transitions ─▶ failover
"""

from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

from roquet.broker.log.flush import ConfirmedView
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.confirmation.set_acknowledgements import (
    LogsInForce,
    MasterTermCell,
    SetAcknowledgements,
    needed_of,
)
from roquet.broker.replication.confirmation.sync_set import ReplicaPlaces, SyncSet
from roquet.broker.replication.control.broker_id import known_id
from roquet.broker.replication.control.controller_client import ControllerClient, OwnBroker
from roquet.broker.replication.control.failover import Failover
from roquet.broker.replication.control.failover_context import FailoverContext, FailoverSettings
from roquet.broker.replication.control.machine_boot import BootNote, FlushedNote
from roquet.broker.replication.control.set_proposals import SetProposals
from roquet.broker.replication.control.transitions import MasterLocator, RoleTransitions
from roquet.broker.replication.fixed_roles import ActingMaster
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.epoch_framing import (
    EpochLog,
    EpochMaster,
    EpochMasterFraming,
    EpochReplica,
    EpochReplicaFraming,
)
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.replication.stream.stream_server import StreamServer
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.net.clock import Clock, every
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.rules.replication.transfer import patience_ms
from roquet.store.replication.epoch_file import EpochFile
from roquet.store.replication.identity_file import IdentityFile
from roquet.store.store import Store

FENCED = Role(role=BrokerRole.SLAVE, broker_id=-1, is_fenced=True)
"""Role of a broker that has no news of its controller yet."""


class ControllerMode:
    """Parts of a broker whose role a controller decides."""

    def __init__(
        self,
        message_log: MessageLog,
        settings: RuntimeSettings,
        clock: Clock,
        epochs: EpochFile,
        identity: IdentityFile,
        boot_note: BootNote,
    ) -> None:
        """Begin fenced. StoreError for a damaged file, ConfigError for another's identity.

        `boot_note` says whether the log certainly has all that was appended before the start.
        """
        config, store = settings.config, message_log.store
        known_id(identity, config.cluster_name, config.broker_name)
        self._settings = settings
        self._clock = clock
        self._identity = identity
        self._flush = message_log.flush
        self._failover: Failover | None = None
        self.before_cut: list[Callable[[int], object]] = []
        """Each is called with the position before the log is cut there."""
        self.after_cut: list[Callable[[], object]] = []
        self._boot_note = FlushedNote(boot_note, settings, store)
        self.settings_fault = self._boot_note.fault
        """Called with the settings before and after a change: why these cannot be in force."""
        self.role = RoleCell(FENCED)
        self.acting_master = ActingMaster(settings, self.role)
        """Never acts: where the master is away, another one is elected."""
        self.epochs = EpochLog(epochs)
        self.term = MasterTermCell(clock)
        self.view = ConfirmedView(store, message_log.arrivals)
        self.view.show(store.confirmed_at_open)
        self.logs = logs = LogsInForce(settings)
        self.sync_set = SyncSet(
            clock, lambda: store.raw.end, lambda: logs.current, self.view.show,
            flushed=lambda: store.flushed_position,
            only_flushed=self._only_flushed,
        )  # fmt: skip
        self.configure = logs.configure
        self.acknowledgements = SetAcknowledgements(
            message_log.flush, settings, clock, self.role, self.sync_set, self.term
        )
        master = self._epoch_master(store)
        self.stream_server = StreamServer(
            store,
            settings,
            clock,
            self.role,
            lambda number, _host, write: EpochMasterFraming(master, number, write),
        )
        replica = self._epoch_replica(store)
        self.stream_client = StreamClient(
            message_log, settings, clock, self.role, lambda: EpochReplicaFraming(replica)
        )
        self.transitions = RoleTransitions(
            self.role, store, self.epochs, self.sync_set, self.view, self.stream_client,
            note=boot_note, flush=message_log.flush.step,
        )  # fmt: skip

    def _epoch_master(self, store: Store) -> EpochMaster:
        places = ReplicaPlaces(
            self.sync_set,
            self._clock,
            lambda: store.raw.end,
            lambda: patience_ms(self._settings.config.ha_heartbeat_interval),
        )
        return EpochMaster(store=store, epochs=self.epochs, sync_set=self.sync_set, places=places)

    def _epoch_replica(self, store: Store) -> EpochReplica:
        return EpochReplica(
            store=store,
            epochs=self.epochs,
            broker_id=lambda: self.role.current.broker_id,
            from_last_file=self._settings.config.sync_from_last_file,
            is_learner=self._settings.config.async_learner,
            confirmed=lambda: self.view.position or 0,
            before_cut=self.before_cut,
            after_cut=self.after_cut,
            on_confirmed=lambda position, is_whole: self.transitions.confirmed(
                position, is_whole=is_whole
            ),
        )

    def follow_flush(self) -> None:
        """Confirm what is on the disk by now, and note it."""
        self.sync_set.confirm()
        self._boot_note.note_if_flushed()

    def flush_hidden(self) -> None:
        """Have a master flush a message that is not shown before: services ask for no flush."""
        if self.sync_set.shows_flushed and self.role.current.is_master:
            self._flush.request()

    def _only_flushed(self, size: int) -> bool:
        config = self._settings.config
        return config.sync_flush or size < config.in_sync_replicas_min

    def notice(self) -> None:
        """Ask the controller now who leads."""
        if self._failover is not None:
            self._failover.notice()

    def work(
        self, address: str, pool: ChannelPool, rng: Random
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Tasks of this mode, of a broker that listens at an address already."""
        settings, clock = self._settings, self._clock
        member = OwnBroker(
            cluster=settings.config.cluster_name, name=settings.config.broker_name, address=address
        )
        client = ControllerClient(member, lambda: settings.config.controllers, pool, clock)
        context = FailoverContext(
            member=member,
            client=client,
            identity=self._identity,
            transitions=self.transitions,
            term=self.term,
            logs=self.logs,
            settings_in_force=lambda: failover_settings(settings.config),
            clock=clock,
            rng=rng,
        )
        failover = self._failover = Failover(context, self.epochs.latest)
        proposals = SetProposals(
            self.sync_set,
            client,
            clock,
            failover,
            lambda: settings.config.ha_behind_max,
            self._flush.step,
        )
        yield failover.serve()
        yield proposals.serve()
        yield every(lambda: settings.config.sync_set_check_interval, proposals.check, clock)
        yield every(
            lambda: settings.config.sync_set_check_interval, self.transitions.check_epochs, clock
        )
        yield MasterLocator(self.role, self.stream_client, pool, clock).serve()

    async def release(self) -> None:
        """Let another lead at once: this broker is about to stop."""
        if self._failover is not None:
            await self._failover.release()


def failover_settings(config: BrokerConfig) -> FailoverSettings:
    """Settings of controller mode."""
    return FailoverSettings(
        poll_ms=config.controller_poll_interval,
        heartbeat_ms=config.broker_heartbeat_interval,
        heartbeat_timeout_ms=config.controller_heartbeat_timeout,
        priority=config.election_priority,
        waits_for_all=config.all_ack_in_sync_set,
        logs_needed=None if config.all_ack_in_sync_set else needed_of(config),
        is_learner=config.async_learner,
    )
