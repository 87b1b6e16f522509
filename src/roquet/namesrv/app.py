"""NameServer: runs a name server: listens, serves its handlers, expires silent brokers."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from roquet.access.access_users import RELOAD_MS, AccessUsers
from roquet.access.guarded_router import GuardedRouter
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.metric import NodeType
from roquet.metrics.text_format import MetricsPage
from roquet.model.settings import join_address
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.handlers import HANDLERS
from roquet.namesrv.kv_store import KVStore
from roquet.namesrv.live_brokers import LiveBrokers
from roquet.namesrv.lowest_id_notices import LowestIdNotices
from roquet.namesrv.state import NameServerState
from roquet.net.address import is_specific, routable_address
from roquet.net.channel import security_of
from roquet.net.clock import SYSTEM_CLOCK, Clock, every
from roquet.net.limits.fair_share import FREQUENT_CODES
from roquet.net.pool import ChannelPool
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.request_meter import RequestMeter
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.observe.exporter import MetricsExporter, NodeIdentity, exporter_address, exporter_labels
from roquet.observe.log_levels import apply_log_levels
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles


class NameServer:
    """A running name server: `async with NameServer(config) as server: server.address`."""

    def __init__(self, config: NameServerConfig | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.config = config = config or NameServerConfig()
        self.state = NameServerState(
            config=config,
            clock=clock,
            brokers=LiveBrokers(),
            kv_store=KVStore(
                config.directory or Path("/"), RealFiles() if config.directory else MemoryFiles()
            ),
        )
        self._running = AsyncExitStack()
        self._server: Server | None = None
        self.metrics_port = 0
        """The port of the metrics page; 0: it shows none."""
        self.exporter: MetricsExporter | None = None
        """The metrics page, for what else is in the process; None: there is none."""

    @property
    def port(self) -> int:
        """The port that it listens on. RuntimeError before the start."""
        if self._server is None:
            raise RuntimeError("the name server has not been started")
        return self._server.port

    @property
    def address(self) -> str:
        """`host:port` for clients on this machine."""
        host = "127.0.0.1" if self.config.host in {"0.0.0.0", "::", ""} else self.config.host
        return join_address(host, self.port)

    async def __aenter__(self) -> Self:
        config, clock = self.config, self.state.clock
        if config.log_levels:
            apply_log_levels(config.log_levels)
        users = AccessUsers(config.access_file) if config.access_file else None
        router = Router()
        if users is not None:
            guard = users.guard(
                config.access_cluster,
                clock.monotonic_ms,
                certificate_users=config.certificate_users,
            )
            router = GuardedRouter(guard)
        notices = LowestIdNotices(
            self.state, ChannelPool(clock=clock, security=security_of(config.calls))
        )
        self._running.push_async_callback(notices.close)
        self.state.brokers.listeners.append(notices.send)
        for call, handler in HANDLERS.items():
            router.add(call, partial(handler, self.state))
        server = Server(router, host=config.host, port=config.port, clock=clock)
        server.tls = ReloadedTls(config.tls) if config.tls else None
        server.proxies = config.proxy_protocol_from
        self.exporter = exporter = measure(self.state, router, server)
        self._server = await self._running.enter_async_context(server)
        if exporter is not None:
            await self._running.enter_async_context(exporter)
            self.metrics_port = exporter.port
        brokers = self.state.brokers
        watch = every(
            config.scan_ms, lambda _now: brokers.forget_silent(clock.monotonic_ms()), clock
        )
        self._running.callback(asyncio.create_task(watch).cancel)
        if users is not None:
            follow = every(RELOAD_MS, users.reload, clock)
            self._running.callback(asyncio.create_task(follow).cancel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._running.aclose()


def measure(state: NameServerState, router: Router, server: Server) -> MetricsExporter | None:
    """The exporter of a name server, which counts from now on; None if it is to show no metrics."""
    if (address := exporter_address(state.config)) is None:
        return None
    router.meter = meter = RequestMeter(state.clock, FREQUENT_CODES)
    host = state.config.host
    return MetricsExporter(
        NodeIdentity(
            node_type=NodeType.NAME_SERVER,
            node_id=join_address(
                host if is_specific(host) else routable_address(), state.config.port
            ),
            further=exporter_labels(state.config),
        ),
        address,
        state.clock,
        meter=meter,
        connections=lambda: len(server.peers),
        sources=(partial(add_brokers, state), server.add_openings),
    )


def add_brokers(state: NameServerState, page: MetricsPage) -> None:
    """Add the number of brokers that are alive."""
    keys = state.brokers.registrations.keys()
    page.add(roquet.BROKERS, len(keys))
    page.add(roquet.BROKER_NAMES, len({name for name, _ in keys}))
