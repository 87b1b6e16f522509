"""Assembly: builds the parts of a broker, each from those before it.

store ─▶ tables ─▶ log ─▶ coordination ─▶ delivery ─▶ control ─▶ replication
"""

import os
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.broker.access.access_control import AccessControl
from roquet.broker.access.access_file import FILE_NAME as ACCESS_FILE_NAME
from roquet.broker.access.access_file import AccessFile
from roquet.broker.admission import Admission, RequestQuotas
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
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.control.machine_boot import UNKNOWN, BootNote
from roquet.broker.replication.fixed_roles import FixedRoles, ReturnTarget
from roquet.broker.replication.replication import Replication
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
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.epoch_file import FILE_NAME as EPOCH_FILE_NAME
from roquet.store.replication.epoch_file import EpochFile
from roquet.store.replication.identity_file import FILE_NAME as IDENTITY_FILE_NAME
from roquet.store.replication.identity_file import IdentityFile
from roquet.store.store import Store
from roquet.store.timer.timers import TimerStore

if TYPE_CHECKING:
    from roquet.broker.replication.controller_mode import ControllerMode

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
    return _Assembly(environment, store).broker()


class _Assembly:
    """The parts that others are built from."""

    def __init__(self, environment: Environment, store: Store) -> None:
        config, clock = environment.config, environment.clock
        self.environment, self.config, self.clock = environment, config, clock
        self.settings = RuntimeSettings(config, environment.files)
        origin = environment.origin(advertised_address(config, config.port))
        self.tables = tables = self._tables(store)
        self.retry_topics = RetryTopics(
            topics=tables.topics,
            groups=tables.groups,
            locks=tables.locks,
            clock=clock,
            settings=self.settings,
        )
        arrivals, retry_topics = LongPolling(clock), self.retry_topics
        self.log = MessageLog(
            store=store,
            ingest=Ingest(
                store,
                config,
                clock,
                origin,
                arrivals.arrived,
                retry_topics.dead_letter_topic,
                tables.topics.write_queues,
            ),
            flush=Flush(store, self.settings, clock),
            arrivals=arrivals,
            filters=FilterCache(),
            memory=_memory(),
        )

    def _tables(self, store: Store) -> BrokerTables:
        file, now_ms = self.environment.table_file, self.clock.now_ms()
        return BrokerTables(
            topics=Topics(
                file("topics.json"),
                self.config,
                now_ms,
                store.has_messages,
                lambda topic: store.deleted_before(topic) > 0,
            ),
            groups=Groups(file("subscriptionGroup.json"), self.settings, now_ms),
            offsets=ConsumerOffsets(file("consumerOffset.json")),
            request_modes=RequestModes(file("messageRequestMode.json")),
            ordered_pops=OrderedPops(file("consumerOrderInfo.json")),
            delay_offsets=DelayOffsets(file("delayOffset.json")),
        )

    def broker(self) -> Broker:
        delivery = self._delivery()
        return Broker(
            log=self.log,
            delivery=delivery,
            tables=self.tables,
            coordination=self._coordination(),
            control=self._control(),
            replication=self._replication(delivery.timer),
            access=AccessControl(self.config, self.environment.access_file()),
        )

    def _delivery(self) -> DeliveryServices:
        log, tables, clock = self.log, self.tables, self.clock
        set_aside = SetAside(log.store, log.ingest, tables.topics, clock)
        destinations = Destinations(topics=tables.topics, clock=clock, settings=self.settings)
        revive = PopRevive(log, tables, self.retry_topics, set_aside, clock, self.config)
        timer = self._timer(destinations, set_aside, revive)
        checkpoints = DeliveryCheckpoints(log.store, tables, timer, revive, clock)
        return DeliveryServices(
            delay=DelayedDelivery(
                message_log=log,
                delay_offsets=tables.delay_offsets,
                destinations=destinations,
                set_aside=set_aside,
                clock=clock,
                levels=self.config.message_delay_levels,
                may_save=checkpoints.wait_confirmed,
            ),
            timer=timer,
            transactions=Transactions(log, tables, destinations, set_aside, clock, self.settings),
            revive=revive,
            checkpoints=checkpoints,
            retry_topics=self.retry_topics,
            set_aside=set_aside,
        )

    def _timer(self, destinations: Destinations, set_aside: SetAside, revive: PopRevive) -> Timer:
        store, directory = self.log.store, self.config.store_dir
        files, now_ms = self.environment.files_or_default(), self.clock.now_ms()
        timers = TimerStore(directory or MEMORY, files, partial(offset_of, store), now_ms)
        timers.on_failure = store.fail
        context = TimerContext(
            message_log=self.log,
            destinations=destinations,
            set_aside=set_aside,
            timers=timers,
            metrics=TimerMetrics(self.environment.table_file("timermetrics")),
            window_ms=window_ms(self.config.retention),
            on_revive_note=revive.noted,
        )
        return Timer(context, self.clock)

    def _coordination(self) -> GroupCoordination:
        peer_brokers = PeerBrokers(self.settings, self.clock, self.tables.topics)
        handover = Handover(self.tables.clients, self.clock)
        rebalance = BrokerRebalance(
            message_log=self.log,
            tables=self.tables,
            peer_brokers=peer_brokers,
            handover=handover,
            clock=self.clock,
        )
        return GroupCoordination(
            rebalance=rebalance,
            handover=handover,
            peer_brokers=peer_brokers,
            tables=self.tables,
            settings=self.settings,
        )

    def _control(self) -> ControlPlane:
        statistics = Statistics(self.clock.now_ms(), system_topic_names(self.config))
        return ControlPlane(
            settings=self.settings,
            admission=Admission(self.config),
            quotas=RequestQuotas(self.config),
            statistics=statistics,
            sampler=StatisticsSampler(self.log, statistics),
            registration=RegistrationTrigger(),
            slow_requests=FairShare(self.clock),
            clock=self.clock,
            rng=self.environment.rng,
        )

    def _replication(self, timer: Timer) -> Replication:
        mode: FixedRoles | ControllerMode
        if self.config.controller_mode:
            # Not at the top: half a megabyte of code that brokers with fixed roles do without.
            from roquet.broker.replication import controller_mode

            config, files = self.config, self.environment.files_or_default()
            directory = config.store_dir or MEMORY
            mode = controller_mode.ControllerMode(
                self.log,
                self.settings,
                self.clock,
                EpochFile(config.epoch_file or directory / EPOCH_FILE_NAME, files),
                identity_file(config, directory, files),
                self.environment.boot_note or _note_in_memory(),
            )
        else:
            target = ReturnTarget(
                tables=self.tables,
                log_end=lambda: self.log.store.raw.end,
                timer_checkpoint=lambda: timer.checkpoint,
                follow_timer=timer.follow,
            )
            mode = FixedRoles(self.log, self.settings, self.clock, target)
        return Replication(
            mode=mode,
            role=mode.role,
            acknowledgements=mode.acknowledgements,
            stream_server=mode.stream_server,
            stream_client=mode.stream_client,
        )


def identity_file(config: BrokerConfig, directory: Path, files: Files) -> IdentityFile:
    """File of the broker's id in its group."""
    return IdentityFile(config.identity_file or directory / IDENTITY_FILE_NAME, files)


def _note_in_memory() -> BootNote:
    """Note of a broker in memory, which has no log from before."""
    note = BootNote(MemoryFiles(), MEMORY, UNKNOWN)
    note.begin()
    return note


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return MEMORY_GUESSED
