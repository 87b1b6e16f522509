"""Assembly: builds the parts of a broker, each from those before it.

store ─▶ tables ─▶ log ─▶ coordination ─▶ delivery ─▶ control ─▶ replication
"""

import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from roquet.broker.access.access_control import AccessControl
from roquet.broker.access.access_file import FILE_NAME as ACCESS_FILE_NAME
from roquet.broker.access.access_file import AccessFile
from roquet.broker.admission import Admission
from roquet.broker.broker import Broker
from roquet.broker.control import ControlPlane
from roquet.broker.coordination import GroupCoordination
from roquet.broker.delivery import DeliveryServices
from roquet.broker.filtering.filter_cache import FilterCache
from roquet.broker.ingest.append import BrokerOrigin, Ingest
from roquet.broker.ingest.destination import Destinations
from roquet.broker.ingest.retry_topics import RetryTopics
from roquet.broker.ingest.set_aside import SetAside
from roquet.broker.log.flush import Flush
from roquet.broker.log.flushed_view import FlushedView
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.log.message_log import MessageLog
from roquet.broker.quotas import RequestQuotas
from roquet.broker.replication.acting_master import ActingMaster
from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements
from roquet.broker.replication.control.machine_boot import UNKNOWN, BootNote
from roquet.broker.replication.controller_mode import ControllerMode, ReplicationFiles
from roquet.broker.replication.replication import Replication
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.framing import classic_master
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.replication.stream.stream_server import StreamServer
from roquet.broker.services.broker_address import advertised_address, encode_address
from roquet.broker.services.broker_rebalance import BrokerRebalance
from roquet.broker.services.delayed_delivery import DelayedDelivery
from roquet.broker.services.delivery_checkpoints import DeliveryCheckpoints
from roquet.broker.services.handover import Handover
from roquet.broker.services.peer_brokers import PeerBrokers
from roquet.broker.services.registration import RegistrationTrigger
from roquet.broker.services.revive import PopRevive
from roquet.broker.services.sampling import StatisticsSampler
from roquet.broker.services.timer.deliveries import TimerContext
from roquet.broker.services.timer.timer import Timer, offset_of
from roquet.broker.services.transactions.transactions import Transactions
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.statistics import Statistics
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.request_modes import RequestModes
from roquet.broker.tables.saved_table import TableFile
from roquet.broker.tables.timer_metrics import TimerMetrics
from roquet.broker.tables.topics import Topics, system_topic_names
from roquet.net.clock import Clock
from roquet.net.limits.fair_share import FairShare
from roquet.rules.delay.timer import window_ms
from roquet.rules.replication.acknowledgement import BrokerRole, DeploymentMode
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.epoch_file import FILE_NAME as EPOCH_FILE_NAME
from roquet.store.replication.epoch_file import EpochFile
from roquet.store.replication.identity_file import FILE_NAME as IDENTITY_FILE_NAME
from roquet.store.replication.identity_file import IdentityFile
from roquet.store.store import Store
from roquet.store.timer.timers import TimerStore

MEMORY: Final = Path("/memory")
"""The directory of files that are in memory."""

MEMORY_GUESSED: Final = 8 * 1024**3
"""Bytes of a machine that does not say how many it has."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a broker is built from, besides its store."""

    config: BrokerConfig
    clock: Clock
    rng: Random
    files: Files | None = None
    """None are real files, or those in memory for a broker without a directory."""
    boot_note: BootNote | None = None
    """Note whether the log has all that an earlier process appended; None: it does not matter."""

    def files_or_default(self) -> Files:
        """The files that the broker uses."""
        if self.files is not None:
            return self.files
        return MemoryFiles() if self.config.store_dir is None else RealFiles()

    def origin(self, address: str) -> BrokerOrigin:
        """The origin that this process writes into messages, under an address."""
        seed = self.rng.getrandbits(32)
        return BrokerOrigin(store_host=encode_address(address), pid=os.getpid(), seed=seed)

    def table_file(self, name: str) -> TableFile | None:
        """The file of a table; None for a broker in memory, whose tables are not read again."""
        directory = self.config.store_dir
        if directory is None:
            return None
        return TableFile(self.files or RealFiles(), Path(directory) / "config" / name)

    def access_file(self) -> AccessFile | None:
        """The file of users and policies; None for a broker in memory."""
        directory = self.config.store_dir
        if directory is None:
            return None
        return AccessFile(self.files or RealFiles(), directory / "config" / ACCESS_FILE_NAME)


