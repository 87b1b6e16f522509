"""BrokerServer: runs a broker, from its store to its registration, and stops it in order.

start   store ─▶ parts ─▶ listen ─▶ loops ─▶ name servers
stop    name servers ─▶ answer what is in flight ─▶ loops ─▶ tables ─▶ flush, close the store

Some loops are those of a master: deliveries, checks of transactions, redelivery of popped messages.
A replica has others in their place, which follow its master's log; they change with the role.
"""

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Final, Self

from msgspec.structs import replace

from roquet.access.guard import AccessGuard
from roquet.access.guarded_router import GuardedRouter
from roquet.broker import startup
from roquet.broker.access.access_control import RELOAD_MS, access_rules
from roquet.broker.access.stored_topics import topic_at_position
from roquet.broker.assembly import Environment, build, identity_file
from roquet.broker.broker import Broker
from roquet.broker.handlers import HANDLERS
from roquet.broker.handlers.messages.pull import PlainPulls
from roquet.broker.handlers.unserved import UNSERVED
from roquet.broker.log.flush import CHECKPOINT_MS
from roquet.broker.metrics.broker_exporter import measure
from roquet.broker.operations.metadata_copy import MetadataCopy
from roquet.broker.operations.plain_sends import PlainSends
from roquet.broker.operations.sending import SendChecks
from roquet.broker.operations.throttling import Throttle
from roquet.broker.replication.control.machine_boot import (
    BootNote,
    acknowledges_flushed,
    machine_boot_id,
)
from roquet.broker.replication.role import Loops, RoleTasks
from roquet.broker.replication.role_gate import RoleGate
from roquet.broker.replication.stream.log_comparison import LogComparison
from roquet.broker.services.broker_address import (
    advertised_address,
    warn_of_container_address,
    warn_of_open_broker,
    warn_of_refused_replicas,
)
from roquet.broker.services.delayed_delivery import SAVE_MS
from roquet.broker.services.delivery_checkpoints import NOTE_MS
from roquet.broker.services.housekeeping import INDEX_MS, RETENTION_MS, SCAN_MS, Housekeeping
from roquet.broker.services.registration import BrokerAddresses, NameServerRegistration
from roquet.broker.services.revive import REVIVE_MS
from roquet.broker.services.transactions.checks import RELIEF_MS, TransactionChecks
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.store_settings import store_config
from roquet.broker.statistics import SAMPLE_MS
from roquet.broker.wiring import connect
from roquet.log_records import logger
from roquet.model.errors import ConfigError, StoreError
from roquet.model.settings import join_address, parse_address
from roquet.net.address import host_of
from roquet.net.clock import SYSTEM_CLOCK, Clock, SteadyClock, every
from roquet.net.pool import ChannelPool
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.filesystem.files import Files
from roquet.store.store import Store
from roquet.wire.plain_pull import PULL_CODE, plain_pulls
from roquet.wire.plain_send import SEND_CODES, plain_sends

log = logger(__name__)

VIP_BELOW: Final = 2
"""How far below a broker's port old clients expect one that serves senders alone."""

HA_ABOVE: Final = 1
"""How far above a broker's port replicas expect its log, as in Apache's broker."""


