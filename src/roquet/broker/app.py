"""Builds and runs the broker: store, tables, services, router, in that order.

start   store ─▶ tables ─▶ listen ─▶ loops ─▶ name servers
stop    name servers ─▶ answer what is in flight ─▶ loops ─▶ tables ─▶ flush, close the store
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Final, Self

from roquet.broker.admission import Admission
from roquet.broker.broker import Broker
from roquet.broker.filtering.filter_cache import FilterCache
from roquet.broker.handlers import HANDLERS
from roquet.broker.handlers.offset import OFFSET_MAX
from roquet.broker.handlers.unserved import UNSERVED
from roquet.broker.ingest.append import BrokerOrigin, Ingest
from roquet.broker.ingest.destination import Destinations
from roquet.broker.ingest.retry_topics import RetryTopics
from roquet.broker.ingest.set_aside import INDEX, RecordLocation, SetAside, location_in
from roquet.broker.services.broker_address import (
    advertised_address,
    encode_address,
    warn_of_container_address,
)
from roquet.broker.services.broker_rebalance import BrokerRebalance
from roquet.broker.services.delayed_delivery import SAVE_MS, DelayedDelivery
from roquet.broker.services.flush import CHECKPOINT_MS, Flush
from roquet.broker.services.handover import Handover
from roquet.broker.services.housekeeping import INDEX_MS, RETENTION_MS, SCAN_MS, Housekeeping
from roquet.broker.services.long_polling import LongPolling
from roquet.broker.services.peer_brokers import PeerBrokers
from roquet.broker.services.registration import NameServerRegistration, RegistrationTrigger
from roquet.broker.services.revive import REVIVE_MS, PopRevive
from roquet.broker.services.sampling import StatisticsSampler
from roquet.broker.services.timer.deliveries import TimerContext
from roquet.broker.services.timer.timer import Timer, offset_of
from roquet.broker.services.transactions.checks import RELIEF_MS, TransactionChecks
from roquet.broker.services.transactions.transactions import Transactions
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.statistics import SAMPLE_MS, Statistics
from roquet.broker.tables.clients import Clients
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.locks import Locks
from roquet.broker.tables.offset_resets import OffsetResets
from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.request_modes import RequestModes
from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.broker.tables.timer_metrics import TimerMetrics
from roquet.broker.tables.topics import Topics, is_system_topic, system_topic_names
from roquet.log_records import logger
from roquet.model import names
from roquet.model.errors import StoreError
from roquet.net.clock import SYSTEM_CLOCK, Clock, SteadyClock, every
from roquet.net.fair_share import FairShare
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.rules.delay.timer import window_ms
from roquet.rules.retention import RetentionPolicy
from roquet.store.config import StoreConfig
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.store.timer.timers import TimerStore

log = logger(__name__)

VIP_BELOW: Final = 2
"""How far below a broker's port old clients expect one that serves senders alone."""

OFFSETS: Final = "consumerOffset.json"
"""The table of all groups' progress, below config/."""

MEMORY: Final = Path("/memory")
"""Where files lie that are in memory."""

MEMORY_GUESSED: Final = 8 * 1024**3
"""Bytes of a machine that does not say how many it has."""