def build(environment: Environment, store: Store) -> Broker:
    """The parts of a broker over an open store."""
    config, clock = environment.config, environment.clock
    settings = RuntimeSettings(config, environment.files)
    origin = environment.origin(advertised_address(config, config.port))
    tables = _tables(environment, store, settings)
    retry_topics = RetryTopics(
        topics=tables.topics,
        groups=tables.groups,
        locks=tables.locks,
        clock=clock,
        settings=settings,
    )
    message_log = _message_log(environment, store, origin, retry_topics, settings)
    return Broker(
        log=message_log,
        delivery=_delivery(environment, message_log, tables, retry_topics, settings),
        tables=tables,
        coordination=_coordination(environment, message_log, tables, settings),
        control=_control(environment, message_log, settings),
        replication=_replication(environment, message_log, settings),
        access=AccessControl(config, environment.access_file()),
    )


def _replication(
    environment: Environment, message_log: MessageLog, settings: RuntimeSettings
) -> Replication:
    config, clock = environment.config, environment.clock
    if config.controller_mode:
        return _with_controller(environment, message_log, settings)
    store = message_log.store
    FlushedView(message_log, settings)
    role = RoleCell(_first_role(config))
    mode = DeploymentMode.FIXED_ROLES
    if config.has_acting_master:
        mode = DeploymentMode.ACTING_MASTER
    acknowledgements = Acknowledgements(store, message_log.flush, settings, clock, role, mode)
    return Replication(
        role=role,
        acknowledgements=acknowledgements,
        stream_server=StreamServer(
            store, settings, clock, role, classic_master(store, acknowledgements, settings)
        ),
        stream_client=StreamClient(message_log, settings, clock, role),
        acting_master=ActingMaster(settings, role) if config.has_acting_master else None,
    )


def _first_role(config: BrokerConfig) -> Role:
    """Role of a broker whose settings fix it.

    A master that a replica may have stood in for takes no messages before it knows how far groups
    are (`copy_back`).
    """
    is_master = config.broker_role is not BrokerRole.SLAVE
    return Role(
        role=config.broker_role,
        broker_id=config.broker_id,
        is_fenced=is_master and config.has_acting_master,
    )


def _with_controller(
    environment: Environment, message_log: MessageLog, settings: RuntimeSettings
) -> Replication:
    config, files = environment.config, environment.files_or_default()
    directory = config.store_dir or MEMORY
    mode = ControllerMode(
        message_log,
        settings,
        environment.clock,
        ReplicationFiles(
            epochs=EpochFile(config.epoch_file or directory / EPOCH_FILE_NAME, files),
            identity=identity_file(config, directory, files),
            boot_note=environment.boot_note or _note_in_memory(),
        ),
    )
    return Replication(
        role=mode.role,
        acknowledgements=mode.acknowledgements,
        stream_server=mode.stream_server,
        stream_client=mode.stream_client,
        controller_mode=mode,
    )


def identity_file(config: BrokerConfig, directory: Path, files: Files) -> IdentityFile:
    """File of the broker's id in its group."""
    return IdentityFile(config.identity_file or directory / IDENTITY_FILE_NAME, files)


def _note_in_memory() -> BootNote:
    """Note of a broker in memory, which has no log from before."""
    note = BootNote(MemoryFiles(), MEMORY, UNKNOWN)
    note.begin()
    return note


def _tables(environment: Environment, store: Store, settings: RuntimeSettings) -> BrokerTables:
    config, file, now_ms = environment.config, environment.table_file, environment.clock.now_ms()
    return BrokerTables(
        topics=Topics(
            file("topics.json"),
            config,
            now_ms,
            store.has_messages,
            lambda topic: store.deleted_before(topic) > 0,
        ),
        groups=Groups(file("subscriptionGroup.json"), settings, now_ms),
        offsets=ConsumerOffsets(file("consumerOffset.json")),
        request_modes=RequestModes(file("messageRequestMode.json")),
        ordered_pops=OrderedPops(file("consumerOrderInfo.json")),
        delay_offsets=DelayOffsets(file("delayOffset.json")),
    )


