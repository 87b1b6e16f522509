"""ControllerServer: runs a controller: listens, serves its handlers, leads, elects masters.

start   store ─▶ listen ─▶ first attempt to lead ─▶ loops
stop    loops ─▶ answer what is in flight ─▶ resign
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from roquet.access.access_users import RELOAD_MS, AccessUsers
from roquet.access.guarded_router import GuardedRouter
from roquet.controller.config import ETCD_STORE, ETCD_TLS_STORE, MEMORY_STORE, ControllerConfig
from roquet.controller.controller import Controller
from roquet.controller.elections import Elections
from roquet.controller.handlers import HANDLERS
from roquet.controller.leadership import ACQUIRE_MS, Leadership
from roquet.controller.liveness import Liveness
from roquet.controller.role_notices import RoleNotices
from roquet.controller.state_store.interface import ControllerIdentity, StateStore
from roquet.controller.state_store.memory import MemoryStore
from roquet.log_records import logger
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.metric import NodeType
from roquet.metrics.text_format import MetricsPage
from roquet.model.errors import ConfigError
from roquet.model.settings import join_address, parse_address, parse_addresses
from roquet.net.address import is_specific, routable_address
from roquet.net.channel import security_of
from roquet.net.clock import SYSTEM_CLOCK, Clock, every
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.request_meter import RequestMeter
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.net.tls import Tls
from roquet.observe.exporter import MetricsExporter, NodeIdentity, exporter_address, exporter_labels
from roquet.observe.log_levels import apply_log_levels
from roquet.rules.election.lease import LeaseTerms

log = logger(__name__)


class ControllerServer:
    """A running controller: `async with ControllerServer(config) as server: server.address`."""

    def __init__(
        self,
        config: ControllerConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        store: StateStore | None = None,
    ) -> None:
        self.config = config or ControllerConfig()
        self.controller: Controller
        self.address = ""
        """`host:port` that brokers are told."""
        self.port = 0
        self.metrics_port = 0
        """The port of the metrics page; 0: it shows none."""
        self._clock = clock
        self._store = store
        self._running = AsyncExitStack()

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
        config = self.config
        if config.log_levels:
            apply_log_levels(config.log_levels)
        store = self._store or open_store(config)
        running.push_async_callback(store.close)
        users = AccessUsers(config.access_file) if config.access_file else None
        router = Router()
        if users is not None:
            guard = users.guard(
                config.access_cluster,
                self._clock.monotonic_ms,
                certificate_users=config.certificate_users,
            )
            router = GuardedRouter(guard)
        server = Server(router, host=config.host, port=config.port, clock=self._clock)
        server.tls = ReloadedTls(config.tls) if config.tls else None
        await running.enter_async_context(server)
        self.port = server.port
        self.address = advertised_address(config, server.port)
        warn_of_open_controller(config, self.address)
        self.controller = controller = self._assemble(store)
        running.push_async_callback(controller.notices.close)
        for call, handler in HANDLERS.items():  # no request was read yet: nothing was awaited
            router.add(call, partial(handler, controller))
        if (exporter := measure(controller, self.address, router, server)) is not None:
            await running.enter_async_context(exporter)
            self.metrics_port = exporter.port
        await controller.leadership.step(self._clock.now_ms())
        work = [
            every(ACQUIRE_MS, controller.leadership.step, self._clock),
            controller.elections.serve(),
        ]
        if users is not None:
            work.append(every(RELOAD_MS, users.reload, self._clock))
        for coroutine in work:
            running.push_async_callback(_stop, asyncio.create_task(coroutine))

    def _assemble(self, store: StateStore) -> Controller:
        config, clock = self.config, self._clock
        identity = ControllerIdentity(config.controller_id or self.address, self.address)
        terms = LeaseTerms(length_ms=config.lease_ms)
        leadership, liveness = Leadership(store, identity, clock, terms), Liveness()
        notices = RoleNotices(clock, security_of(config.calls))
        controller = Controller(
            config=config,
            clock=clock,
            liveness=liveness,
            leadership=leadership,
            elections=Elections(leadership, liveness, notices, clock),
            notices=notices,
        )
        controller.configure(config)
        return controller


def advertised_address(config: ControllerConfig, port: int) -> str:
    """HOST:PORT that brokers are told; `port` is the one that the controller listens on."""
    if config.advertise is not None:
        return join_address(*parse_address(config.advertise, "advertise", port=port))
    host = config.host if is_specific(config.host) else routable_address()
    return join_address(host, port)


def warn_of_open_controller(config: ControllerConfig, address: str) -> None:
    """Warn that whoever reaches a controller may say who leads.

    Nothing is said if it listens on one interface, checks users or asks for certificates.
    """
    requires_certificates = config.tls is not None and config.tls.requires_certificates
    if config.access_file is None and not requires_certificates and not is_specific(config.host):
        log.warning(
            "everybody who reaches %s may have other brokers lead, and remove some: this controller"
            " listens on all interfaces and checks no users; set --access-file, or --host to one"
            " interface",
            address,
        )


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def measure(
    controller: Controller, address: str, router: Router, server: Server
) -> MetricsExporter | None:
    """The exporter of a controller, which counts from now on; None if it is to show no metrics.

    `address` is the controller's own, by which pages are told apart.
    """
    if (location := exporter_address(controller.config)) is None:
        return None
    router.meter = meter = RequestMeter(controller.clock)
    return MetricsExporter(
        NodeIdentity(
            node_type=NodeType.CONTROLLER,
            node_id=address,
            further=exporter_labels(controller.config),
        ),
        location,
        controller.clock,
        meter=meter,
        connections=lambda: len(server.peers),
        sources=(
            partial(add_leadership, controller),
            partial(add_groups, controller),
            server.add_openings,
        ),
    )


def add_leadership(controller: Controller, page: MetricsPage) -> None:
    """Add whether the controller leads."""
    page.add(roquet.IS_LEADER, int(controller.leadership.state is not None))


def add_groups(controller: Controller, page: MetricsPage) -> None:
    """Add the number of brokers that are alive."""
    page.add(roquet.BROKERS, controller.liveness.count)
    page.add(roquet.BROKER_NAMES, len(controller.liveness.names))


def open_store(config: ControllerConfig) -> StateStore:
    """Open the store. Raises ConfigError for an unknown kind, StoreError for unusable files."""
    kind, _, location = config.store.partition(":")
    if config.store == MEMORY_STORE:
        return MemoryStore()
    if kind == "file" and location:
        from roquet.controller.state_store.file import FileStore

        return FileStore(Path(location).expanduser())
    if kind in (ETCD_STORE, ETCD_TLS_STORE):
        tls = (config.etcd_tls or Tls()) if kind == ETCD_TLS_STORE else None
        return _etcd_store(parse_addresses(location, f"store: {kind}"), config.controllers, tls)
    raise ConfigError(
        f"store: {config.store!r} is none of memory, file:DIR, etcd:HOST:PORT[,HOST:PORT…] and "
        "etcd+https:HOST:PORT[,…]"
    )


def _etcd_store(addresses: tuple[str, ...], controllers: str, tls: Tls | None) -> StateStore:
    from roquet.controller.state_store.etcd import EtcdStore
    from roquet.controller.state_store.etcd_gateway import EtcdGateway

    if not controllers or "/" in controllers or not controllers.isprintable():
        raise ConfigError(f"controllerDLegerGroup: {controllers!r} cannot be a part of etcd's keys")
    return EtcdStore(EtcdGateway(addresses, tls), controllers)