class BrokerServer:
    """A running broker: `async with BrokerServer(config) as server: server.address`."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        clock: Clock | None = None,
        *,
        files: Files | None = None,
        rng: Random | None = None,
        boot_id: str | None = None,
    ) -> None:
        """Prepare a broker; `boot_id` is that of the machine, None finds it out."""
        self.config = config or BrokerConfig()
        self._clock = SteadyClock(SYSTEM_CLOCK) if clock is None else clock
        self._boot_id = machine_boot_id() if boot_id is None else boot_id
        self._environment = Environment(
            config=self.config,
            clock=self._clock,
            rng=rng or Random(SystemRandom().getrandbits(64)),
            files=files,
        )
        self._running = AsyncExitStack()
        self._tls: ReloadedTls | None = None
        self.address = ""
        """The address that clients are told: HOST:PORT."""
        self.stream_address = ""
        """HOST:PORT from which replicas get the log."""
        self.port = 0
        self.metrics_port = 0
        """The port of the metrics page; 0: it shows none."""
        self.broker: Broker
        self.server: Server

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
        """Start each part in turn; they are stopped in the opposite order."""
        environment = self._look_at_machine()
        store = self._open()
        running.callback(lambda: store.close(self._clock.now_ms()))
        self.broker = broker = build(environment, store)
        running.callback(broker.log.flush.close)
        running.push_async_callback(broker.coordination.peer_brokers.close)
        router = self._router()
        gate, tasks = self._connect(running, router)
        startup.restore(broker)
        keeping = _housekeeping(broker)
        self._save_at_the_end(running, keeping)
        loops = Loops()
        running.push_async_callback(loops.stop)
        self._tls = ReloadedTls(self.config.server_tls) if self.config.server_tls else None
        await self._listen_for_replicas(running)
        await self._listen(running, router, gate)
        registration = self._registration()
        running.push_async_callback(registration.unregister)
        loops.start(*_work(broker, keeping), tasks.serve(), registration.serve())
        self._follow_mode(running)
        await registration.step()
        log.info("broker %s serves at %s", self.config.broker_name, self.address)

    def _look_at_machine(self) -> Environment:
        """Environment of the broker, with a note whether its machine was lost since the last run.

        Only where others may be elected in its place does that matter.
        """
        environment, config = self._environment, self.config
        if config.store_dir is None or not config.controller_mode:
            return environment
        files, directory = environment.files_or_default(), config.store_dir
        identity = identity_file(config, directory, files)
        note = BootNote(files, directory, self._boot_id)
        note.begin(
            is_flushed=acknowledges_flushed(config),
            is_trusted=config.trust_log,
            has_identity=identity.load() is not None,
        )
        return replace(environment, boot_note=note)

    def _connect(self, running: AsyncExitStack, router: Router) -> tuple[RoleGate, RoleTasks]:
        """Build the last parts, and let all of them follow each other's changes."""
        broker, control, replication = self.broker, self.broker.control, self.broker.replication
        role, stream = replication.role, replication.stream_client
        comparison = LogComparison(broker.log.store, control.settings, role, self._pool(running))
        throttle = Throttle(broker.log, control, broker.make(SendChecks), router)
        gate = RoleGate(router, control.settings, role, replication.mode.acting_master, stream)
        tasks = _role_tasks(broker, gate, MetadataCopy(broker, self._pool(running)))
        connect(broker, gate, tasks, throttle, comparison)
        return gate, tasks

    def _save_at_the_end(self, running: AsyncExitStack, keeping: Housekeeping) -> None:
        """Save tables and progress once more when the broker stops, the last one here first."""
        delivery = self.broker.delivery
        go_back = partial(delivery.checkpoints.go_back, may_wait=False)
        running.push_async_callback(_save_last, keeping.save, self._clock)
        running.push_async_callback(_save_last, delivery.delay.save, self._clock)
        running.callback(delivery.timer.close)
        running.push_async_callback(_save_last, delivery.timer.save, self._clock)
        running.push_async_callback(_save_last, lambda _: go_back(), self._clock)
        running.callback(_note_transactions, self.broker)  # before that: it may be unconfirmed

    def _follow_mode(self, running: AsyncExitStack) -> None:
        """Let a controller decide what this broker is, or a replica stand in for its master.

        A master that returns from there looks at that replica's progress first.

        A broker that stops lets another lead first, and asks nothing more before the connections
        are closed.
        """
        mode, pool, loops = self.broker.replication.mode, self._pool(running), Loops()
        running.push_async_callback(loops.stop)
        loops.start(*mode.work(self.address, pool, self.broker.control.rng))
        running.push_async_callback(mode.release)

    def _open(self) -> Store:
        return Store.open(
            self.config.store_dir,
            store_config(self.config),
            files=self._environment.files,
            now_ms=self._clock.now_ms(),
            pid=os.getpid(),
        )

    async def _listen(self, running: AsyncExitStack, router: Router, gate: RoleGate) -> None:
        config, control = self.config, self.broker.control
        server = Server(
            router,
            host=config.host,
            port=config.port,
            clock=self._clock,
            also=config.port - VIP_BELOW if config.vip_port and config.port > VIP_BELOW else None,
        )
        self.server = server
        server.tls, server.proxies = self._tls, config.proxy_protocol_from
        server.note_slow_requests(control.slow_requests)
        server.on_stopping(self.broker.log.arrivals.close)
        server.on_stopping(self.broker.coordination.handover.close)
        server.on_stopping(gate.release)
        exporter = measure(self.broker, router, server)
        await running.enter_async_context(server)
        if exporter is not None:
            await running.enter_async_context(exporter)
            self.metrics_port = exporter.port
        self.port = server.port
        self.address = advertised_address(config, server.port)
        warn_of_container_address(config, self.address)
        warn_of_open_broker(config, self.address)
        host, _ = parse_address(self.address)
        stream_port = self.broker.replication.stream_server.port
        warn_of_refused_replicas(config, stream_port)
        self.stream_address = join_address(host, stream_port)
        if config.port != server.port:
            self.broker.log.ingest.set_origin(self._environment.origin(self.address))

    def _router(self) -> Router:
        """The router with all handlers; only with access control does it check requests."""
        router, admission = self._new_router(), self.broker.control.admission
        for call, handler in HANDLERS.items():
            router.add(call, self.broker.bind(handler), admission.gate(call))
        sends = self.broker.make(PlainSends)
        router.add_plain(SEND_CODES, plain_sends, sends.store, sends.is_open)
        router.add_plain([PULL_CODE], plain_pulls, self.broker.make(PlainPulls).read)
        return router

    def _new_router(self) -> Router:
        unserved = {int(code): reason for code, reason in UNSERVED.items()}
        access, clock = self.broker.access, self._clock
        if not access.is_enabled:
            return Router(unserved)
        topic_at = partial(topic_at_position, self.broker.log.store)
        guard = AccessGuard(
            lambda: access.tables, access_rules(self.config), clock.monotonic_ms, topic_at
        )
        return GuardedRouter(guard, unserved)

    async def _listen_for_replicas(self, running: AsyncExitStack) -> None:
        """Listen for replicas, on the port above the broker's own unless haListenPort says so.

        A broker that nobody has given a role or that port goes on without it. Replicas are served
        until all requests are answered, since these may wait for them.
        """
        config, server = self.config, self.broker.replication.stream_server
        port = config.ha_port or (config.port and config.port + HA_ABOVE)
        running.push_async_callback(server.close)
        try:
            await server.start(config.host, port, self._tls)
        except ConfigError as error:
            has_role = config.broker_role is not BrokerRole.ASYNC_MASTER
            if config.ha_port or has_role or config.controller_mode:
                raise
            log.warning("this broker can have no replicas: %s", error)
        self.broker.replication.stream_client.own_port = server.port

    def _pool(self, running: AsyncExitStack) -> ChannelPool:
        """Connections to other servers.

        Each use has its own: a failure of one must not hold up another one.
        """
        pool = ChannelPool(clock=self._clock, security=self.config.calls())
        running.push_async_callback(pool.close)
        return pool

    def _registration(self) -> NameServerRegistration:
        control = self.broker.control
        return NameServerRegistration(
            control.settings,
            self._clock,
            BrokerAddresses(broker=self.address, stream=self.stream_address),
            self.broker.tables.topics.content,
            control.registration,
            self.broker.replication.role,
        )