class BrokerServer:
    """A running broker: `async with BrokerServer(config) as server: server.address`."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        clock: Clock | None = None,
        *,
        files: Files | None = None,
        rng: Random | None = None,
    ) -> None:
        self.config = config or BrokerConfig()
        self._clock = SteadyClock(SYSTEM_CLOCK) if clock is None else clock
        self._files = files
        self._running = AsyncExitStack()
        self._rng = rng or Random(SystemRandom().getrandbits(64))
        self.address = ""
        """What clients are told: HOST:PORT."""
        self.port = 0
        self.broker: Broker

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as running:
            await self._start(running)
            self._running = running.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._running.aclose()

    async def _start(self, running: AsyncExitStack) -> None:
        """Each part in turn; they are stopped the other way round."""
        store = self._open()
        running.callback(lambda: store.close(self._clock.now_ms()))
        self.broker = broker = self._build(store)
        running.callback(broker.flush.close)
        running.push_async_callback(broker.neighbours.close)
        broker.topics.on_change.append(broker.handover.queues_changed)
        broker.assigning.on_change.append(broker.notify)
        broker.live.judges.append(partial(_fault_of, broker))
        broker.live.on_change.append(partial(_configure, broker))
        _retry_set_aside(broker)
        broker.revival.restore()
        broker.transactions.restore()
        _warn_of_strays(broker)
        _warn_of_lost_tables(broker, self.config.store_dir)
        _lower_progress(broker)
        if (fault := broker.timer.retention_fault(self.config.retention)) is not None:
            log.warning("%s", fault)
        keeping = _housekeeping(broker)
        running.push_async_callback(_save_last, keeping.save, self._clock)
        running.callback(broker.transactions.step)
        delay, timer = self._delay(broker), broker.timer
        running.push_async_callback(_save_last, delay.save, self._clock)
        timer.parts.timers.on_failure = store.fail
        running.callback(timer.close)
        running.push_async_callback(_save_last, timer.save, self._clock)
        loops = _Loops()
        running.push_async_callback(loops.stop)
        await self._listen(running)
        registration = NameServerRegistration(
            self.config, self._clock, self.address, broker.topics.content, broker.news
        )
        broker.topics.on_change.append(broker.news.add)
        broker.live.on_change.append(lambda _, config: registration.configure(config))
        running.push_async_callback(registration.unregister)
        loops.start(*_work(broker, keeping), *_deliveries(delay), *timer.work())
        loops.start(registration.serve())
        await registration.step()
        log.info("broker %s serves at %s", self.config.broker_name, self.address)

    def _open(self) -> Store:
        return Store.open(
            self.config.store_dir,
            store_config(self.config),
            files=self._files,
            now_ms=self._clock.now_ms(),
            pid=os.getpid(),
        )

    def _build(self, store: Store) -> Broker:
        config, clock, now_ms = self.config, self._clock, self._clock.now_ms()
        arrivals = LongPolling(clock)
        origin = self._origin(advertised_address(config, config.port))
        retries = self._retries(now_ms, store)
        put = Ingest(store, config, clock, origin, arrivals.arrived, retries.dead_letter_topic)
        set_aside = SetAside(store, put, retries.topics, clock)
        topics, clients, offsets = retries.topics, Clients(), ConsumerOffsets(self._file(OFFSETS))
        statistics = Statistics(now_ms, system_topic_names(config))
        flush = Flush(store, config, clock)
        neighbours, handover = PeerBrokers(config, clock, topics), Handover(clients, clock)
        return Broker(
            config=config,
            clock=clock,
            rng=self._rng,
            memory=_memory(),
            store=store,
            topics=topics,
            groups=retries.groups,
            offsets=offsets,
            clients=clients,
            locks=retries.locks,
            retries=retries,
            put=put,
            arrivals=arrivals,
            flush=flush,
            set_aside=set_aside,
            timer=self._timer(
                put, store, _homes(config, topics, clock), set_aside, arrivals, flush
            ),
            modes=RequestModes(self._file("messageRequestMode.json")),
            neighbours=neighbours,
            assigning=BrokerRebalance(
                clock=clock,
                store=store,
                offsets=offsets,
                clients=clients,
                neighbours=neighbours,
                handover=handover,
            ),
            news=RegistrationTrigger(),
            handover=handover,
            revival=_revival(config, clock, put, store, retries, offsets, set_aside),
            orders=OrderedPops(self._file("consumerOrderInfo.json")),
            filters=FilterCache(),
            live=RuntimeSettings(config, self._files),
            resets=OffsetResets(),
            admission=Admission(config),
            delays=DelayOffsets(self._file("delayOffset.json")),
            share=FairShare(clock),
            statistics=statistics,
            sampling=StatisticsSampler(store, statistics),
            transactions=_transactions_of(config, clock, put, store, topics, offsets, set_aside),
        )

    def _retries(self, now_ms: int, store: Store) -> RetryTopics:
        file = self._file("topics.json")
        return RetryTopics(
            topics=Topics(file, self.config, now_ms, store.has_messages),
            groups=Groups(self._file("subscriptionGroup.json"), self.config, now_ms),
            locks=Locks(),
            clock=self._clock,
        )

    def _timer(
        self,
        put: Ingest,
        store: Store,
        homes: Destinations,
        set_aside: SetAside,
        arrivals: LongPolling,
        flush: Flush,
    ) -> Timer:
        directory, now_ms = self.config.store_dir, self._clock.now_ms()
        files = self._files or (MemoryFiles() if directory is None else RealFiles())
        parts = TimerContext(
            store=store,
            put=put,
            homes=homes,
            set_aside=set_aside,
            timers=TimerStore(directory or MEMORY, files, partial(offset_of, store), now_ms),
            timings=TimerMetrics(self._file("timermetrics")),
            window_ms=window_ms(self.config.retention),
            noted=lambda *note: self.broker.revival.noted(*note),
        )
        return Timer(parts, arrivals, flush, self._clock)

    def _delay(self, broker: Broker) -> DelayedDelivery:
        config = self.config
        _warn_of_long_delays(config)
        return DelayedDelivery(
            store=broker.store,
            put=broker.put,
            homes=broker.timer.parts.homes,
            set_aside=broker.set_aside,
            delays=broker.delays,
            arrivals=broker.arrivals,
            flush=broker.flush,
            clock=self._clock,
            levels=config.message_delay_levels,
        )

    async def _listen(self, running: AsyncExitStack) -> None:
        router = Router({int(code): reason for code, reason in UNSERVED.items()})
        for call, handler in HANDLERS.items():
            router.add(call, partial(handler, self.broker), self.broker.admission.gate(call))
        config = self.config
        server = Server(
            router,
            host=config.host,
            port=config.port,
            clock=self._clock,
            also=config.port - VIP_BELOW if config.vip_port and config.port > VIP_BELOW else None,
        )
        server.tls = config.server_tls.context() if config.server_tls else None
        server.note_slow_requests(self.broker.share)
        server.on_stopping(self.broker.arrivals.close)
        server.on_stopping(self.broker.handover.close)
        await running.enter_async_context(server)
        self.port = server.port
        self.address = advertised_address(config, server.port)
        warn_of_container_address(config, self.address)
        if config.port != server.port:
            self.broker.put.settle(self._origin(self.address))

    def _origin(self, address: str) -> BrokerOrigin:
        return BrokerOrigin(
            store_host=encode_address(address), pid=os.getpid(), seed=self._rng.getrandbits(32)
        )

    def _file(self, name: str) -> TableFile | None:
        """A table's file; one that is in memory is not worth reading again."""
        directory = self.config.store_dir
        if directory is None:
            return None
        return TableFile(self._files or RealFiles(), Path(directory) / "config" / name)


