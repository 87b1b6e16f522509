"""ProxyServer: a gRPC server for a proxy, from start to stop."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import grpc

from roquet.log_records import logger
from roquet.metrics.metric import NodeType
from roquet.model.settings import join_address
from roquet.net.address import is_specific, routable_address
from roquet.net.pool import LocalServer
from roquet.net.request_meter import RequestMeter
from roquet.observe.exporter import MetricsExporter, NodeIdentity, exporter_address, exporter_labels
from roquet.proxy.cluster import NO_SERVERS
from roquet.proxy.config import ProxyConfig
from roquet.proxy.proxy import Proxy
from roquet.proxy.public_port import PREFIX, PublicPort, bind, remove_left_directories
from roquet.proxy.service import NAME

log = logger(__name__)

FRAME_SIZE_MAX: Final = 130 * 1024 * 1024
"""Bytes of one request, as the genuine proxy takes them."""

STREAMS_MAX: Final = 4_096
"""Requests of one connection at a time: a thousand consumers may share one."""

METADATA_SIZE_MAX: Final = 32 * 1024
"""Bytes of one request's headers: official clients send less than one kilobyte."""

READ_AHEAD: Final = 1024 * 1024
"""Bytes of a request that a client may send before the proxy has read them. It is fixed, since
gRPC finds a better one by a ping for each request, which costs a seventh of a small one."""

IDLE_MS: Final = 120_000
"""Ms without a request after which a connection is ended in good order, as by Apache's proxy."""

PING_MS: Final = 60_000
"""Ms without a byte after which a client is asked for a sign of life."""

PINGS_APART_MS: Final = 10_000
"""Ms between a client's pings; gRPC hangs up after more than two that come sooner, with no answer
in between. Clients in Java ping every 300 s."""

PING_TIMEOUT_MS: Final = 20_000
"""Ms within which it has to answer."""

AGE_GRACE_MS: Final = 30_000
"""Ms for which requests of a connection that is too old go on: receives wait for less."""


def grpc_options(config: ProxyConfig) -> Sequence[tuple[str, int]]:
    """Settings of gRPC's server."""
    aged: list[tuple[str, int]] = []
    if config.connection_age_ms is not None:
        aged.append(("grpc.max_connection_age_ms", config.connection_age_ms))
        aged.append(("grpc.max_connection_age_grace_ms", AGE_GRACE_MS))
    return (
        ("grpc.max_receive_message_length", FRAME_SIZE_MAX),
        ("grpc.max_send_message_length", FRAME_SIZE_MAX),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.absolute_max_metadata_size", METADATA_SIZE_MAX),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", READ_AHEAD),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PINGS_APART_MS),
        ("grpc.so_reuseport", 0),
        *aged,
    )


STOP_S: Final = 5
"""Time that requests under way have at a stop."""

_DEFAULTS: Final = ProxyConfig()


class ProxyServer:
    """Serves RocketMQ 5's clients in front of a cluster."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        config: ProxyConfig = _DEFAULTS,
        local: Mapping[str, LocalServer] = NO_SERVERS,
    ) -> None:
        """Brokers of this process are in `local`, by their addresses: no socket is between."""
        self._config = config
        self._local = local
        self._proxy = Proxy(namesrv, config)
        self._running = AsyncExitStack()
        self._public: PublicPort | None = None
        self.port = 0
        """The port, once the proxy is started."""
        self.metrics_port = 0
        """The port of the metrics page; 0: it shows none."""
        self.admin_port = 0
        """The port for operators; 0: there is none."""

    @property
    def address(self) -> str:
        """`host:port`."""
        return join_address(self._config.host, self.port)

    async def start(self) -> None:
        """Open the port; ConfigError when it is taken. The cluster need not be reachable yet."""
        async with AsyncExitStack() as running:
            pages = await running.enter_async_context(AsyncExitStack())  # until all has ended
            server = grpc.aio.server(options=grpc_options(self._config))
            handlers = grpc.method_handlers_generic_handler(NAME, dict(self._proxy.methods))
            server.add_generic_rpc_handlers((handlers,))
            if self._config.is_relayed:
                remove_left_directories()
                directory = running.enter_context(TemporaryDirectory(prefix=PREFIX))
                self._public = public = PublicPort(self._config, Path(directory))
                self._proxy.admission.address_of = public.address_of
                bind(server, public.inner)
            else:
                self.port = bind(server, join_address(self._config.host, self._config.port))
            self._proxy.start(self._local)
            running.push_async_callback(self._proxy.close)
            await server.start()
            running.push_async_callback(server.stop, STOP_S)
            running.callback(self._proxy.drain)
            if self._public is not None:
                self.port = await self._public.listen()
                running.callback(self._public.close)
            if self._config.admin_port is not None:
                admin = await running.enter_async_context(self._proxy.admin())
                self.admin_port = admin.port
            if (exporter := self._exporter()) is not None:
                await pages.enter_async_context(exporter)
                self.metrics_port = exporter.port
            log.info("RocketMQ 5's clients are served at %s", self.address)
            self._running = running.pop_all()

    def _exporter(self) -> MetricsExporter | None:
        """The page of metrics and health; None without the setting."""
        config, proxy = self._config, self._proxy
        if (address := exporter_address(config)) is None:
            return None
        host = config.host if is_specific(config.host) else routable_address()
        identity = NodeIdentity(
            node_type=NodeType.PROXY,
            node_id=join_address(host, self.port),
            further=exporter_labels(config),
        )
        public = self._public
        exporter = MetricsExporter(
            identity,
            address,
            config.clock,
            meter=RequestMeter(config.clock),
            connections=lambda: public.connections if public else 0,
            sources=(proxy.add_to, *((public.add_openings,) if public else ())),
        )
        exporter.unready = lambda: [proxy.unready] if proxy.unready else []
        return exporter

    async def close(self) -> None:
        """Stop: clients are told, requests under way end, what is not acknowledged comes again."""
        await self._running.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