def _note_transactions(broker: Broker) -> None:
    """Note how far transactions are ended, once more; a broker that does not lead knows no more."""
    if broker.replication.role.current.is_active:
        broker.delivery.transactions.step()


async def _save_last(save: Callable[[int], Awaitable[None]], clock: Clock) -> None:
    """Write the tables once more; a disk that does not take them must not hold up the stop."""
    try:
        await save(clock.now_ms())
    except StoreError as error:
        log.warning("progress since the last save is lost, groups will read twice: %s", error)


def _housekeeping(broker: Broker) -> Housekeeping:
    return Housekeeping(
        message_log=broker.log,
        tables=broker.tables,
        forget=broker.coordination.forget,
        clock=broker.control.clock,
        owns_progress=lambda: (
            broker.replication.role.current.is_master or broker.replication.acts_as_master
        ),
    )


def _work(broker: Broker, keeping: Housekeeping) -> Iterator[Coroutine[Any, Any, None]]:
    """The loops of the store, the tables and statistics."""
    settings, clock, flush = broker.control.settings, broker.control.clock, broker.log.flush
    yield flush.serve()
    yield every(lambda: settings.config.flush_interval, flush.step, clock)
    yield every(CHECKPOINT_MS, flush.checkpoint, clock)
    yield every(lambda: settings.config.save_interval, keeping.save, clock)
    yield every(INDEX_MS, keeping.index, clock)
    yield every(RETENTION_MS, keeping.expire, clock)
    yield every(SCAN_MS, keeping.scan, clock)
    yield every(SAMPLE_MS, broker.control.sampler.step, clock)
    if broker.access.is_enabled:
        yield every(RELOAD_MS, broker.access.reload, clock)
    yield keeping.scrub()


def _role_tasks(broker: Broker, gate: RoleGate, copy: MetadataCopy) -> RoleTasks:
    """Tasks of the broker as a master, and as a replica."""
    client, clock = broker.replication.stream_client, broker.control.clock

    async def promote() -> None:
        if await startup.take_over(broker):
            gate.open_or_close()
            broker.control.registration.request()

    return RoleTasks(
        broker.replication.role,
        clock,
        of_master=lambda: _deliveries(broker),
        of_replica=lambda: (client.serve(), every(copy.interval_ms, copy.step, clock)),
        promote=promote,
        demote=partial(startup.hand_over, broker),
    )


def _deliveries(broker: Broker) -> Iterator[Coroutine[Any, Any, None]]:
    """The loops of a master alone: delayed, timed and popped messages, and transactions."""
    delay = broker.delivery.delay
    yield from delay.work()
    yield every(SAVE_MS, delay.save, delay.clock)
    yield from broker.delivery.timer.work()
    yield every(REVIVE_MS, broker.delivery.revive.step, delay.clock)
    if broker.replication.controller_mode is not None:
        yield every(NOTE_MS, broker.delivery.checkpoints.note, delay.clock)
    yield from _transactions(broker)


def _transactions(broker: Broker) -> Iterator[Coroutine[Any, Any, None]]:
    """The loops of half messages: their ends are noted, and open ones asked about."""
    settings, clock = broker.control.settings, broker.control.clock
    transactions = broker.delivery.transactions
    access, clients = broker.access, broker.tables.clients
    checks = TransactionChecks(
        transactions, clients, clock, broker.control.rng,
        lambda peer, topic: access.may_send(clients.user(peer), topic, host_of(peer.address)),
    )  # fmt: skip
    yield every(lambda: settings.config.transaction_op_interval, transactions.step, clock)
    yield every(lambda: settings.config.transaction_check_interval, checks.step, clock)
    yield every(RELIEF_MS, checks.relieve, clock)