class _Loops:
    """What runs beside the handlers."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *work: Coroutine[Any, Any, None]) -> None:
        """Let each run until `stop`."""
        self._tasks += [asyncio.create_task(one) for one in work]

    async def stop(self) -> None:
        """End all, and see them end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def store_config(config: BrokerConfig) -> StoreConfig:
    """How the store lays out its files, by the broker's settings."""
    return StoreConfig(
        log_file_size=config.log_file_size,
        queue_file_entries=config.queue_file_entries,
        index_slots=config.index_slots,
        index_entries=config.index_entries,
        delay_levels_ms=config.message_delay_levels,
        retention=retention(config),
    )


def retention(config: BrokerConfig) -> RetentionPolicy:
    """What is to be kept, by the broker's settings."""
    return RetentionPolicy(
        reserved_ms=config.retention,
        delete_hour=config.delete_hour,
        expire_ratio=config.expire_ratio,
        force_ratio=config.force_ratio,
        refuse_ratio=config.refuse_ratio,
        free_min=config.free_min,
    )


def _fault_of(broker: Broker, before: BrokerConfig, config: BrokerConfig) -> str | None:
    """Why settings cannot be in force now; None when they can."""
    shorter = config.retention < before.retention
    return broker.timer.retention_fault(config.retention) if shorter else None


def _configure(broker: Broker, before: BrokerConfig, config: BrokerConfig) -> None:
    """Have other settings in force: whoever holds some of them for speed gets them anew."""
    broker.configure(config)
    for part in (broker.groups, broker.put, broker.flush, broker.neighbours, broker.transactions):
        part.configure(config)
    broker.timer.parts.homes.configure(config)
    broker.admission.configure(config)
    broker.store.set_retention(retention(config))
    if before.retention != config.retention:
        broker.timer.configure(config.retention)
        _warn_of_long_delays(config)
    if (before.permission, before.auto_create_topic) != (
        config.permission, config.auto_create_topic
    ):  # fmt: skip
        broker.topics.configure(config, broker.clock.now_ms())


async def _save_last(save: Callable[[int], Awaitable[None]], clock: Clock) -> None:
    """Write the tables once more; a disk that does not take them must not hold up the stop."""
    try:
        await save(clock.now_ms())
    except StoreError as error:
        log.warning("progress since the last save is lost, groups will read twice: %s", error)


def _retry_set_aside(broker: Broker) -> None:
    """Say which services are told of what is put back to them."""
    kept, revival, transactions = broker.set_aside, broker.revival, broker.transactions
    kept.on_retry[revival.topic] = revival.retried
    kept.on_retry[names.OP_HALF_TOPIC] = transactions.retried
    kept.on_index = broker.store.reindex
    broker.store.on_unindexed(partial(_unindexed, broker))


def _unindexed(broker: Broker, position: int, error: Exception) -> None:
    """A record whose keys cannot be indexed: it is read as ever, but found by no key."""
    raw = broker.store.message_at(position)
    place = location_in(raw, "?", 0) if raw else RecordLocation("?", 0, 0, position)
    broker.set_aside.keep(INDEX, place, error, raw)


def _warn_of_strays(broker: Broker) -> None:
    """Say which messages nobody can read because their topic's settings are gone."""
    strays = sorted(t for t in broker.store.topics() if broker.topics.get(t) is None)
    if strays:
        log.warning(
            "there are messages of %d topics without settings, as %s: create a topic to read them",
            len(strays),
            strays[0],
        )