def _message_log(
    environment: Environment,
    store: Store,
    origin: BrokerOrigin,
    retry_topics: RetryTopics,
    settings: RuntimeSettings,
) -> MessageLog:
    config, clock = environment.config, environment.clock
    arrivals = LongPolling(clock)
    return MessageLog(
        store=store,
        ingest=Ingest(
            store, config, clock, origin, arrivals.arrived, retry_topics.dead_letter_topic
        ),
        flush=Flush(store, settings, clock),
        arrivals=arrivals,
        filters=FilterCache(),
        memory=_memory(),
    )


def _coordination(
    environment: Environment,
    message_log: MessageLog,
    tables: BrokerTables,
    settings: RuntimeSettings,
) -> GroupCoordination:
    clock = environment.clock
    peer_brokers = PeerBrokers(settings, clock, tables.topics)
    handover = Handover(tables.clients, clock)
    rebalance = BrokerRebalance(
        message_log=message_log,
        tables=tables,
        peer_brokers=peer_brokers,
        handover=handover,
        clock=clock,
    )
    return GroupCoordination(
        rebalance=rebalance,
        handover=handover,
        peer_brokers=peer_brokers,
        tables=tables,
        settings=settings,
    )


def _delivery(
    environment: Environment,
    message_log: MessageLog,
    tables: BrokerTables,
    retry_topics: RetryTopics,
    settings: RuntimeSettings,
) -> DeliveryServices:
    config, clock = environment.config, environment.clock
    set_aside = SetAside(message_log.store, message_log.ingest, tables.topics, clock)
    destinations = Destinations(topics=tables.topics, clock=clock, settings=settings)
    revive = PopRevive(message_log, tables, retry_topics, set_aside, clock, config)
    timer = _timer(environment, message_log, destinations, set_aside, revive)
    checkpoints = DeliveryCheckpoints(message_log.store, tables, timer, revive, clock)
    tables.offsets.before_save = checkpoints.lower
    timer.may_save = checkpoints.wait_confirmed
    return DeliveryServices(
        delay=DelayedDelivery(
            message_log=message_log,
            delay_offsets=tables.delay_offsets,
            destinations=destinations,
            set_aside=set_aside,
            clock=clock,
            levels=config.message_delay_levels,
            may_save=checkpoints.wait_confirmed,
        ),
        timer=timer,
        transactions=Transactions(message_log, tables, destinations, set_aside, clock, settings),
        revive=revive,
        checkpoints=checkpoints,
        retry_topics=retry_topics,
        set_aside=set_aside,
    )


def _timer(
    environment: Environment,
    message_log: MessageLog,
    destinations: Destinations,
    set_aside: SetAside,
    revive: PopRevive,
) -> Timer:
    store, directory = message_log.store, environment.config.store_dir
    files = environment.files_or_default()
    now_ms = environment.clock.now_ms()
    timers = TimerStore(directory or MEMORY, files, partial(offset_of, store), now_ms)
    timers.on_failure = store.fail
    context = TimerContext(
        message_log=message_log,
        destinations=destinations,
        set_aside=set_aside,
        timers=timers,
        metrics=TimerMetrics(environment.table_file("timermetrics")),
        window_ms=window_ms(environment.config.retention),
        on_revive_note=revive.noted,
    )
    return Timer(context, environment.clock)


def _control(
    environment: Environment, message_log: MessageLog, settings: RuntimeSettings
) -> ControlPlane:
    config, clock = environment.config, environment.clock
    statistics = Statistics(clock.now_ms(), system_topic_names(config))
    return ControlPlane(
        settings=settings,
        admission=Admission(config),
        quotas=RequestQuotas(config),
        statistics=statistics,
        sampler=StatisticsSampler(message_log, statistics),
        registration=RegistrationTrigger(),
        slow_requests=FairShare(clock),
        clock=clock,
        rng=environment.rng,
    )


def _memory() -> int:
    """Bytes of memory that this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return MEMORY_GUESSED