def _warn_of_lost_tables(broker: Broker, directory: Path | None) -> None:
    """Say which tables are gone that a broker with messages once wrote."""
    tables: dict[str, SavedTable[Any]] = {
        "topics.json": broker.topics,
        "subscriptionGroup.json": broker.groups,
        "consumerOffset.json": broker.offsets,
    }
    lost = [name for name, table in tables.items() if table.is_new]
    if lost and broker.store.end_position and directory is not None:
        log.error(
            "%s has messages, but no %s and no .bak of it: what was in there is lost, and groups"
            " begin as they are set to; stop and restore it from a copy to keep their progress",
            directory / "config",
            ", ".join(lost),
        )
    broker.offsets.unsaved |= broker.offsets.is_new  # from now on a missing one was lost


def _lower_progress(broker: Broker) -> None:
    """Progress beyond a queue's end is of messages that a loss of power took with the log's tail.

    It is taken back before the first new message: those that get the lost ones' offsets would never
    come otherwise.
    """

    def end(topic: str, queue_id: int) -> int:
        if is_system_topic(topic, broker.config):
            return OFFSET_MAX
        return broker.store.bounds(topic, queue_id)[1]

    if count := broker.offsets.lower(end):
        log.warning(
            "groups were further than %d queues reach, whose last messages are lost: they go on at"
            " the ends of these queues",
            count,
        )


def _warn_of_long_delays(config: BrokerConfig) -> None:
    """Say which messages may be deleted while they wait."""
    if (longest := max(config.message_delay_levels, default=0)) >= config.retention:
        log.warning(
            "messages may wait %d ms at a delay level, but files are deleted after %d ms",
            longest,
            config.retention,
        )


def _revival(
    config: BrokerConfig,
    clock: Clock,
    put: Ingest,
    store: Store,
    retries: RetryTopics,
    offsets: ConsumerOffsets,
    set_aside: SetAside,
) -> PopRevive:
    return PopRevive(
        store=store, put=put, topics=retries.topics, groups=retries.groups, offsets=offsets,
        clock=clock, broker=(config.cluster_name, config.broker_name), set_aside=set_aside,
    )  # fmt: skip


def _transactions_of(
    config: BrokerConfig,
    clock: Clock,
    put: Ingest,
    store: Store,
    topics: Topics,
    offsets: ConsumerOffsets,
    set_aside: SetAside,
) -> Transactions:
    return Transactions(
        store=store, put=put, topics=topics, offsets=offsets, clock=clock, config=config,
        set_aside=set_aside,
    )  # fmt: skip


def _homes(config: BrokerConfig, topics: Topics, clock: Clock) -> Destinations:
    return Destinations(
        topics=topics,
        clock=clock,
        default_queue_count=config.default_queue_count,
        auto_create=config.auto_create_topic,
    )


def _housekeeping(broker: Broker) -> Housekeeping:
    return Housekeeping(
        clock=broker.clock,
        store=broker.store,
        tables=(broker.topics, broker.groups, broker.offsets, broker.orders),
        clients=broker.clients,
        locks=broker.locks,
        arrivals=broker.arrivals,
        forget=broker.forget,
    )


def _work(broker: Broker, keeping: Housekeeping) -> Iterator[Coroutine[Any, Any, None]]:
    """Everything that the broker does by itself."""
    clock, flush = broker.clock, broker.flush
    yield flush.serve()
    yield every(lambda: broker.config.flush_interval, flush.step, clock)
    yield every(CHECKPOINT_MS, flush.checkpoint, clock)
    yield every(lambda: broker.config.save_interval, keeping.save, clock)
    yield every(INDEX_MS, keeping.index, clock)
    yield every(REVIVE_MS, broker.revival.step, clock)
    yield every(RETENTION_MS, keeping.expire, clock)
    yield every(SCAN_MS, keeping.scan, clock)
    yield every(SAMPLE_MS, broker.sampling.step, clock)
    yield from _transactions(broker)
    yield keeping.scrub()


def _deliveries(delay: DelayedDelivery) -> Iterator[Coroutine[Any, Any, None]]:
    """Delayed messages brought to their queues."""
    yield from delay.work()
    yield every(SAVE_MS, delay.save, delay.clock)


def _transactions(broker: Broker) -> Iterator[Coroutine[Any, Any, None]]:
    """Half messages: their ends noted, and those asked about that have none."""
    transactions, clock = broker.transactions, broker.clock
    checks = TransactionChecks(transactions, broker.clients, clock, broker.rng)
    yield every(lambda: broker.config.transaction_op_interval, transactions.step, clock)
    yield every(lambda: broker.config.transaction_check_interval, checks.step, clock)
    yield every(RELIEF_MS, checks.relieve, clock)


def _memory() -> int:
    """Bytes of memory that this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return MEMORY_GUESSED
